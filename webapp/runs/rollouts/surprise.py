"""How rare a rollout is in its group: the rarest are shown first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

NEAR = 0.5  # rewards at most this many standard deviations apart are alike


class Played(NamedTuple):
    """A rollout that counts in its group."""

    outcome: str
    reward: float


def surprises(group: Sequence[Played | None]) -> list[float | None]:
    """Bits of surprise: the negative binary logarithm of the share of the group that is like the rollout.

    Alike are rollouts of the same outcome whose rewards lie at most ``NEAR`` standard deviations of the group's rewards
    apart; each is like itself. So the only one of eight that solved its task has 3 bits, and all have 0 where all have
    the same result. ``None`` is for a rollout without a reward: it has no surprise and is not counted.
    """
    known = [item for item in group if item is not None and math.isfinite(item.reward)]
    rewards = [item.reward for item in known]
    near = NEAR * statistics.pstdev(rewards) if rewards else 0.0
    found: list[float | None] = []
    for item in group:
        if item is None or not math.isfinite(item.reward):
            found.append(None)
            continue
        alike = sum(each.outcome == item.outcome and abs(each.reward - item.reward) <= near for each in known)
        found.append(math.log2(len(known) / alike))
    return found
