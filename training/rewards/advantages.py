"""Group statistics as TRL 1.16 computes them (``grpo_trainer.py``, ``sum_then_normalize``), for the journal.

The group baseline of GRPO: Shao et al. 2024, *DeepSeekMath*. Written in plain Python so that recorded rollouts can be
re-weighed without torch. Rewards of a run are bounded (``envs.wire.MAX_REWARD``); recorded ones of other trainers may
be any float, so nothing here raises: sums and squares of huge ones are taken after scaling, and what is not finite
stays so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from training.config import AdvantageScale

SCALE_EPSILON = 1e-4
ZERO_VARIANCE_TOLERANCE = 1e-6
_LARGE = 1e100
"""Beyond this, squares and sums are taken of scaled values."""


class GroupStatistics(NamedTuple):
    """Advantages by index (``None`` for excluded rollouts), mean and standard deviation of the rewards, and whether the
    group is learned from."""

    advantages: list[float | None]
    mean: float | None
    std: float | None
    zero_variance: bool
    teaches: bool = True


def mean_of(values: Sequence[float]) -> float:
    """Mean of at least one value; NaN where one of them is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    scale = _scale(values)
    return math.fsum(value / scale for value in values) / len(values) * scale


def reward_mean(rewards: Sequence[float | None]) -> float | None:
    """Mean of the rewards that exist."""
    known = [reward for reward in rewards if reward is not None]
    return mean_of(known) if known else None


def reward_std(rewards: Sequence[float | None]) -> float | None:
    """Standard deviation with Bessel's correction, or ``None`` with fewer than two rewards."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return None
    mean, scale = mean_of(known), _scale(known)
    if math.isnan(mean):
        return math.nan
    squares = math.fsum((reward / scale - mean / scale) ** 2 for reward in known)
    return math.sqrt(squares / (len(known) - 1)) * scale


def _scale(values: Sequence[float]) -> float:
    largest = max(map(abs, values))
    return largest if math.isfinite(largest) and largest > _LARGE else 1.0


def group_statistics(
    rewards: Sequence[float | None],
    *,
    scale: AdvantageScale = "group",
    batch_std: float | None = None,
) -> GroupStatistics:
    """Advantages of one group: ``(r - mean) / (std + 1e-4)``, where ``std`` is the group's, the batch's, or absent.

    ``leave_one_out`` is RLOO's: the reward less the mean of the others', which is ``n / (n - 1)`` times ``r - mean``.
    With ``values``, PPO's, rollouts have none: tokens have, by what was expected of them. Equal rewards teach then too.
    With a single reward left in the group its standard deviation is undefined and TRL's advantage becomes 0.
    ``zero_variance`` is our own figure: TRL's compares float32 noise with 0 and so misses equal groups.
    """
    mean, std = reward_mean(rewards), reward_std(rewards)
    known = [reward for reward in rewards if reward is not None]
    divisor = {"group": std, "batch": batch_std}.get(scale)
    of_others = len(known) / (len(known) - 1) if len(known) > 1 else 0.0
    advantages: list[float | None] = []
    for reward in rewards:
        if reward is None or mean is None or scale == "values":
            advantages.append(None)
        elif scale == "none":
            advantages.append(reward - mean)
        elif scale == "leave_one_out":
            advantages.append((reward - mean) * of_others)
        else:
            advantages.append(0.0 if divisor is None else (reward - mean) / (divisor + SCALE_EPSILON))
    flat = scale != "values" and (not known or max(known) - min(known) <= ZERO_VARIANCE_TOLERANCE)
    return GroupStatistics(advantages, mean, std, flat)
