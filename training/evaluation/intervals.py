"""95% intervals of means over tasks, by the bootstrap.

A task is what is drawn: its tries are averaged first and always drawn together (a bootstrap clustered by task). The
interval is bias-corrected and accelerated (BCa; Efron 1987), because shares near 0 and 1 are skewed. Where every task's
value is 0 or 1 it is Wilson's (1927): of so coarse values a bootstrap gives too wide an interval near the ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.shares import wilson

Values = NDArray[np.float64]
CONFIDENCE = 0.95
RESAMPLES = 2_000
_BLOCK_VALUES = 2_000_000  # drawn at once: memory does not grow with the tasks
_NORMAL = NormalDist()


class Interval(NamedTuple):
    """A mean over ``tasks`` tasks and where it lies with 95% confidence: ``None`` without a task, no ends with one."""

    value: float | None
    low: float | None
    high: float | None
    tasks: int


def mean_interval(values: Values, *, seed: int = 0) -> Interval:
    """The mean of one value a task (NaN: none) with its interval."""
    return mean_intervals(values[:, None], seed=seed)[0]


def mean_intervals(columns: Values, *, seed: int = 0, shares: Sequence[bool] | None = None) -> list[Interval]:
    """The same for several figures of the same tasks, as columns; the tasks are drawn once for all of them.

    ``shares`` tells which columns lie between 0 and 1 by their nature (all, unless given): Wilson's interval is for
    those alone.
    """
    known = ~np.isnan(columns)
    filled = np.where(known, columns, 0.0)
    tasks = columns.shape[0]
    if not tasks:
        return [Interval(None, None, None, 0)] * columns.shape[1]
    rng, block = np.random.default_rng(seed), max(1, min(RESAMPLES, _BLOCK_VALUES // tasks))
    means = np.empty((RESAMPLES, columns.shape[1]))
    for start in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - start)
        drawn = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=size).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[start : start + size] = (drawn @ filled) / (drawn @ known.astype(np.float64))
    share = [True] * columns.shape[1] if shares is None else shares
    return [_interval(columns[known[:, k], k], means[:, k], share[k]) for k in range(columns.shape[1])]


def change_intervals(columns: Values, *, seed: int = 0) -> list[Interval]:
    """The same for differences of two contestants' values, which lie between -1 and 1.

    Where whole tasks changed in one direction alone, or none did, a bootstrap has nothing to vary; the interval is then
    that of Agresti and Min (2005) for paired shares: half a task is added to each of the four cells.
    """
    found = mean_intervals(columns, seed=seed, shares=[False] * columns.shape[1])
    for place in range(len(found)):
        values = columns[~np.isnan(columns[:, place]), place]
        one_sided = np.isin(values, (0.0, 1.0)).all() or np.isin(values, (0.0, -1.0)).all()
        if values.size > 1 and one_sided:
            found[place] = _one_sided(values)
    return found


def _one_sided(values: Values) -> Interval:
    count, mean = int(values.size), float(values.mean())
    wins, losses = float(np.sum(values > 0)) + 0.5, float(np.sum(values < 0)) + 0.5
    middle = (wins - losses) / (count + 2)
    half = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(wins + losses - (wins - losses) ** 2 / (count + 2))
    half /= count + 2
    return Interval(mean, min(mean, max(-1.0, middle - half)), max(mean, min(1.0, middle + half)), count)


def _interval(values: Values, resampled: Values, share: bool = True) -> Interval:
    count = int(values.size)
    if not count:
        return Interval(None, None, None, 0)
    mean = float(values.mean())
    if count == 1:
        return Interval(mean, None, None, 1)
    resampled = resampled[~np.isnan(resampled)]
    if share and np.isin(values, (0.0, 1.0)).all():
        return Interval(mean, *wilson(mean, count), count)
    if np.ptp(values) < 1e-12:  # all tasks alike: there is nothing to resample
        return Interval(mean, mean, mean, count)
    low, high = _bca(values, mean, resampled)
    return Interval(mean, low, high, count)


def _bca(values: Values, mean: float, resampled: Values) -> tuple[float, float]:
    below = float(np.mean(resampled < mean - 1e-12) + np.mean(np.abs(resampled - mean) <= 1e-12) / 2)
    bias = _NORMAL.inv_cdf(min(max(below, 1e-6), 1 - 1e-6))
    centred = values - mean
    acceleration = float((centred**3).sum() / (6 * ((centred**2).sum() ** 1.5)))
    ends = []
    for quantile in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2):
        z = bias + _NORMAL.inv_cdf(quantile)
        ends.append(_NORMAL.cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(resampled, ends)
    return float(low), float(high)


# --- Estimators -----------------------------------------------------------------------------------------------------
# Chances estimated from n tries of a task, of which c succeeded.
#
# ``pass_at_k``: at least one of k tries succeeds (Chen et al. 2021, *Evaluating Large Language Models Trained on
# Code*). ``pass_all_k``: all of k tries succeed, written pass^k (Yao et al. 2024, *τ-bench*). Both are unbiased: they
# are the share of the subsets of k tries, drawn without replacement, in which it is so.


def pass_at_k(tries: int, solved: int, k: int) -> float:
    """Chance that one of ``k`` tries succeeds. Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return 1.0 - _share(tries - solved, tries, k)


def pass_all_k(tries: int, solved: int, k: int) -> float:
    """Chance that all of ``k`` tries succeed (pass^k). Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return _share(solved, tries, k)


def _share(some: int, tries: int, k: int) -> float:
    """The share of the subsets of ``k`` of ``tries`` that lie within ``some`` of them."""
    return math.comb(some, k) / math.comb(tries, k)


def _check(tries: int, solved: int, k: int) -> None:
    if not (1 <= k <= tries and 0 <= solved <= tries):
        raise ValueError(f"{solved} of {tries} tries say nothing about {k}")


# --- Exact ----------------------------------------------------------------------------------------------------------
# Whether two shares differ by more than chance: Fisher's exact test, and how often it would say so of equal ones.
#
# Fisher (1935), *The Logic of Inductive Inference*; two-sided as is usual: all tables of the same margins that are no
# likelier than the one that was seen are added up. Given the margins the number of successes on one side is
# hypergeometric, so the test's own size is known exactly; with few tries it is far below its level.

LEVEL = 0.05
_ALIKE = 1 + 1e-7
"""Tables whose probabilities differ by rounding alone are equally likely."""
_AT_ONCE = 2_000_000

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Changes(NamedTuple):
    """Of each pair of shares, shape (pairs,): the two-sided ``p``; how often two equal shares with as many successes in
    all would be found to have fallen (``fell``) and to have risen (``rose``) at the level."""

    p: Floats
    fell: Floats
    rose: Floats


def fisher(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The two-sided p-value of two shares, each as (successes, tries); 1 where a side has no try."""
    return float(changes([before], [after]).p[0])


def changes(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> Changes:
    """Compare pairs of shares, each of shape (pairs, 2): successes and tries.

    Raises ``ValueError`` of more successes than tries.
    """
    first, second = (np.asarray(side, np.int64).reshape(-1, 2) for side in (before, after))
    if any((side[:, 0] < 0).any() or (side[:, 0] > side[:, 1]).any() for side in (first, second)):
        raise ValueError("there cannot be more successes than tries")
    width = int(second[:, 1].max(initial=0)) + 1
    block = max(1, _AT_ONCE // width**2)
    parts = [
        _changes(first[start : start + block], second[start : start + block], width, level)
        for start in range(0, len(first), block)
    ]
    return Changes(*(np.concatenate([np.zeros(0), *column]) for column in zip(*parts, strict=True))) if parts else _NONE


def _changes(before: Longs, after: Longs, width: int, level: float) -> Changes:
    tries, other = after[:, 1:], before[:, 1:]
    successes = before[:, :1] + after[:, :1]
    seen = np.arange(width)[None, :]  # successes of the second side, of each table of the same margins
    chance = _chance(seen, tries, other, successes)
    p = np.einsum("tj,tij->ti", chance, chance[:, None, :] <= chance[:, :, None] * _ALIKE)
    speaks = np.where(p <= level, chance, 0.0)
    expected = successes * tries / np.maximum(1, tries + other)
    fell, rose = ((speaks * side).sum(axis=1) for side in (seen < expected, seen > expected))
    return Changes(np.minimum(1.0, np.take_along_axis(p, after[:, :1], axis=1)[:, 0]), fell, rose)


def _chance(seen: Longs, tries: Longs, other: Longs, successes: Longs) -> Floats:
    """Shape (pairs, tables): the hypergeometric probability of each table; 0 of those that cannot be."""
    rest = successes - seen
    possible = (seen <= tries) & (rest >= 0) & (rest <= other)
    logs = _log_factorials(int((tries + other).max(initial=0)).bit_length())

    def ways(count: Longs, of: Longs) -> Floats:
        of = np.clip(of, 0, count)
        found: Floats = logs[count] - logs[of] - logs[count - of]
        return found

    found = np.exp(ways(tries, seen) + ways(other, rest) - ways(tries + other, successes))
    return np.where(possible, found, 0.0)


@lru_cache(maxsize=32)
def _log_factorials(bits: int) -> Floats:
    """Logarithms of the factorials of all numbers with so many binary digits."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 1 << bits, dtype=np.float64)))])


_NONE = Changes(*[np.zeros(0)] * 3)
