from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from envs.base import EnvironmentRefusal
from envs.toolbench.bench import Bench
from envs.toolbench.server import Rules, ToolbenchEnvironment
from envs.wire import Message, Observation, StepRequest, ToolCall
from tests.envs.toolbench.builders import listed

FORECAST = "forecast_for_weather_desk"


class Player:
    """A session in this process."""

    def __init__(self, bench: Bench, task: dict[str, Any] | None = None, **rules: Any) -> None:
        self.environment = ToolbenchEnvironment(bench.answerer, bench.tasks, Rules(**rules))
        self.first = self.environment.reset({"query_id": 7} if task is None else task, 0, "e")

    def calls(self, *calls: tuple[str, dict[str, Any]], **more: Any) -> Observation:
        made = [ToolCall(id=f"c{number}", name=name, arguments=given) for number, (name, given) in enumerate(calls)]
        return self.step(StepRequest(tool_calls=made, **more))

    def says(self, text: str) -> Observation:
        return self.step(StepRequest(message=text))

    def finish(self, **arguments: Any) -> Observation:
        return self.calls(("Finish", arguments))

    def step(self, request: StepRequest) -> Observation:
        return asyncio.run(self.environment.step(request))


def contents(observation: Observation) -> list[str]:
    return [message.content for message in observation.messages]


def test_the_opening_has_query_and_functions(bench: Bench) -> None:
    first = Player(bench).first
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.messages[1].content == "How warm is Oslo?"
    names = [tool["function"]["name"] for tool in first.tools or []]
    assert names[:3] == [FORECAST, "shape_for_weather_desk", "nothing_for_weather_desk"]
    assert names[4:] == ["is_id_for_weather_desk", "Finish"]
    assert first.info == {"turn": 0, "query_id": 7, "speech": "native", "apis": 5}


def test_calls_are_answered_in_order_with_source_and_status(bench: Bench) -> None:
    player = Player(bench)
    seen = player.calls(
        (FORECAST, {"city": "Oslo"}),
        ("shape_for_weather_desk", {"city": "Oslo"}),
        ("Forecast For Weather Desk", {"city": "Oslo"}),
        ("forecast", {}),
        ("shape_for_weather_desk", {}),
        (FORECAST, {"city": "Broken"}),
    )
    assert contents(seen)[0] == '{"error": "", "response": "{\'degrees\': 7}"}'
    assert contents(seen)[2] == contents(seen)[0]
    assert json.loads(contents(seen)[3]) == {"error": "No such function name: forecast", "response": ""}
    assert [(call["source"], call["status"]) for call in seen.info["calls"]] == [
        *(("cache", 0), ("simulator", 0), ("cache", 0), ("error", 1), ("error", 2), ("cache", 7))
    ]
    assert (seen.info["status"], seen.done, seen.reward) == (7, False, None)
    assert [message.tool_call_id for message in seen.messages] == ["c0", "c1", "c2", "c3", "c4", "c5"]


def test_results_are_cut_at_1024_characters(bench: Bench) -> None:
    (content,) = contents(Player(bench).calls((FORECAST, {"city": "Strange"})))
    assert content == '{"error": "", "response": "' + "x" * 997 + "..."
    assert len(content) == 1027
    (short,) = contents(Player(bench, max_observation=20).calls((FORECAST, {"city": "Strange"})))
    assert short == '{"error": "", "respo...'


def test_large_cache_files_are_waited_for(bench: Bench) -> None:
    name = "nothing_for_weather_desk"
    seen = Player(bench).calls((name, {"city": "1"}), (FORECAST, {"city": "Oslo"}), (name, {"city": "299"}))
    assert [call["source"] for call in seen.info["calls"]] == ["cache"] * 3
    assert contents(seen)[0][:40] == contents(seen)[2][:40] == '{"error": "", "response": "' + "y" * 13


@pytest.mark.parametrize(
    ("arguments", "content", "status"),
    [
        ({}, '{error:"must have "return_type""}', 2),
        ({"return_type": "give_answer"}, '{error:"must have "final_answer""}', 2),
        ({"return_type": "maybe"}, '{error:""return_type" is not a valid choice"}', 2),
        ({"return_type": ["give_answer"]}, '{error:""return_type" is not a valid choice"}', 2),
    ],
)
def test_a_finish_that_lacks_something_does_not_end_the_episode(
    bench: Bench, arguments: Any, content: str, status: int
) -> None:
    player = Player(bench)
    seen = player.finish(**arguments)
    assert (contents(seen), seen.info["status"], seen.done) == ([content], status, False)
    assert player.finish(return_type="give_answer", final_answer="7").done


def test_a_perfect_episode_of_upstream_has_the_published_027(bench: Bench) -> None:
    player = Player(bench)
    player.calls((FORECAST, {"city": "Oslo"}))
    end = player.finish(return_type="give_answer", final_answer="7 degrees")
    assert end.reward_parts == {
        **{"format": 1.0, "valid_turns": 1.0, "function_call": 0.1, "finish": 0.5, "call_success": 1.0}
    }
    total = sum(
        end.reward_parts[name] * weight for name, weight in {"format": 0.1, "function_call": 0.2, "finish": 0.3}.items()
    )
    assert total == pytest.approx(0.27)
    assert (end.done, end.reward, end.info["status"], end.info["finish"]) == (True, None, 3, "answer")
    assert contents(end) == ['{"response":"successfully giving the final answer."}']


def test_giving_up_and_errors_have_their_parts(bench: Bench) -> None:
    player = Player(bench)
    player.calls((FORECAST, {"city": "Oslo"}), ("nowhere", {}), (FORECAST, {"city": "Broken"}))
    player.says("thinking")
    end = player.finish(return_type="give_up_and_restart")
    assert end.reward_parts["function_call"] == pytest.approx(0.1 - 2 * 0.5)
    assert end.reward_parts["call_success"] == pytest.approx(1 / 3)
    assert (end.reward_parts["finish"], end.reward_parts["valid_turns"]) == (0.25, pytest.approx(2 / 3))
    assert (end.info["status"], end.reward) == (4, None)


def test_an_episode_ends_after_its_turns_without_a_known_reward(bench: Bench) -> None:
    player = Player(bench, max_turns=3)
    assert [player.says("hm").done for _ in range(2)] == [False, False]
    end = player.finish(return_type="other")
    assert (end.done, end.reward, end.info["truncated"]) == (True, None, True)
    assert end.reward_parts["finish"] == 0.15 and "call_success" not in end.reward_parts
    with pytest.raises(EnvironmentRefusal):
        player.says("more")


def test_a_final_step_ends_with_the_parts_so_far(bench: Bench) -> None:
    player = Player(bench, max_turns=30)
    player.says("hm")
    end = player.step(StepRequest(final=True))
    assert (end.done, end.info["turn"], end.info["truncated"], end.messages) == (True, 1, True, [])
    assert end.reward_parts["finish"] == 0.0
    with pytest.raises(EnvironmentRefusal):
        player.says("more")


def test_nothing_is_called_after_the_end_or_beyond_eight_calls(bench: Bench) -> None:
    many = Player(bench).calls(*[(FORECAST, {"city": "Oslo"})] * 20)
    assert len(many.messages) == 16
    assert [call["source"] for call in many.info["calls"]] == ["cache"] * 8 + ["error"] * 8
    finish = ("Finish", {"return_type": "give_answer", "final_answer": "7"})
    end = Player(bench).calls(finish, (FORECAST, {"city": "Oslo"}))
    assert end.done and json.loads(contents(end)[1])["error"] == "The task is over."
    assert "call_success" not in end.reward_parts


def test_text_speech_speaks_in_observations(bench: Bench) -> None:
    player = Player(bench, {"query_id": 7, "speech": "text"})
    assert player.first.tools == []
    assert FORECAST in player.first.messages[0].content and "Action Input:" in player.first.messages[0].content
    seen = player.says(f'Thought: \nAction: {FORECAST}\nAction Input: {{"city": "Oslo"}}')
    assert [(message.role, message.content) for message in seen.messages] == [
        ("user", '\n\nObservation: {"error": "", "response": "{\'degrees\': 7}"}\n\n')
    ]
    assert contents(player.says("Thought: hm")) == [
        "\nMy previous action is invalid. Please provide Thought, Action, and Action Input.\n"
    ]
    split = player.calls((FORECAST, {"city": "Oslo"}))
    assert contents(split) == contents(seen)
    unread = player.step(StepRequest(message="Thought: x", parse_error="bad"))
    assert contents(unread) == ["\nMy previous action is invalid. Please check the Action and Action Input format.\n"]
    end = player.says('Thought: \nAction: Finish\nAction Input: {"return_type": "give_up_and_restart"}')
    assert (end.done, contents(end)) == (True, ["\n\nI give up and restart.\n\n"])


def test_unreadable_native_calls_are_reported(bench: Bench) -> None:
    player = Player(bench)
    seen = player.step(StepRequest(parse_error="not\nJSON"))
    assert [message.role for message in seen.messages] == ["tool"]
    assert json.loads(contents(seen)[0])["error"] == "The call could not be read: not JSON"
    both = player.calls((FORECAST, {"city": "Oslo"}), parse_error="the second")
    assert len(both.messages) == 2 and "the second" in contents(both)[1]
    silent = player.says("")
    assert silent.messages == [
        Message(role="user", content="Nothing was called. Call a function, or Finish to end the task.")
    ]


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ({"query_id": 8}, "no query of this query_id"),
        ({"query_id": "7"}, "query_id"),
        ({"index": 2}, "index must be between 0 and 1"),
        ({"index": -1}, "index must be between 0 and 1"),
        ({"query_id": 7, "task_set": "world-1"}, "this server has 'queries'"),
        ({"query": ""}, "query"),
        ({"query": "x", "api_list": [{"tool_name": "a"}]}, "api_list.0"),
        ({"query": "x", "api_list": [listed()] * 65}, "api_list"),
        ({"query": "x", "api_list": [{"category_name": "a", "tool_name": "b", "api_name": "c"}]}, "no document"),
        ({"query_id": 7, "speech": "loud"}, "speech"),
    ],
)
def test_rows_that_cannot_be_played_are_refused_with_a_sentence(bench: Bench, task: Any, sentence: str) -> None:
    with pytest.raises(EnvironmentRefusal, match=sentence):
        Player(bench, task)


def test_rows_may_carry_their_query_and_their_prompt(bench: Bench) -> None:
    own = Player(bench, {"query": "Own?", "api_list": [listed(tool_name="Own", template_response={"a": "int"})]})
    assert own.first.messages[1].content == "Own?" and own.first.info["query_id"] is None
    seen = own.calls(("forecast_for_own", {"city": "Oslo"}))
    assert seen.info["calls"][0]["source"] == "simulator"
    named = {"category_name": "Data", "tool_name": "Weather Desk", "api_name": "Only Documented"}
    documented = Player(bench, {"query": "Own?", "api_list": [named], "prompt": "Hello"})
    assert documented.first.messages == [Message(role="user", content="Hello")]
    (function, _) = documented.first.tools or []
    assert function["function"]["parameters"]["required"] == ["city"]
    alone = Player(bench, {"query": "Without APIs"})
    assert [tool["function"]["name"] for tool in alone.first.tools or []] == ["Finish"]


def test_seeds_draw_and_indices_name_queries(bench: Bench) -> None:
    drawn = {
        ToolbenchEnvironment(bench.answerer, bench.tasks).reset({}, seed, "e").info["query_id"] for seed in range(20)
    }
    assert drawn == {7, 9}
    assert Player(bench, {"index": 1}).first.messages[1].content == "And Rome?"


def test_hostile_calls_are_answered(bench: Bench) -> None:
    deep: Any = "x"
    for _ in range(45):
        deep = [deep]
    hostile: list[tuple[str, dict[str, Any]]] = [
        ("../../etc/passwd", {}),
        ("\x00", {"\x00": "\x00"}),
        ("", {}),
        (FORECAST, {"city": float("nan")}),
        (FORECAST, {"city": "x" * 900_000}),
        (FORECAST, {"city": deep}),
        (FORECAST, {"__class__": {}}),
        (FORECAST, {str(number): number for number in range(5000)}),
    ]
    for call in hostile:
        seen = Player(bench).calls(call)
        body = json.loads(contents(seen)[0])
        assert body.keys() == {"error", "response"} and body["error"] and len(contents(seen)[0]) < 1100
        assert seen.info["status"] in (1, 2) and not seen.done
