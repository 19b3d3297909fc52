"""Groups of a set: their statistics, advantages as TRL computes them, and ranks. A batch is a step of the run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from training.rewards.advantages import SCALE_EPSILON, ZERO_VARIANCE_TOLERANCE
from training.rewards.combining import Aggregation, Scale
from training.rewards.lab.figures import Scored
from training.rewards.lab.table import Bools, Floats, Ints, Longs, Table


class Statistics(NamedTuple):
    """One entry for each group; mean and spread are NaN where too few values exist."""

    members: Longs
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    flat: Bools


def group_of(table: Table) -> Longs:
    """The number of each rollout's group."""
    return np.repeat(np.arange(table.groups), np.diff(table.starts))


def batch_of(table: Table) -> Longs:
    """The number of each rollout's step."""
    return np.unique(table.step, return_inverse=True)[1].astype(np.int64)


def statistics(values: Floats, of: Longs, groups: int) -> Statistics:
    """Of the values that exist, within each group."""
    known = np.isfinite(values)
    held, kept = of[known], values[known]
    count = np.bincount(held, minlength=groups)
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, held, kept)
    np.maximum.at(high, held, kept)
    # Sums of differences from one of the group's own values: equal values give exactly no spread.
    base = np.where(count > 0, low, 0.0)
    mean = base + np.bincount(held, kept - base[held], groups) / np.maximum(count, 1)
    squares = np.bincount(held, (kept - mean[held]) ** 2, groups)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    flat = (count == 0) | (high - low <= ZERO_VARIANCE_TOLERANCE)
    return Statistics(count, np.where(count > 0, mean, np.nan), np.where(count > 1, std, np.nan), low, high, flat)


def advantages(table: Table, found: Scored, aggregation: Aggregation, scale: Scale) -> Floats:
    """``combining.advantages`` for each step of the set; NaN for excluded rollouts."""
    of, batch = group_of(table), batch_of(table)
    if aggregation == "normalize_then_sum":
        sums = np.where(found.included, 0.0, np.nan)
        for item in found.components:
            term = np.where(found.included, found.terms[item.name], np.nan)
            sums += item.weight * np.nan_to_num(_compared(term, of, table.groups), nan=0.0)
        return _compared(sums, batch, int(batch.max()) + 1)
    within = statistics(found.reward, of, table.groups)
    less = found.reward - within.mean[of]
    if scale == "none":
        return less
    if scale == "group":
        return _over(less, within.std[of])
    return _over(less, statistics(found.reward, batch, int(batch.max()) + 1).std[batch])


def _compared(values: Floats, of: Longs, groups: int) -> Floats:
    """Values less their group's mean over its spread; 0 where they stand alone."""
    within = statistics(values, of, groups)
    return _over(values - within.mean[of], within.std[of])


def _over(less: Floats, std: Floats) -> Floats:
    return np.where(np.isnan(less), np.nan, np.where(np.isnan(std), 0.0, less / (np.nan_to_num(std) + SCALE_EPSILON)))


def ranks(table: Table, reward: Floats) -> Ints:
    """The place of each reward within its group, 1 the highest; equal ones share it, and 0 has none."""
    of = group_of(table)
    key = np.where(np.isfinite(reward), -reward, np.inf)
    order = np.lexsort((key, of))
    sorted_key, sorted_group = key[order], of[order]
    place = np.arange(table.size)
    fresh = np.ones(table.size, np.bool_)
    with np.errstate(invalid="ignore"):  # of excluded ones, inf less inf
        close = np.abs(sorted_key[1:] - sorted_key[:-1]) <= ZERO_VARIANCE_TOLERANCE
    fresh[1:] = (sorted_group[1:] != sorted_group[:-1]) | ~close
    first = np.maximum.accumulate(np.where(fresh, place, 0))
    found = np.zeros(table.size, np.int32)
    found[order] = first - table.starts[sorted_group] + 1
    return np.where(np.isfinite(reward), found, 0).astype(np.int32)
