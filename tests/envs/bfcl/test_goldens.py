"""Upstream's own transcripts: every message, code and reward of 28 recorded episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.server import BfclEnvironment
from envs.wire import Message, StepRequest
from tests.envs.client import ROOT

GOLDENS = ROOT.parent / "shared" / "data" / "seed1_envtuning_bfcl" / "golden_interaction_transcripts.jsonl"


def goldens() -> list[Any]:
    if not GOLDENS.is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{GOLDENS} is not on this machine"))]
    rows = [json.loads(line) for line in GOLDENS.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=f"{row['id']}-{row['policy']}") for row in rows]


@pytest.mark.parametrize("compat", [True, False], ids=["compat", "right"])
@pytest.mark.parametrize("golden", goldens())
def test_golden_episode_repeats_word_for_word(golden: dict[str, Any], compat: bool) -> None:
    environment = BfclEnvironment()
    environment.reset({"id": golden["id"], "speech": "text", "compat": compat}, 0, "golden")
    for number, step in enumerate(golden["steps"]):
        seen = environment.step(StepRequest(message=step["assistant"]))
        assert _text_of(seen.messages) == step["user"], number
        assert (seen.info["code"], seen.done) == (step["score"], step["terminate"]), number
    assert seen.info["codes"] == golden["user_turn_rewards"]
    _check_rewards(seen.reward_parts, golden)
    if compat:
        assert seen.reward == golden["bfcl_reward"]["score"]


def _text_of(messages: list[Message]) -> str:
    assert all(message.role == "user" for message in messages)
    return "".join(message.content for message in messages)


def _check_rewards(parts: dict[str, float], golden: dict[str, Any]) -> None:
    progress, stage_one = golden["bfcl_reward"], golden["format_reward"]
    assert parts["progress_reached"] == progress["score"] == stage_one["progress"]
    for name in ("format_reward", "tool_call_reward", "is_tool_call"):
        assert parts[name] == progress[name] == stage_one[name]
    assert parts["is_tool_call"] * (parts["format_reward"] + parts["tool_call_reward"]) == stage_one["score"]


def test_the_goldens_cover_every_split_and_policy() -> None:
    if not GOLDENS.is_file():
        pytest.skip(f"{GOLDENS} is not on this machine")
    rows = [json.loads(line) for line in Path(GOLDENS).read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 28
    assert {row["policy"] for row in rows} == {
        "perfect",
        "parallel",
        "answer_only",
        "no_think",
        "loops",
        "mixed_errors",
    }
