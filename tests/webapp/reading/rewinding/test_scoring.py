"""A branch's reward: what is missing is missing, and takes no other component along."""

from __future__ import annotations

import pytest

from envs.wire import Message
from training.config import RewardComponent
from training.rewards.base import Episode
from webapp.reading.rewinding.scene import scored
from webapp.rewards.scorers import Places, scorers

EPISODE = Episode(
    messages=[Message(role="user", content="What is 2 + 2?"), Message(role="assistant", content="It is 4.")],
    prompt_length=1,
    row={},
    env_reward=None,
    env_parts={},
    parse_errors=0,
    truncated=False,
)


def spec(*items: dict[str, object]) -> list[RewardComponent]:
    return [RewardComponent.model_validate({"weight": 0.5, **item}) for item in items]


def test_a_part_that_cannot_be_computed_is_missing_with_its_reason_and_so_is_the_reward() -> None:
    found = scored(EPISODE, spec({"name": "env_success"}, {"name": "tool_necessity"}), 1, 1)
    assert found.parts["env_success"] is None and found.parts["tool_necessity"] is not None
    assert set(found.missing) == {"env_success"} and found.missing["env_success"]
    assert found.reward is None


def test_a_closed_gate_changes_the_reward_and_not_the_value() -> None:
    gate = {"component": "parse_ok", "above": 2.0}
    alone = scored(EPISODE, spec({"name": "tool_necessity"}), 1, 1)
    gated = scored(
        EPISODE, spec({"name": "tool_necessity", "gate": gate}, {"name": "parse_ok", "function": "coherence"}), 1, 1
    )
    assert gated.parts["tool_necessity"] == alone.parts["tool_necessity"]
    assert alone.reward == pytest.approx(0.5 * (alone.parts["tool_necessity"] or 0.0))
    assert gated.reward == pytest.approx(0.5 * (gated.parts["parse_ok"] or 0.0))


def test_a_person_who_has_too_much_scored_keeps_the_branch_without_its_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers, "_places", Places(jobs_per_person=0))
    found = scored(EPISODE, spec({"name": "tool_necessity"}), 1, 1)
    assert (found.parts, found.reward) == ({"tool_necessity": None}, None)
    assert "limit of scoring" in found.missing["tool_necessity"]
