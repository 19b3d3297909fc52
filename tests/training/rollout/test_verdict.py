"""The environment's verdict on an episode whose budget is spent is asked for once, and only where it is missing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from envs.wire import Observation, StepRequest
from training.rollout.trajectory import Player, Trajectory


class Session:
    """An environment that would judge again, and otherwise, if it were asked again."""

    def __init__(self) -> None:
        self.asked: list[StepRequest] = []

    async def step(self, request: StepRequest) -> Observation:
        self.asked.append(request)
        return Observation(reward=0.25, done=True)


@pytest.mark.parametrize(("known", "asked", "reward"), [(None, 1, 0.25), (0.0, 0, 0.0), (1.0, 0, 1.0)])
async def test_a_verdict_that_is_known_is_not_asked_for_again(known: float | None, asked: int, reward: float) -> None:
    """It could ask although the verdict was known, a 0.0 included, and nothing noticed."""
    trajectory, session = Trajectory(env_reward=known), Session()
    await Player._give_up(cast(Any, None), trajectory, cast(Any, session))
    assert len(session.asked) == asked and all(request.final for request in session.asked)
    assert trajectory.env_reward == reward
