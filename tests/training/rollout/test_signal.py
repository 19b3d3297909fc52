"""Which groups are learned from, and that evaluations leave none out."""

from __future__ import annotations

import pytest

from training.config import Signal
from training.rewards.combining import group_statistics
from training.rollout.figures import teaches, without_signal
from training.rollout.trajectory import Rollout, Trajectory


def group(rewards: list[float | None], successes: list[float | None]) -> list[Rollout]:
    """Rollouts with these rewards and verdicts of their environment; without a reward they are excluded."""
    found = []
    for number, (reward, success) in enumerate(zip(rewards, successes, strict=True)):
        trajectory = Trajectory([1], [2], [1], [-1.0])
        trajectory.env_parts = {} if success is None else {"task_success": success}
        found.append(Rollout(str(number), 0, trajectory, None if reward is None else {"a": reward}, reward))
    return found


@pytest.mark.parametrize(
    ("rewards", "successes", "answers"),
    [
        ([1.0, 0.2, 0.3], [1.0, 0.0, 0.0], (True, True, True)),
        # All failed, and a shaping term differs: the advantages are of no outcome.
        ([0.1, 0.2, 0.3], [0.0, 0.0, 0.0], (True, True, False)),
        ([1.1, 1.2, 1.3], [1.0, 1.0, 1.0], (True, True, False)),
        ([0.5, 0.5, 0.5], [1.0, 0.0, 0.0], (True, False, True)),
        ([0.5, 0.5, 0.5], [None, None, None], (True, False, False)),
        ([0.5, 0.6, 0.5], [None, None, None], (True, True, True)),
        # The only success failed outside the policy: it is no part of its group.
        ([None, 0.2, 0.3], [1.0, 0.0, 0.0], (True, True, False)),
    ],
)
def test_what_a_group_teaches(
    rewards: list[float | None], successes: list[float | None], answers: tuple[bool, ...]
) -> None:
    signals: tuple[Signal, ...] = ("all", "reward", "outcome")
    members, statistics = group(rewards, successes), group_statistics(rewards)
    assert tuple(teaches(members, statistics, signal) for signal in signals) == answers


def test_advantages_of_a_group_left_out_are_0_and_its_figures_stay() -> None:
    found = without_signal(group_statistics([0.1, None, 0.3]))
    assert (found.advantages, found.teaches, found.zero_variance) == ([0.0, None, 0.0], False, False)
    assert found.mean == pytest.approx(0.2)
