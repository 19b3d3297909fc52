"""A reward has one bound, wherever it comes from; beyond it the rollout is excluded with a typed error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from envs.wire import Message, Observation
from tests.training.helpers import observation
from training.config import RewardComponent
from training.errors import EnvironmentProtocolError, RewardFault
from training.rewards.base import Component, Episode
from training.rewards.scoring import COMPONENTS, score_episode
from training.rollout.client import parse_answer
from training.rollout.session import require_number

EPISODE = Episode([Message(role="user", content="q"), Message(role="assistant", content="a")], 1)
TOO_LARGE = (1e200, -1e200, 1_000_001.0, 10**400)


@pytest.fixture
def giving(monkeypatch: pytest.MonkeyPatch) -> Any:
    def register(value: Any) -> list[RewardComponent]:
        component = Component("a_number", "A number", "A number.", lambda episode, params: value)
        monkeypatch.setitem(COMPONENTS, "a_number", component)
        return [RewardComponent(name="a_number", weight=100)]

    return register


@pytest.mark.parametrize("value", TOO_LARGE)
def test_a_component_beyond_the_bound_is_a_reward_fault(giving: Any, value: float) -> None:
    with pytest.raises(RewardFault, match="a_number"):
        score_episode(EPISODE, giving(value))


def test_a_weighed_sum_beyond_the_bound_is_a_reward_fault_and_one_within_it_is_not(giving: Any) -> None:
    with pytest.raises(RewardFault, match="weighted sum"):
        score_episode(EPISODE, giving(10_001.0))
    assert score_episode(EPISODE, giving(10_000.0)).total == 1e6


@pytest.mark.parametrize("value", TOO_LARGE)
def test_an_environment_beyond_the_bound_is_off_the_wire(value: float) -> None:
    with pytest.raises(EnvironmentProtocolError):
        require_number("reward", value)
    for frame in (observation(reward=value), observation(reward_parts={"a": value})):
        with pytest.raises(EnvironmentProtocolError):
            parse_answer(frame)
    with pytest.raises(ValidationError):
        Observation.model_validate_json(json.dumps({"reward_parts": {"a": value}}))
