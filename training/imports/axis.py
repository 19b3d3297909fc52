"""The column of an import's tables that numbers the steps, chosen over all rows: in any order they give one axis.

A table may number its steps in several columns, and not every row has each of them: Weights & Biases counts what was
logged (``_step``), and rows of training also name the trainer's step. The most specific column that places the most
rows is the axis; a row without it is placed by the rows that have both, at the last of their steps that lies before it.
One that nothing links with the axis stays at the number that it has.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_STEP = 2**31 - 1
STEPS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "global_step/max_steps",
    "current_steps",
    "_step",
    "iteration",
    "training_global_step",
)
"""Columns that number the steps, the most specific first; case does not matter."""
_UNKNOWN = math.nan
Floats = NDArray[np.float64]


class Axis(NamedTuple):
    """The axis as the rows of one table see it: its column, the step of each row (NaN where it is unknown), how many
    were placed by other rows, how many are at a number of another column, whether other columns number them
    differently, and their order by step and time."""

    column: str
    steps: Floats
    placed: int
    apart: int
    differs: bool
    order: NDArray[np.int64]

    @property
    def is_sorted(self) -> bool:
        """Whether the rows are in the order of the axis already."""
        return bool(np.all(self.order == np.arange(len(self.order))))


class Steps:
    """The numbers of all rows of an import's tables in each column that may number steps."""

    def __init__(self) -> None:
        self.columns: dict[str, array[float]] = {}
        self.times: array[float] = array("d")
        self._kinds: dict[frozenset[str], int] = {}
        self._kind: array[int] = array("q")
        self._chosen: tuple[str, Floats] | None = None

    def __len__(self) -> int:
        return len(self._kind)

    def add(self, found: dict[str, float], metrics: Iterable[str], time: float | None) -> None:
        """Take in a row: its number in each of such columns, the names of its metrics, and when it was written."""
        for name in found.keys() - self.columns.keys():
            self.columns[name] = array("d", [_UNKNOWN]) * len(self)
        for name, numbers in self.columns.items():
            numbers.append(found.get(name, _UNKNOWN))
        self.times.append(_UNKNOWN if time is None else time)
        self._kind.append(self._kinds.setdefault(frozenset(metrics), len(self._kinds)))

    def axis(self, first: int, end: int) -> Axis:
        """The axis over all rows that were taken in, as those from ``first`` up to ``end`` see it."""
        columns = {name: _valid(self.columns[name]) for name in STEPS if name in self.columns}
        name, whole = self._choice(columns)
        if not name:
            return Axis("", np.full(end - first, _UNKNOWN), 0, 0, False, np.arange(end - first))
        part = {each: numbers[first:end] for each, numbers in columns.items()}
        steps = whole[first:end].copy()
        placed = _count(np.isnan(part[name]) & ~np.isnan(steps))
        lost = _count(np.isnan(steps))
        differs = any(_count(~np.isnan(numbers) & ~np.isnan(steps) & (numbers != steps)) for numbers in part.values())
        for numbers in part.values():
            steps = np.where(np.isnan(steps), numbers, steps)
        others = [part[each] for each in reversed(part) if each != name]
        order = np.lexsort([np.array(self.times[first:end]), *others, steps])  # the last key counts first
        return Axis(name, steps, placed, lost - _count(np.isnan(steps)), differs, order)

    def _choice(self, columns: dict[str, Floats]) -> tuple[str, Floats]:
        """The column that places the most rows, the most specific first, and the steps on it; none without a column."""
        if self._chosen is None:
            options = [(name, self._option(name, columns)) for name in columns]
            nothing = ("", np.empty(0))
            self._chosen = max(options, key=lambda option: _count(~np.isnan(option[1])), default=nothing)
        return self._chosen

    def _option(self, name: str, columns: dict[str, Floats]) -> Floats:
        """The steps on one column. Rows are placed by others only where that does not put most of them on one another,
        as it would where a few rows have a counter of steps."""
        own = columns[name]
        steps = own.copy()
        for other, numbers in columns.items():
            lacking = np.isnan(steps) & ~np.isnan(numbers)
            both = ~np.isnan(own) & ~np.isnan(numbers)
            if other != name and lacking.any() and both.any():
                steps[lacking] = _placed(numbers[lacking], numbers[both], own[both])
        added = np.flatnonzero(np.isnan(own) & ~np.isnan(steps))
        return own if 2 * self._lost(steps, added) > len(added) else steps

    def _lost(self, steps: Floats, added: NDArray[np.int64]) -> float:
        """How many of the rows that were placed would be hidden by another row of their step that has a metric of
        theirs: of ``k`` such rows one is seen."""
        kinds = list(self._kinds)
        at: dict[float, list[int]] = {step: [] for step in steps[added].tolist()}
        for step, kind in zip(steps.tolist(), self._kind, strict=True):
            if step in at:
                at[step].append(kind)
        alike = (
            sum(not kinds[self._kind[row]].isdisjoint(kinds[kind]) for kind in at[step])
            for row, step in zip(added.tolist(), steps[added].tolist(), strict=True)
        )
        return sum(1 - 1 / max(count, 1) for count in alike)


def _count(mask: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))


def _valid(numbers: array[float]) -> Floats:
    """The numbers that are steps; NaN for others."""
    found = np.array(numbers, dtype=np.float64)
    is_step = (found >= 0) & (found <= MAX_STEP) & (found == np.floor(found))
    return np.where(is_step, found, _UNKNOWN)


def _placed(numbers: Floats, known: Floats, steps: Floats) -> Floats:
    """The steps of rows by their ``numbers`` in another column, in which those of rows with ``steps`` are ``known``."""
    order = np.lexsort((steps, known))
    known, steps = known[order], steps[order]
    place = np.searchsorted(known, numbers, side="right") - 1
    before = max(0.0, float(2 * steps[0] - steps[min(1, len(steps) - 1)])) if len(steps) > 1 else 0.0
    return np.where(place >= 0, steps[np.maximum(place, 0)], before)
