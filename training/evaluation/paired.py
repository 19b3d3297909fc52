"""Which of two contestants is better, from the same tasks played by both.

Tasks are the unit: tries of one task are averaged first, so that more tries of a task make it surer, not heavier. The
p-value is exact where each task was tried once (McNemar 1947, the binomial form), else a sign-flip permutation test on
the differences of the tasks' means (Fisher 1935; Good 2005, *Permutation, Parametric and Bootstrap Tests*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.evaluation.intervals import Interval, change_intervals

Values = NDArray[np.float64]
ALPHA, POWER = 0.05, 0.8
EXACT_FLIPS = 14
"""Up to this many tasks that differ, all 2^n sign flips are counted."""
FLIPS = 20_000
FLOOR = 1 / (1 + FLIPS)
"""The smallest p-value that drawn sign flips can give: the true one is below it."""
_BLOCK = 2_000
Z_ALPHA, Z_POWER = 1.959963984540054, 0.8416212335729143
"""Quantiles of the normal distribution at 1 - ALPHA / 2 and at POWER."""


class Paired(NamedTuple):
    """What one contestant (``b``) does on the tasks that another one (``a``) plays too.

    ``tasks``: those with a value of both. ``wins``, ``losses``: tasks that b solves and a fails, and the reverse.
    ``difference``: mean of b less mean of a over these tasks, with its interval. ``p_value``: of no difference;
    ``None`` without tasks. ``needed``: tasks after which a difference as large as this one would be seen in four of
    five evaluations; ``None`` where no number of them would do.
    """

    tasks: int
    wins: int
    losses: int
    difference: Interval
    p_value: float | None
    needed: int | None


def paired(a: Values, b: Values, *, solved_from: float = 0.5, seed: int = 0) -> Paired:
    """Compare the tasks' means of two contestants: one value a task in the same order, NaN where there is none.

    A task is solved where its mean is above ``solved_from``.
    """
    return paired_columns(np.column_stack([a, b]), [(0, 1)], solved_from=solved_from, seed=seed)[0]


def paired_columns(
    columns: Values, pairs: Sequence[tuple[int, int]], *, solved_from: float = 0.5, seed: int = 0
) -> list[Paired]:
    """``paired`` for several pairs ``(a, b)`` of columns; tasks and signs are drawn once for all of them."""
    changes = np.column_stack([columns[:, b] - columns[:, a] for a, b in pairs])
    intervals = change_intervals(changes, seed=seed)
    p_values = _p_values(columns, changes, pairs, seed)
    found = []
    for place, (a, b) in enumerate(pairs):
        both = ~np.isnan(changes[:, place])
        solved_a, solved_b = columns[both, a] > solved_from, columns[both, b] > solved_from
        wins, losses = int(np.sum(solved_b & ~solved_a)), int(np.sum(solved_a & ~solved_b))
        needed = tasks_needed(changes[both, place])
        found.append(Paired(int(both.sum()), wins, losses, intervals[place], p_values[place], needed))
    return found


def _p_values(columns: Values, changes: Values, pairs: Sequence[tuple[int, int]], seed: int) -> list[float | None]:
    """Of no difference, from two sides: exact where every value is 0 or 1, else by sign flips."""
    found: list[float | None] = [None] * len(pairs)
    flipped = []
    for place, (a, b) in enumerate(pairs):
        change = changes[:, place]
        both = ~np.isnan(change)
        if np.isin(columns[both][:, [a, b]], (0.0, 1.0)).all():
            found[place] = mcnemar(int(np.sum(change > 0)), int(np.sum(change < 0))) if both.any() else None
        else:
            flipped.append(place)
    if flipped:
        for place, value in zip(flipped, sign_flips(np.nan_to_num(changes[:, flipped]), seed=seed), strict=True):
            found[place] = value
    return found


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of as uneven a split of the tasks that only one of the two solved."""
    count, less = wins + losses, min(wins, losses)
    if not count:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(less + 1))
    return min(1.0, 2 * tail / 2**count)


def sign_flip(change: Values, *, seed: int = 0) -> float:
    """Two-sided p-value of a mean as far from 0 when each difference might as well have the other sign."""
    return sign_flips(change[:, None], seed=seed)[0]


def sign_flips(changes: Values, *, seed: int = 0) -> list[float]:
    """The same for several columns of the same tasks, 0 where a column has no difference."""
    changes = np.where(np.abs(changes) > 1e-12, changes, 0.0)
    # Sums that differ by rounding alone are equal.
    seen = np.abs(changes.sum(axis=0)) - 1e-12 * np.abs(changes).sum(axis=0)
    moved = np.count_nonzero(changes, axis=0)
    found = [
        _exact_flips(changes[changes[:, k] != 0, k], seen[k]) if moved[k] <= EXACT_FLIPS else 0.0
        for k in range(len(seen))
    ]
    many = np.flatnonzero(moved > EXACT_FLIPS)
    if many.size:
        rng, beyond = np.random.default_rng(seed), np.zeros(many.size)
        for _block in range(FLIPS // _BLOCK):
            signs = rng.integers(0, 2, size=(_BLOCK, changes.shape[0]), dtype=np.int8) * np.int8(2) - np.int8(1)
            beyond += np.sum(np.abs(signs.astype(np.float64) @ changes[:, many]) >= seen[many], axis=0)
        for place, count in zip(many, beyond, strict=True):
            found[place] = float((1 + count) / (1 + FLIPS))
    return found


def _exact_flips(moved: Values, seen: float) -> float:
    """All 2^n sign flips counted; 1 where nothing differs."""
    sums = np.zeros(1)
    for value in moved:
        sums = np.concatenate([sums + value, sums - value])
    return float(np.mean(np.abs(sums) >= seen))


def tasks_needed(change: Values) -> int | None:
    """Tasks for a test of level ``ALPHA`` to find a mean difference as large as the one seen with chance ``POWER``."""
    if change.size < 2:
        return None
    mean, spread = float(change.mean()), float(change.std(ddof=1))
    if abs(mean) < 1e-12:
        return None
    return max(2, math.ceil(((Z_ALPHA + Z_POWER) * spread / mean) ** 2))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for all of these comparisons having been made (Holm 1979); ``None`` stays uncounted."""
    order = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * value))
        corrected[place] = largest
    return corrected
