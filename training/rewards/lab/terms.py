"""``training/rewards/combining.py`` on whole columns: terms, and which rollouts have a reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.config import RewardComponent
from training.rewards.combining import counts_for, factor
from training.rewards.lab.table import Bools, Floats, Ints, Table
from training.rewards.lab.values import Column


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
