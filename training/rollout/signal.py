"""Which groups are learned from.

A group whose rewards are equal has no advantage, and yet the KL and entropy terms of its tokens move the weights. One
whose rollouts all failed may differ in shaping terms only, and then teaches to fail more nicely. ``rewards.signal``
says which groups count; the others' rollouts are masked, as truncated ones are.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.config import Signal
from training.rewards.combining import ZERO_VARIANCE_TOLERANCE, GroupStatistics
from training.rollout.figures import SUCCESS_PART
from training.rollout.trajectory import Rollout


def teaches(members: Sequence[Rollout], statistics: GroupStatistics, signal: Signal) -> bool:
    """Whether a group is learned from. Where the environment tells no outcome, its rewards have to differ."""
    if signal == "all":
        return True
    outcomes = outcomes_of(members)
    if signal == "outcome" and outcomes:
        return max(outcomes) - min(outcomes) > ZERO_VARIANCE_TOLERANCE
    return not statistics.zero_variance


def outcomes_of(members: Sequence[Rollout]) -> list[float]:
    """What the environment says about the group's rollouts, excluded ones left out; none where it tells no outcome."""
    kept = [rollout.trajectory.env_parts for rollout in members if rollout.parts is not None]
    return [parts[SUCCESS_PART] for parts in kept if SUCCESS_PART in parts]


def without_signal(statistics: GroupStatistics) -> GroupStatistics:
    """The statistics of a group that is not learned from: its advantages are 0."""
    zeros = [None if advantage is None else 0.0 for advantage in statistics.advantages]
    return statistics._replace(advantages=zeros, teaches=False)
