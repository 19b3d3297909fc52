from __future__ import annotations

from typing import Any

import pytest

from envs.base import EnvironmentRefusal
from envs.tools.server import MAX_TURNS, ToolsEnvironment, holds
from envs.wire import Observation, StepRequest, ToolCall

ROW = {
    "conversation": [{"role": "user", "content": "What is 25 * 37 + 128?"}],
    "answer": {"contains": ["1053"], "tools": ["calculator"]},
}
CALCULATOR = ToolCall(id="c1", name="calculator", arguments={"expression": "25 * 37 + 128"})


def started(**over: Any) -> ToolsEnvironment:
    environment = ToolsEnvironment()
    environment.reset({**ROW, **over}, 0, "e")
    return environment


def finish(environment: ToolsEnvironment, text: str) -> Observation:
    environment.step(StepRequest(tool_calls=[CALCULATOR]))
    return environment.step(StepRequest(message=text))


def test_gold_episode_scores_one_and_reports_the_part() -> None:
    last = finish(started(), "It is 1053.")
    assert (last.done, last.reward, last.reward_parts) == (True, 1.0, {"task_success": 1.0})
    assert last.info == {"turn": 2, "tool_errors": 0}


def test_a_row_of_a_checked_dataset_is_played_and_not_a_drawn_task() -> None:
    """Checked rows say ``messages``: once they were taken for rows without a task, and another one was drawn."""
    row = {"messages": ROW["conversation"], "answer": ROW["answer"]}
    observation = ToolsEnvironment().reset(row, 0, "e")
    assert [message.content for message in observation.messages] == ["What is 25 * 37 + 128?"]


@pytest.mark.parametrize(
    "text", ["1,053", "1053.0", "It is １０５３。", "等于1053。", "**1053**", "=1.053e3", "25*37=925, 1053"]
)
def test_a_number_counts_by_value(text: str) -> None:
    assert finish(started(), text).reward == 1.0


@pytest.mark.parametrize("text", ["10530", "-1053", "0.1053", "1053.5", "1 053", "11053", "105 3", "", "one thousand"])
def test_another_number_does_not_count(text: str) -> None:
    assert finish(started(), text).reward == 0.0


def test_listing_every_number_does_not_score() -> None:
    assert finish(started(), " ".join(str(number) for number in range(10_000))).reward == 0.0
    assert finish(started(), " ".join(str(number) for number in range(1020, 1060))).reward == 0.0


def test_numbers_echoed_by_a_tool_do_not_excuse_listing() -> None:
    environment = started(answer={"contains": ["20"], "tools": ["weather_query"]})
    listing = " ".join(str(number) for number in range(10, 30))
    environment.step(StepRequest(tool_calls=[ToolCall(id="1", name="weather_query", arguments={"city": listing})]))
    assert environment.step(StepRequest(message=listing)).reward == 0.0


def test_right_answer_without_the_tool_is_not_success() -> None:
    assert started().step(StepRequest(message="It is 1053.")).reward == 0.0


def test_right_answer_after_a_failed_call_is_not_success() -> None:
    environment = started()
    failed = environment.step(
        StepRequest(tool_calls=[ToolCall(id="1", name="calculator", arguments={"expression": "1/0"})])
    )
    assert failed.messages[0].content == "Error: cannot calculate: division by zero"
    assert environment.step(StepRequest(message="It is 1053.")).reward == 0.0


def test_row_without_answer_has_no_reward() -> None:
    last = finish(started(answer=None), "whatever")
    assert (last.done, last.reward, last.reward_parts) == (True, None, {})


def test_clock_text_needs_its_whole_digits() -> None:
    assert holds("It is 14:05:09 now", "14:05")
    assert holds("现在是14:05。", "14:05")
    assert not holds("114:05", "14:05")
    assert not holds("14:056", "14:05")


def test_each_call_gets_its_message_and_the_fourth_an_error() -> None:
    observation = started().step(
        StepRequest(tool_calls=[CALCULATOR.model_copy(update={"id": f"c{n}"}) for n in range(5)])
    )
    assert [message.tool_call_id for message in observation.messages] == ["c0", "c1", "c2", "c3", "c4"]
    assert [message.content for message in observation.messages[:3]] == ["1053"] * 3
    assert all(message.content.startswith("Error: at most 3") for message in observation.messages[3:])
    assert not observation.done


def test_parse_error_is_answered_and_the_episode_continues() -> None:
    environment = started(language="zh")
    observation = environment.step(StepRequest(message="<tool_call>{", parse_error="JSON 不完整"))
    assert not observation.done
    assert [message.content for message in observation.messages] == ["错误: 无法读取工具调用: JSON 不完整"]
    assert finish(environment, "1053").reward == 1.0


def test_parse_error_next_to_a_good_call_answers_both() -> None:
    observation = started().step(StepRequest(tool_calls=[CALCULATOR], parse_error="the second call is not JSON"))
    assert [message.content for message in observation.messages] == [
        "1053",
        "Error: the tool call could not be read: the second call is not JSON",
    ]


def test_the_last_turn_truncates_the_episode() -> None:
    environment = started()
    observations = [environment.step(StepRequest(tool_calls=[CALCULATOR])) for _ in range(MAX_TURNS)]
    assert [observation.done for observation in observations] == [False] * (MAX_TURNS - 1) + [True]
    assert observations[-1].info == {"turn": MAX_TURNS, "tool_errors": 0, "truncated": True}
    assert observations[-1].reward == 0.0


def test_language_follows_the_row_or_the_question() -> None:
    def language(**row: Any) -> str:
        return ToolsEnvironment().reset({**ROW, **row}, 0, "e").info["language"]

    assert language() == "en"
    assert language(conversation=[{"role": "user", "content": "北京天气"}]) == "zh"
    assert language(language="zh") == "zh"
    assert language(language="en", conversation=[{"role": "user", "content": "北京天气"}]) == "en"


def test_old_role_of_tool_messages_is_understood() -> None:
    conversation = [{"role": "user", "content": "x"}, {"role": "tool_result", "content": "1"}]
    observation = ToolsEnvironment().reset({"conversation": conversation}, 0, "e")
    assert [message.role for message in observation.messages] == ["user", "tool"]


def test_missing_conversation_draws_a_task_by_seed() -> None:
    def question(seed: int, **row: Any) -> str:
        return ToolsEnvironment().reset(row, seed, "e").messages[0].content

    assert question(5) == question(5)
    assert len({question(seed) for seed in range(20)}) > 10
    assert not question(5, language="zh").isascii()


@pytest.mark.parametrize(
    "row",
    [
        {"conversation": "hello"},
        {"conversation": [{"role": "robot", "content": "x"}]},
        {"conversation": [{"role": "user", "content": 5}]},
        {"conversation": [5]},
        {"conversation": [{"role": "user", "content": "x"}] * 201},
        {"conversation": [{"role": "user", "content": "x" * 70_000}]},
        {**ROW, "answer": "1053"},
        {**ROW, "answer": {"contains": [None]}},
        {**ROW, "answer": {"contains": [], "tools": ["rm"]}},
        {**ROW, "language": "fr"},
        {**ROW, "clock": "yesterday"},
        {**ROW, "clock": "0001-01-01T00:00:00"},
        {**ROW, "clock": "9999-12-31T23:59:59+00:00"},
        {"difficulty": "impossible"},
    ],
    ids=range(14),
)
def test_unplayable_row_is_refused_with_a_sentence(row: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentRefusal, match="cannot be played"):
        ToolsEnvironment().reset(row, 0, "e")


def test_clock_of_the_row_outranks_the_seed_and_is_utc_by_default() -> None:
    environment = started(clock="2025-03-04T05:06:07")
    observation = environment.step(StepRequest(tool_calls=[ToolCall(id="1", name="get_current_time", arguments={})]))
    assert observation.messages[0].content == "2025-03-04 05:06:07 UTC"
