"""The learning signal of a group: whether its rewards differ, and whether the outcomes of the task do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from training.rewards.splitting import is_flat, is_phantom
from training.rewards.verdict import verdict_of
from webapp.runs.rollouts.models import Rollout, RolloutStatus


class Signal(NamedTuple):
    """``rewards`` and ``verdicts`` by rollout, ``None`` where there is none. ``flat``: all rollouts are equally
    good; ``phantom``: shaping alone tells them apart."""

    rewards: list[float | None]
    verdicts: list[float | None]
    flat: bool
    phantom: bool


def signal_of(rollouts: Sequence[Rollout], functions: Mapping[str, str]) -> Signal:
    """The signal of one group, which must be whole; ``functions`` are those of the run's components. One in which a
    rollout is still in flight has none yet."""
    rewards = [None if item.status == RolloutStatus.EXCLUDED else item.reward for item in rollouts]
    verdicts = [_verdict_value(item, functions) for item in rollouts]
    known = [reward for reward in rewards if reward is not None]
    over = all(item.status != RolloutStatus.RUNNING for item in rollouts)
    return Signal(rewards, verdicts, over and len(known) > 1 and is_flat(known), over and is_phantom(rewards, verdicts))


def _verdict_value(rollout: Rollout, functions: Mapping[str, str]) -> float | None:
    found = verdict_of(rollout.env_parts, rollout.parts, functions)
    return found.value if found else None
