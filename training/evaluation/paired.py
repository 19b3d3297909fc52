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

from training.evaluation.intervals import Interval, mean_interval

Values = NDArray[np.float64]
ALPHA, POWER = 0.05, 0.8
EXACT_FLIPS = 14
"""Up to this many tasks that differ, all 2^n sign flips are counted."""
FLIPS = 20_000
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
    both = ~(np.isnan(a) | np.isnan(b))
    first, second = a[both], b[both]
    change = second - first
    solved_a, solved_b = first > solved_from, second > solved_from
    wins, losses = int(np.sum(solved_b & ~solved_a)), int(np.sum(solved_a & ~solved_b))
    return Paired(
        int(both.sum()),
        wins,
        losses,
        mean_interval(change, seed=seed),
        p_value(first, second, seed=seed) if change.size else None,
        tasks_needed(change),
    )


def p_value(first: Values, second: Values, *, seed: int = 0) -> float:
    """Of no difference, from two sides: exact where every value is 0 or 1, else by sign flips."""
    binary = bool(np.isin(first, (0.0, 1.0)).all() and np.isin(second, (0.0, 1.0)).all())
    if binary:
        return mcnemar(int(np.sum(second > first)), int(np.sum(second < first)))
    return sign_flip(second - first, seed=seed)


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of as uneven a split of the tasks that only one of the two solved."""
    count, less = wins + losses, min(wins, losses)
    if not count:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(less + 1))
    return min(1.0, 2 * tail / 2**count)


def sign_flip(change: Values, *, seed: int = 0) -> float:
    """Two-sided p-value of a mean as far from 0 when each difference might as well have the other sign."""
    moved = change[np.abs(change) > 1e-12]
    if not moved.size:
        return 1.0
    seen = abs(float(moved.sum())) * (1 - 1e-12)
    if moved.size <= EXACT_FLIPS:
        sums = np.zeros(1)
        for value in moved:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= seen))
    rng = np.random.default_rng(seed)
    beyond = 0
    for _block in range(FLIPS // _BLOCK):
        signs = rng.integers(0, 2, size=(_BLOCK, moved.size), dtype=np.int8) * np.int8(2) - np.int8(1)
        beyond += int(np.sum(np.abs(signs @ moved) >= seen))
    return (1 + beyond) / (1 + FLIPS)


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
