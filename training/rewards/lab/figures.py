"""Figures over the rollouts that have a reward: correlations, spread, histograms. ``None`` is "cannot be said"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from training.config import RewardComponent
from training.rewards.combining import counts_for, factor
from training.rewards.lab.table import Bools, Floats, Ints, Table
from training.rewards.lab.values import Column
from training.rewards.registry import COMPONENTS
from training.rewards.verdict import ENVIRONMENT, OUTCOMES

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


# --- Terms ----------------------------------------------------------------------------------------------------------
# ``training/rewards/combining.py`` on whole columns: terms, and which rollouts have a reward.


@dataclass(frozen=True)
class Scored:
    """A set under one spec. ``parts`` and ``terms`` (before their weights) are NaN where a component does not count or
    is missing; ``reward`` is NaN for excluded rollouts.
    ``step`` is the one that all schedules were taken at, ``None`` each rollout's own."""

    components: Sequence[RewardComponent]
    parts: dict[str, Floats]
    terms: dict[str, Floats]
    missing: dict[str, Bools]
    included: Bools
    reward: Floats
    step: int | None = None

    def weighed(self, component: RewardComponent) -> Floats:
        """What a component adds to each reward; 0 where it does not count."""
        return np.nan_to_num(component.weight * self.terms[component.name], nan=0.0)


def counted(table: Table, component: RewardComponent) -> Bools:
    """Where a component counts, by the categories of the rows."""
    by_kind = np.array([counts_for(component, set(kind)) for kind in table.meta["categories"]], np.bool_)
    return np.asarray(by_kind[table.category])


def scored(
    table: Table, components: Sequence[RewardComponent], columns: Mapping[str, Column], step: int | None = None
) -> Scored:
    """The set under a spec. ``step`` is that of all schedules; ``None`` is each rollout's own."""
    included, any_counts = ~table.excluded, np.zeros(table.size, np.bool_)
    parts: dict[str, Floats] = {}
    missing: dict[str, Bools] = {}
    for item in components:
        counts = counted(table, item)
        known = np.isfinite(columns[item.name].value)
        parts[item.name] = np.where(counts & known, columns[item.name].value, np.nan)
        missing[item.name] = counts & ~known & ~table.excluded
        included = included & (known | ~counts)
        any_counts |= counts
    included &= any_counts
    steps = table.step if step is None else np.full(table.size, step, np.int32)
    terms = {item.name: _term(item, parts, steps) for item in components}
    reward = np.zeros(table.size)
    for item in components:
        reward += np.nan_to_num(item.weight * terms[item.name], nan=0.0)
    return Scored(components, parts, terms, missing, included, np.where(included, reward, np.nan), step)


def _term(item: RewardComponent, parts: Mapping[str, Floats], steps: Ints) -> Floats:
    """``combining.term_of`` for all rollouts."""
    value = raw = parts[item.name]
    if item.clip is not None:
        value = np.minimum(np.maximum(value, item.clip[0]), item.clip[1])
    if item.scale is not None:
        value = (value - item.scale[0]) / (item.scale[1] - item.scale[0])
    if item.schedule is not None:
        seen, places = np.unique(steps, return_inverse=True)
        value = value * np.array([factor(item.schedule, int(step)) for step in seen])[places]
    if item.gate is not None:
        behind = parts.get(item.gate.component)
        opened = np.full(len(raw), -math.inf) if behind is None else np.nan_to_num(behind, nan=-math.inf)
        value = np.where(opened > item.gate.above, value, 0.0)
    return np.where(np.isnan(raw), np.nan, value)


# --- Worth ----------------------------------------------------------------------------------------------------------
# What a reward spec pays for solving the task, and what for all else: from its bounds, before anything is played.

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


# --- Outcome --------------------------------------------------------------------------------------------------------
# Which figure says whether a rollout did its task: what all shaping is held against.


class Outcome(NamedTuple):
    """Its name and its values."""

    name: str
    value: Floats


def outcome_of(table: Table, found: Scored) -> Outcome | None:
    """The spec's outcome, else the one that the run recorded, else the environment's own; ``None`` without any."""
    for function in OUTCOMES:
        for item in found.components:
            if item.registered == function and np.isfinite(found.parts[item.name]).any():
                return Outcome(item.name, found.parts[item.name])
    functions = {function: name for name, function in table.meta["functions"].items()}
    for function in OUTCOMES:
        name = functions.get(function)
        if name is not None and np.isfinite(table.parts[name]).any():
            return Outcome(name, table.parts[name])
    for value in (table.env_success, table.env_reward):
        if np.isfinite(value).any():
            # An episode that ran out before the verdict did not do its task.
            return Outcome(ENVIRONMENT, np.where(np.isnan(value) & table.cut, 0.0, value))
    return None
