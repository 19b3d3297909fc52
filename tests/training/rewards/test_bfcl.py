"""BFCL: the golden episodes of the published reward code, and what a transcript alone shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.turns import reward_parts
from envs.wire import Message, ToolCall
from training.config import RewardComponent
from training.errors import RewardFault
from training.rewards.base import Episode
from training.rewards.bfcl import codes_of, from_codes
from training.rewards.scoring import score_episode

from .episodes import episode, says, score, tool, user

NAMES = ("bfcl_format", "bfcl_tool_calls", "bfcl_stage_1")


@pytest.fixture(scope="module")
def golden(seed_data: Path) -> list[dict[str, Any]]:
    path = seed_data / "seed1_envtuning_bfcl" / "golden_interaction_transcripts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def _episode(record: dict[str, Any], *, recorded: bool) -> Episode:
    messages = [user("q")]
    for step in record["steps"]:
        messages.append(says(step["assistant"]))
        if not step["terminate"]:
            messages.append(user(step["user"]))
    row = {"ground_truth": record["ground_truth"]}
    return Episode(messages, 1, row | ({"user_turn_rewards": record["user_turn_rewards"]} if recorded else {}))


def _values(played: Episode, *names: str) -> dict[str, float]:
    return score_episode(played, [RewardComponent(name=name, weight=1) for name in names]).parts


def test_golden_episodes_have_both_published_rewards(golden: list[dict[str, Any]]) -> None:
    for record in golden:
        values = _values(_episode(record, recorded=True), *NAMES, "bfcl_progress_reached", "bfcl_progress_all")
        stage_1, stage_3 = record["format_reward"], record["bfcl_reward"]
        assert values["bfcl_stage_1"] == pytest.approx(stage_1["score"], abs=1e-12)
        assert values["bfcl_format"] == pytest.approx(stage_1["format_reward"], abs=1e-12)
        assert values["bfcl_tool_calls"] == pytest.approx(stage_1["tool_call_reward"], abs=1e-12)
        assert values["bfcl_progress_reached"] == pytest.approx(stage_3["score"], abs=1e-12)
        assert values["bfcl_progress_all"] <= values["bfcl_progress_reached"] + 1e-12
    assert len(golden) == 28 and {record["policy"] for record in golden} >= {
        "perfect",
        "loops",
        "answer_only",
        "no_think",
    }


def test_transcripts_alone_give_the_same_stage_1_reward(golden: list[dict[str, Any]]) -> None:
    """The turn limit of each golden episode forced some turns on; their codes are unknown, and count as rounds."""
    for record in golden:
        played = _episode(record, recorded=False)
        values = _values(played, *NAMES)
        assert values["bfcl_stage_1"] == pytest.approx(record["format_reward"]["score"], abs=1e-12), record["policy"]
        assert values["bfcl_format"] == pytest.approx(record["format_reward"]["format_reward"], abs=1e-12)
        assert [code for code in codes_of(played) if code is not None] == [
            code for code in record["user_turn_rewards"] if code < 0
        ]
        with pytest.raises(RewardFault, match="has no value for this episode"):
            _values(played, "bfcl_progress_reached")


def test_looping_ls_has_the_full_stage_1_reward(golden: list[dict[str, Any]]) -> None:
    loops = [record for record in golden if record["policy"] == "loops"]
    assert loops and all(_values(_episode(item, recorded=False), "bfcl_stage_1")["bfcl_stage_1"] == 2 for item in loops)
    assert all(_values(_episode(item, recorded=True), "bfcl_progress_all")["bfcl_progress_all"] < 0.5 for item in loops)


@pytest.mark.parametrize("codes", [[], [1], [-1, 1], [-3, -2, 0], [-1, -2, -1, 1, -3, 0, 1], [0, 0], [-3]])
@pytest.mark.parametrize("turns", [1, 3, 4])
def test_codes_give_what_the_environment_gives(codes: list[int], turns: int) -> None:
    here, there = from_codes(codes, turns), reward_parts(codes, turns)
    assert {name: there[name] for name in here} == here
    assert set(there) - set(here) == (set() if codes else {"progress_reached", "progress_all", "task_success"})


def test_the_environment_is_the_truth() -> None:
    played = episode(
        "q", says("a"), user("Error: x"), says("b"), env_parts={"format_reward": 0.75, "task_success": 1.0}
    )
    assert score("bfcl_format", played) == 0.75
    assert score("bfcl_task_success", played) == 1.0
    assert score("bfcl_tool_calls", played) == 0.0


def _native(*answers: Message, text: str = "") -> Episode:
    calls = [ToolCall(id="0", name="ls"), ToolCall(id="1", name="cd")]
    return episode("q", Message(role="assistant", content=text, tool_calls=calls), *answers, says("done"))


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ([tool("a", "0"), tool("b", "1")], -1),
        ([tool("a", "0"), tool("Error during execution: x", "1")], -2),
        (
            [tool("Not executed.", "0"), tool("Not executed.", "1"), tool("Error: the tool call could not be read: x")],
            -3,
        ),
        ([tool("Not executed.", "0"), tool("Not executed.", "1"), user("next")], None),
        ([tool("The turn is over: at most 5 attempts a turn are answered.", "0"), user("next")], None),
    ],
)
def test_codes_of_native_calls(answers: list[Message], code: int | None) -> None:
    assert codes_of(_native(*answers)) == [code, None]


def test_unreadable_native_turns() -> None:
    played = episode("q", says(""), user("Error: Response must contain either a tool call or an answer"), says("x"))
    assert codes_of(played) == [-3, None]
    assert codes_of(episode("q", says("{"), tool("Error: the tool call could not be read: x"), says("x"))) == [-3, None]


def test_published_rollouts_agree_with_their_own_scores(seed_data: Path) -> None:
    """verl's dumps hold one text; its figures follow from the counts that are next to them."""
    files = sorted((seed_data / "seed1_envtuning_bfcl" / "verl_rollout_dump").glob("*.jsonl"))
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert rows
    for row in rows:
        parts = {key: row[key] for key in ("format_reward", "tool_call_reward", "is_tool_call")}
        played = episode("q", says(row["output"]), env_parts=parts)
        expected = row["is_tool_call"] * (row["format_reward"] + row["tool_call_reward"])
        assert score("bfcl_stage_1", played) == pytest.approx(expected)
