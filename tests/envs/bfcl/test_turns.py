from __future__ import annotations

from typing import Any

import pytest

from envs.base import EnvironmentRefusal
from envs.bfcl.application import ANSWER, gold_steps
from envs.bfcl.package import SPLITS, documents, entries
from envs.bfcl.server import BfclEnvironment, Defaults
from envs.bfcl.speech import WARNING, parse_text
from envs.bfcl.tasks import REVEAL, read_row, resolve
from envs.wire import Observation, StepRequest, ToolCall

LS = StepRequest(tool_calls=[ToolCall(id="c1", name="ls")])


def started(name: str = "multi_turn_base_0", **row: Any) -> BfclEnvironment:
    environment = BfclEnvironment()
    environment.reset({"id": name, **row}, 0, "e")
    return environment


def texts_of(observation: Observation) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in observation.messages]


def gold(name: str) -> list[StepRequest]:
    return gold_steps(resolve(read_row({"id": name}), 0))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Missing <think></think> tags"),
        ("<think>a<answer>x</answer>", "Missing <think></think> tags"),
        (
            "<think>a</think><think>b</think><answer>x</answer>",
            "Multiple <think></think> tag pairs found. Only one pair is allowed.",
        ),
        (
            "<think>a</think><tool_call>1</tool_call><tool_call>2</tool_call><answer>x</answer>",
            "Multiple <tool_call></tool_call> tag pairs found. Only one pair is allowed.",
        ),
        (
            "<think>a</think><answer>x</answer><answer>y</answer>",
            "Multiple <answer></answer> tag pairs found. Only one pair is allowed.",
        ),
        (
            "<think>a</think><tool_call>{}</tool_call><answer>y</answer>",
            "Response cannot contain both <tool_call> and <answer> tags",
        ),
        ("<think>a</think>", "Response must contain either <tool_call> or <answer> tags"),
        ("<think>a</think><tool_call>{}", "Response must contain either <tool_call> or <answer> tags"),
        ("<think>a</think> hi <answer>x</answer>", "Response must not contain text outside the required XML tags"),
        ("<think>a</think><answer>x</answer>.", "Response must not contain text outside the required XML tags"),
        (
            "<think>a</think><tool_call>{bad}</tool_call>",
            "Invalid JSON inside <tool_call>: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
    ],
)
def test_unreadable_text_is_answered_in_upstreams_words(text: str, error: str) -> None:
    assert parse_text(text).error == f"Error: {error}"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('{"name": "ls", "arguments": {}}', ["ls"]),
        ('[{"name": " ls "}, {"name": "pwd", "arguments": null}]', ["ls", "pwd"]),
        ('[1, "x", {"name": ""}, {"name": 5}, {"arguments": {}}]', []),
        ("[]", []),
        ("null", []),
    ],
)
def test_calls_are_read_as_upstream_reads_them(body: str, names: list[str]) -> None:
    action = parse_text(f"<think>t</think>\n<tool_call>\n{body}\n</tool_call>\n")
    assert (action.kind, [call.name for call in action.calls]) == ("call", names)


def test_a_sixth_attempt_is_carried_out_but_not_shown() -> None:
    environment = started()
    assert [environment.step(LS).info["code"] for _ in range(5)] == [-1] * 5
    sixth = environment.step(LS)
    assert (sixth.info["code"], sixth.info["turn"]) == (0, 1)
    assert "current_directory_content" not in str(texts_of(sixth))
    assert texts_of(sixth)[-1][0] == "user"


def test_a_forced_turn_can_still_be_won_by_its_last_call() -> None:
    environment = started()
    solution = gold("multi_turn_base_0")[0]
    for _ in range(5):
        environment.step(LS)
    assert environment.step(solution).info["code"] == 1


def test_a_call_where_something_is_missing_ends_the_turn_and_is_not_executed() -> None:
    environment = started("multi_turn_miss_func_50")
    seen = environment.step(StepRequest(tool_calls=[ToolCall(id="c1", name="setHeadlights", arguments={"mode": "on"})]))
    assert seen.info["code"] == 0
    assert texts_of(seen) == [("tool", "Not executed."), ("user", WARNING + REVEAL)]
    assert seen.tools is not None and "lockDoors" in {tool["function"]["name"] for tool in seen.tools}


def test_a_missing_function_is_hidden_until_it_is_revealed() -> None:
    environment = BfclEnvironment()
    first = environment.reset({"id": "multi_turn_miss_func_0"}, 0, "e")
    assert "sort" not in {tool["function"]["name"] for tool in first.tools or []}
    seen = [environment.step(step) for step in gold("multi_turn_miss_func_0")]
    revealing = [observation for observation in seen if observation.tools is not None]
    assert len(revealing) == 1
    assert {tool["function"]["name"] for tool in revealing[0].tools or []} == {
        *documents("TwitterAPI"),
        *documents("GorillaFileSystem"),
    }
    assert texts_of(revealing[0]) == [("user", REVEAL)]


def test_ground_truth_is_executed_in_silent_turns_unless_upstream_is_wanted() -> None:
    """After a turn without a call, upstream compares later turns with a state that never was."""
    scores = {}
    for compat in (True, False):
        environment = started(compat=compat)
        environment.step(ANSWER)
        solution = gold("multi_turn_base_0")
        late = StepRequest(tool_calls=solution[0].tool_calls + solution[2].tool_calls)
        environment.step(late)
        scores[compat] = environment.step(ANSWER).info["code"]
    assert scores == {True: 0, False: 1}


def test_giving_up_is_scored_over_all_turns_or_like_upstream_over_those_reached() -> None:
    for compat, reward, last_word in ((True, 1.0, StepRequest()), (False, 0.25, StepRequest(final=True))):
        environment = started(compat=compat)
        for step in gold("multi_turn_base_0")[:2]:
            environment.step(step)
        last = environment.step(last_word)
        assert (last.done, last.reward, last.info["truncated"]) == (True, reward, True)
        assert (last.reward_parts["progress_reached"], last.reward_parts["progress_all"]) == (1.0, 0.25)
        with pytest.raises(EnvironmentRefusal):
            environment.step(LS)


def test_refusing_every_turn_is_worth_nothing_unless_upstream_is_wanted() -> None:
    for compat, reward in ((True, 0.5), (False, 0.0)):
        environment = started("multi_turn_miss_func_50", compat=compat)
        environment.step(ANSWER)
        last = environment.step(ANSWER)
        assert (last.done, last.reward, last.reward_parts["progress_all"]) == (True, reward, 0.5)


def test_a_native_message_of_nothing_but_thought_is_no_answer() -> None:
    seen = started().step(StepRequest(message="<think>hm</think>  "))
    assert seen.info["code"] == -3
    assert texts_of(seen) == [("user", "Error: Response must contain either a tool call or an answer")]


def test_an_unreadable_native_call_leaves_the_others_unexecuted() -> None:
    environment = started()
    touch = ToolCall(id="c1", name="touch", arguments={"file_name": "new"})
    seen = environment.step(StepRequest(tool_calls=[touch], parse_error="not JSON"))
    assert seen.info["code"] == -3
    assert texts_of(seen) == [
        ("tool", "Not executed."),
        ("tool", "Error: the tool call could not be read: not JSON"),
    ]
    assert "new" not in environment.step(LS).messages[0].content


def test_text_mode_understands_calls_that_a_dialect_took_out_of_the_text() -> None:
    environment = started(speech="text")
    call = ToolCall(id="c1", name="ls")
    assert environment.step(StepRequest(message="<think>a</think>", tool_calls=[call])).info["code"] == -1
    assert texts_of(environment.step(StepRequest(message="x", tool_calls=[call])))[0][1].startswith(
        "Error: Missing <think>"
    )
    broken = environment.step(StepRequest(message="<think>a</think>", parse_error="oops"))
    assert texts_of(broken) == [("user", "Error: Invalid JSON inside <tool_call>: oops")]


def test_server_defaults_give_way_to_the_row() -> None:
    environment = BfclEnvironment(Defaults(speech="text", errors="augmented", compat=True))
    first = environment.reset({"id": "multi_turn_base_0"}, 0, "e")
    assert first.tools == [] and "<think>" in first.messages[0].content
    assert environment.reset({"id": "multi_turn_base_0", "speech": "native"}, 0, "e").tools


def test_an_empty_task_is_drawn_by_seed() -> None:
    environment = BfclEnvironment()
    drawn = [environment.reset({}, seed, "e").info["id"] for seed in range(40)]
    assert drawn == [environment.reset({}, seed, "e").info["id"] for seed in range(40)]
    assert len(set(drawn)) > 30
    for split in SPLITS:
        assert environment.reset({"split": split}, 3, "e").info["id"].startswith(f"multi_turn_{split}")
    assert len(entries()) == 800
