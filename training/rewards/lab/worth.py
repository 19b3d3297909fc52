"""What a reward spec pays for solving the task, and what for all else: from its bounds, before anything is played."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from training.config import RewardComponent
from training.rewards.combining import factor
from training.rewards.registry import COMPONENTS
from training.rewards.verdict import OUTCOMES

MAY_JUDGE = ("regex_match", "json_schema_match")
"""Components that judge the task itself, or only its form: that depends on their parameters."""


class Worth(NamedTuple):
    """``outcome``: what the whole range of the components that judge the task is worth; ``others``: how far all other
    terms together may lie apart, infinite where nothing bounds one. ``unknown``: some component may judge the task in
    its own way (custom code, judges, models), so nothing is said."""

    outcome: float
    others: float
    unknown: bool

    @property
    def unpaid(self) -> bool:
        """Whether nothing pays for solving the task."""
        return not self.unknown and self.outcome <= 0

    @property
    def outranked(self) -> bool:
        """Whether an unsolved task can earn more than a solved one."""
        return not self.unknown and 0 < self.outcome < self.others < math.inf


def worth_of(components: Sequence[RewardComponent]) -> Worth:
    """What these components pay for. What counts only where the task is solved is paid for solving it."""
    judges = {item.name for item in components if item.registered in OUTCOMES}
    outcome = others = 0.0
    unknown = False
    for item in components:
        if not item.weight:
            continue
        low, high = bounds_of(item)
        spread = item.weight * (high - low)
        if item.name in judges:
            outcome += spread
        elif item.gate is not None and item.gate.component in judges:
            outcome += min(spread, 0.0)
        elif _may_judge(item):
            unknown = True
        else:
            others += abs(spread)
    return Worth(outcome, others, unknown)


def _may_judge(item: RewardComponent) -> bool:
    known = COMPONENTS.get(item.registered)
    return known is None or known.outside or known.name in MAY_JUDGE


def bounds_of(item: RewardComponent) -> tuple[float, float]:
    """The lowest and highest value of a component, by its bounds under default parameters."""
    known = COMPONENTS.get(item.registered)
    low, high = (known.low, known.high) if known else (-math.inf, math.inf)
    if item.clip is not None:
        low, high = (min(max(end, item.clip[0]), item.clip[1]) for end in (low, high))
    if item.scale is not None:
        low, high = ((end - item.scale[0]) / (item.scale[1] - item.scale[0]) for end in (low, high))
    if item.schedule is not None:
        factors = [item.schedule.first, factor(item.schedule, item.schedule.end)]
        ends = [end * by if by else 0.0 for end in (low, high) for by in factors]
        low, high = min(ends), max(ends)
    return low, high
