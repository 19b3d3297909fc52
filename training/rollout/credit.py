"""Credit to turns on the way from a finished group to the trainer, and its figures. The arithmetic is
``training/rewards/turns.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training.config import JobConfig, RewardComponent
from training.config.learning import PpoConfig
from training.rewards.combining import GroupStatistics, mean_of
from training.rewards.turns import gains_of, turn_credit
from training.rollout.trajectory import Rollout

TURN_SHARE, SILENT_SHARE = "credit/turn_share", "credit/silent_share"
LEAST_SPREAD = 1e-12
"""Variance of advantages below which they are equal, and have no share."""


def give_credit(
    members: Sequence[Rollout],
    result: GroupStatistics,
    config: JobConfig,
    components: Sequence[RewardComponent],
    step: int,
    batch_std: float | None,
) -> None:
    """Fill in what the turns of a group's rollouts gained, and their credit where groups are compared. ``components``
    are the job's, of all its parts."""
    chosen = config.gradient
    if chosen.credit == "rollout" or config.method.learns_from != "rollouts" or not result.teaches:
        return
    for rollout in members:
        if rollout.parts is not None:
            played = rollout.trajectory
            rollout.gains = gains_of(played.turn_rewards, played.turns, components, rollout.parts, step)
    if isinstance(chosen, PpoConfig):
        return
    found = turn_credit(
        [rollout.reward for rollout in members],
        result.advantages,
        [rollout.gains for rollout in members],
        weight=chosen.credit_weight,
        discount=chosen.credit_discount,
        scale=chosen.scale_rewards,
        batch_std=batch_std,
    )
    for rollout, credit in zip(members, found, strict=True):
        rollout.credit = credit


def turn_advantages(members: Sequence[Rollout], result: GroupStatistics) -> list[list[float] | None] | None:
    """The advantages of the turns of a group's rollouts; ``None`` where turns have no credit of their own, as a whole
    or of a rollout."""
    pairs = zip(members, result.advantages, strict=True)
    found = [
        None if rollout.credit is None or advantage is None else rollout.credit.of(advantage)
        for rollout, advantage in pairs
    ]
    return found if any(row is not None for row in found) else None


def token_credit(rollout: Rollout) -> dict[str, Any] | None:
    """What the trainer needs to lay a rollout's credit over its tokens: where turns begin and end among them, and
    either what is taken off each (``less``), or the ``gains`` of each but the last."""
    played = rollout.trajectory
    ends = [*played.turn_starts[1:], len(played.completion_ids)]
    turns = {"starts": played.turn_starts, "ends": ends}
    if rollout.credit is not None:
        return turns | {"less": rollout.credit.less}
    return turns | {"gains": rollout.gains} if rollout.gains else None


def credit_figures(rollouts: Sequence[Rollout], groups: Sequence[GroupStatistics]) -> dict[str, float]:
    """Of a step's rollouts that are learned from: the share of the variance of turns' advantages that lies within
    rollouts, and the share of rollouts with several turns whose environment paid nothing before the end."""
    size = len(rollouts) // len(groups)
    learned = [
        (rollout, groups[place // size].advantages[place % size])
        for place, rollout in enumerate(rollouts)
        if rollout.parts is not None and groups[place // size].teaches
    ]
    figures: dict[str, float] = {}
    several = [rollout.gains is None for rollout, _advantage in learned if rollout.trajectory.turns > 1]
    if several:
        figures[SILENT_SHARE] = sum(several) / len(several)
    rows = [
        [advantage] * rollout.trajectory.turns if rollout.credit is None else rollout.credit.of(advantage)
        for rollout, advantage in learned
        if advantage is not None
    ]
    share = share_within([row for row in rows if row])
    return figures if share is None else figures | {TURN_SHARE: share}


def share_within(rows: Sequence[Sequence[float]]) -> float | None:
    """The share of the values' variance that lies within rows, 0 to 1; ``None`` where they do not vary."""
    values = [value for row in rows for value in row]
    if not values:
        return None
    mean = mean_of(values)
    whole = sum((value - mean) ** 2 for value in values)
    differing = [(row, mean_of(row)) for row in rows if max(row) > min(row)]  # of equal ones rounding would be left
    within = sum((value - of_row) ** 2 for row, of_row in differing for value in row)
    return None if whole / len(values) < LEAST_SPREAD else within / whole
