"""Figures over the rollouts that have a reward: correlations, spread, histograms. ``None`` is "cannot be said"."""

from __future__ import annotations

from typing import Any

import numpy as np

from training.rewards.lab.table import Floats

BINS = 20
NO_SPREAD = 1e-9
MIN_PAIRS = 3


def number(value: float) -> float | None:
    """The value, if it is one."""
    return float(value) if np.isfinite(value) else None


def correlation(one: Floats, other: Floats) -> float | None:
    """Pearson's r where both are known; ``None`` with few pairs or without spread."""
    both = np.isfinite(one) & np.isfinite(other)
    if int(both.sum()) < MIN_PAIRS:
        return None
    one, other = one[both] - one[both].mean(), other[both] - other[both].mean()
    spread = float(np.sqrt((one**2).sum() * (other**2).sum()))
    if min(one.std(), other.std()) <= NO_SPREAD:
        return None
    return float(np.clip((one * other).sum() / spread, -1, 1))


def rank_correlation(one: Floats, other: Floats) -> float | None:
    """Spearman's: Pearson's r of the ranks."""
    both = np.isfinite(one) & np.isfinite(other)
    return correlation(_average_ranks(one[both]), _average_ranks(other[both]))


def _average_ranks(values: Floats) -> Floats:
    _seen, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], np.float64)


def share_of_spread(part: Floats, reward: Floats) -> float | None:
    """How much of the reward's variance comes with this part; the shares of all parts add up to 1."""
    known = np.isfinite(reward)
    if int(known.sum()) < 2:
        return None
    part, reward = part[known], reward[known]
    variance = float(reward.var())
    if variance <= NO_SPREAD**2:
        return None
    return float(((part - part.mean()) * (reward - reward.mean())).mean() / variance)


def within(values: Floats, by: Floats) -> Floats:
    """Values less the mean of those with the same ``by``: what it does not explain."""
    known = np.isfinite(values) & ~np.isnan(by)
    found = np.full(len(values), np.nan)
    if known.any():
        _seen, places, counts = np.unique(by[known], return_inverse=True, return_counts=True)
        means = np.bincount(places, values[known]) / counts
        found[known] = values[known] - means[places]
    return found


def histogram(values: Floats) -> dict[str, list[Any]]:
    """Edges and counts of the values that exist; equal values stand in one bin."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {"edges": [], "counts": []}
    low, high = float(known.min()), float(known.max())
    if high - low <= NO_SPREAD * max(1.0, abs(low), abs(high)):
        return {"edges": [low - 0.5, low + 0.5], "counts": [len(known)]}
    counts, edges = np.histogram(known, bins=BINS, range=(low, high))
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def moments(values: Floats) -> dict[str, float | None]:
    """Mean, standard deviation, lowest and highest of the values that exist."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {"mean": None, "std": None, "min": None, "max": None}
    return {
        "mean": float(known.mean()),
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
        "min": float(known.min()),
        "max": float(known.max()),
    }
