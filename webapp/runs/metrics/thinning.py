"""Long curves made short without losing what is seen: the first and last point, and the ends of each stretch. Pure.

A stretch keeps its lowest and highest figure, so that no spike is thinned away, and a point that is not finite, so that
gaps stay gaps. The mean of all its figures is returned with them: a line smoothed over the ends alone would run midway
between the spikes, not where the figures are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webapp.common.text import finite

MEAN_DIGITS = 6  # of a mean on its way to a screen


class Column(NamedTuple):
    """The points of one curve in the order of their steps."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    attempts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.steps)


class Means(NamedTuple):
    """Of each stretch that has finite figures: its middle step, their mean, and how many they are."""

    steps: list[int]
    values: list[float]
    counts: list[int]


def curve_of(column: Column, limit: int) -> dict[str, Any]:
    """``{steps, values, attempts}`` with about ``limit`` points, and ``means`` where it had more of them."""
    kept, means = (column, None) if len(column) <= limit else _thin_column(column, max(limit // 2 - 1, 1))
    found = {
        "steps": kept.steps.tolist(),
        "values": [finite(value) for value in kept.values.tolist()],
        "attempts": kept.attempts.tolist(),
    }
    return found if means is None else found | {"means": means._asdict()}


def _thin_column(column: Column, stretches: int) -> tuple[Column, Means]:
    steps, values = column.steps, column.values
    place = (steps - steps[0]) * stretches // (steps[-1] - steps[0] + 1)
    starts = np.flatnonzero(np.diff(place, prepend=-1))  # of each stretch that has points
    sizes = np.diff(np.append(starts, len(values)))
    known = np.isfinite(values)
    low = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    ends = [known & (values == np.repeat(low, sizes)), known & (values == np.repeat(high, sizes)), ~known]
    kept = np.unique(np.concatenate([[0, len(values) - 1], *(_last_places(mask, starts) for mask in ends)]))
    counts = np.add.reduceat(known.astype(np.int64), starts)
    return Column(steps[kept], values[kept], column.attempts[kept]), _stretch_means(column, known, starts, counts)


def _last_places(mask: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each stretch the last place where the mask holds; of some there is none."""
    found = np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), starts)
    return found[found >= 0]


def _stretch_means(
    column: Column, known: NDArray[np.bool_], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> Means:
    some = counts > 0
    last = np.append(starts[1:], len(column)) - 1
    middle = (column.steps[starts] + column.steps[last]) // 2
    sums = np.add.reduceat(np.where(known, column.values, 0.0), starts)
    means = [float(f"{mean:.{MEAN_DIGITS}g}") for mean in sums[some] / counts[some]]
    return Means(middle[some].tolist(), means, counts[some].tolist())
