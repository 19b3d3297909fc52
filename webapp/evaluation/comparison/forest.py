"""Forest plots: a row for each contestant, with a point and its 95% interval, on one axis for all.

Two plots: the success of each, from 0 to 100%, and how far the first of the answer is ahead of each other one on the
tasks of both. Intervals of two levels may overlap where their paired difference is certain, so the first plot alone
would seem to contradict verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from django.utils.translation import gettext as _

from training.evaluation import Interval, turned
from webapp.common.text import NOTHING, percent
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import FIGURE, Numbers
from webapp.evaluation.comparison.verdicts import one_decimal, signed

T = TypeVar("T")
EDGE = 5.0
"""Percent of the width that is left on each side, so that points and labels at the ends of an axis are whole."""
STEPS = (1, 2, 5, 10, 20, 25, 50)
"""Points between two labels of a difference: the first of these that needs at most ``MOST_STEPS`` of them."""
MOST_STEPS = 6


class Tick(NamedTuple):
    """A label of the axis, and its place across the plot, as a percentage."""

    at: str
    text: str


class Mark(NamedTuple):
    """The places of a point and of the ends of its interval; all three are the same where there is no interval."""

    at: str
    low: str
    high: str


class Row(NamedTuple, Generic[T]):
    """A contestant of a plot: its value and interval as texts, over how many tasks, and where they are drawn. No
    ``mark`` where it has no value."""

    contestant: T
    value: str
    ends: str
    tasks: int
    mark: Mark | None


class Forest(NamedTuple, Generic[T]):
    """A plot. ``of``: the one whose lead it shows, with ``zero``, the place of no difference; neither for levels."""

    rows: list[Row[T]]
    ticks: list[Tick]
    of: T | None = None
    zero: str = ""


class Axis(NamedTuple):
    """Values from ``low`` to ``high``, and how one and the two ends of an interval are written."""

    low: float
    high: float
    value: Callable[[float], str]
    ends: Callable[[float, float], str]

    def place(self, value: float) -> str:
        """Where a value lies across the plot. No language writes it with a comma: it is an attribute."""
        return f"{EDGE + (100 - 2 * EDGE) * (value - self.low) / (self.high - self.low):.2f}%"


def levels(contestants: Sequence[Contestant], numbers: Numbers) -> Forest[Contestant]:
    """The success of each, the best first, those without any last."""
    axis = Axis(0.0, 1.0, percent, lambda low, high: f"{percent(low)} – {percent(high)}")
    known = [(item, found.get(FIGURE, _NONE)) for item, found in zip(contestants, numbers.intervals, strict=True)]
    known.sort(key=lambda pair: math.inf if pair[1].value is None else -pair[1].value)
    ticks = [Tick(axis.place(part / 4), f"{25 * part}%") for part in range(5)]
    return Forest([_row(item, found, axis) for item, found in known], ticks)


_NONE = Interval(None, None, None, 0)


def leads(contestants: Sequence[Contestant], numbers: Numbers, first: int) -> Forest[Contestant] | None:
    """How far one is ahead of each other that played the same tasks, the closest first; ``None`` without another."""
    pairs = numbers.pairs.items()
    found = [(contestants[b], turned(pair).difference) for (a, b), pair in pairs if a == first]
    found += [(contestants[a], pair.difference) for (a, b), pair in pairs if b == first]
    if not found:
        return None
    found.sort(key=lambda pair: (pair[1].value or 0.0, pair[0].number))
    return differences(found, contestants[first])


def differences(found: Sequence[tuple[T, Interval]], of: T) -> Forest[T]:
    """How far each of these is from another one, on an axis that holds 0 and all intervals."""
    step, low, high = _scale([interval for _item, interval in found])
    axis = Axis(low / 100, high / 100, lambda value: signed(100 * value), _points)
    ticks = [
        Tick(axis.place(points / 100), f"{points:+d}".replace("-", "−") if points else "0")
        for points in range(low, high + 1, step)
    ]
    return Forest([_row(item, interval, axis) for item, interval in found], ticks, of, axis.place(0.0))


def _scale(intervals: Sequence[Interval]) -> tuple[int, int, int]:
    """The points between two labels, and the ends of an axis that holds 0 and all intervals."""
    ends = [100 * end for found in intervals for end in found[:3] if end is not None] + [0.0]
    for step in STEPS:
        low, high = math.floor(min(ends) / step), math.ceil(max(ends) / step)
        if high - low <= MOST_STEPS:
            break
    return step, step * low, step * max(high, low + 1)


def _points(low: float, high: float) -> str:
    return _("%(low)s to %(high)s") % {"low": one_decimal(100 * low), "high": one_decimal(100 * high)}


def _row(contestant: T, found: Interval, axis: Axis) -> Row[T]:
    if found.value is None:
        return Row(contestant, NOTHING, "", 0, None)
    value, at = axis.value(found.value), axis.place(found.value)
    if found.low is None or found.high is None:
        return Row(contestant, value, "", found.tasks, Mark(at, at, at))
    mark = Mark(at, axis.place(found.low), axis.place(found.high))
    return Row(contestant, value, axis.ends(found.low, found.high), found.tasks, mark)
