"""95% intervals of means over tasks, by the bootstrap.

A task is what is drawn: its tries are averaged first and always drawn together (a bootstrap clustered by task). The
interval is bias-corrected and accelerated (BCa; Efron 1987), because shares near 0 and 1 are skewed. Where every task's
value is 0 or 1 it is Wilson's (1927): of so coarse values a bootstrap gives too wide an interval near the ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
