"""Figures over a set: of its rollouts, of its groups, and of what credit to turns would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from training.config import RewardComponent
from training.config.learning import PAID
from training.rewards.base import ENVIRONMENT, OUTCOMES
from training.rewards.combining import SCALE_EPSILON, ZERO_VARIANCE_TOLERANCE, Aggregation, Scale, counts_for, factor
from training.rewards.lab.table import Bools, Column, Floats, Ints, Longs, Table
from training.rewards.scoring import COMPONENTS

# Figures over the rollouts that have a reward: correlations, spread, histograms. ``None`` is "cannot be said".

BINS = 20
NO_SPREAD = 1e-9
MIN_PAIRS = 3


def number(value: float) -> float | None:
    """The value, if it is one."""
    return float(value) if np.isfinite(value) else None


def correlation(one: Floats, other: Floats) -> float | None:
    """Pearson's r where both are known; ``None`` with few pairs or zero variance."""
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
    """Edges and counts of the values that exist; equal values are in one bin."""
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
    terms = {item.name: _factor_term(item, parts, steps) for item in components}
    reward = np.zeros(table.size)
    for item in components:
        reward += np.nan_to_num(item.weight * terms[item.name], nan=0.0)
    return Scored(components, parts, terms, missing, included, np.where(included, reward, np.nan), step)


def _factor_term(item: RewardComponent, parts: Mapping[str, Floats], steps: Ints) -> Floats:
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


# Groups of a set: their statistics, advantages as TRL computes them, and ranks. A batch is a step of the run.


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
    # Sums of differences from one of the group's own values: equal values give exactly zero variance.
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
    """Values less their group's mean over its spread; 0 where they are alone."""
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


# What credit to turns would do to a set: ``training/rewards/turns.py`` on whole columns, by number of turn.

MAX_TURNS_SHOWN = 20
DISCOUNTS = (1.0, 0.0)
"""Of credit to later turns: all of it, and none."""


class Turns(NamedTuple):
    """One entry for each turn of the rollouts that have a reward and whose environment paid on the way.

    ``rollout`` is its place in the set, ``turn`` its number from 1; ``gain`` is what its answer added to the reward,
    NaN for a last turn. ``before`` was paid before it, ``others`` with the answers to all other turns but the last.
    """

    rollout: Longs
    turn: Longs
    gain: Floats
    before: Floats
    others: Floats


def turn_report(table: Table, found: Scored, advantage: Floats, scale: Scale) -> dict[str, Any]:
    """Of a set under a spec: how many rollouts are known by turn, and a row for each number of turn.

    A row counts the rollouts that reached the turn, the spread of its gains within groups, and, for both discounts, how
    often the turn's advantage has the other sign than its rollout's.
    """
    known = _lengths(table) > 0
    several = found.included & (_lengths(table) > 2)
    paid = any(item.registered == PAID and item.weight for item in found.components)
    counts = {
        "recorded": int((known & found.included).sum()),
        "rollouts": int(found.included.sum()),
        "several": int(several.sum()),
        "silent": int((several & ~_gave_turn_rewards(table)).sum()),
        "pays": paid,
    }
    turns = turns_of(table, found) if paid else None
    if turns is None or not counts["several"] - counts["silent"]:
        return {**counts, "rows": []}
    credits = [turn_advantages(table, found, turns, advantage, scale, discount) for discount in DISCOUNTS]
    last = int(turns.turn.max())
    shown = range(1, min(last, MAX_TURNS_SHOWN) + 1)
    return {**counts, "hidden": last - len(shown), "rows": [_row(table, turns, advantage, credits, at) for at in shown]}


def _row(
    table: Table, turns: Turns, advantage: Floats, credits: Sequence[Floats], at: int
) -> dict[str, float | int | None]:
    here = turns.turn == at
    rollouts, own = turns.rollout[here], advantage[turns.rollout[here]]
    gain = turns.gain[here]
    within = statistics(gain, group_of(table)[rollouts], table.groups)
    spreads = within.std[np.isfinite(within.std)]
    clear = np.abs(own) > ZERO_VARIANCE_TOLERANCE
    row: dict[str, float | int | None] = {"turn": at, "rollouts": len(rollouts), "gain": _mean(gain)}
    row["spread"] = number(float(spreads.mean())) if len(spreads) else None
    for discount, credit in zip(DISCOUNTS, credits, strict=True):
        other = (np.sign(credit[here]) == -np.sign(own)) & clear & (np.abs(credit[here]) > ZERO_VARIANCE_TOLERANCE)
        row[f"turned_{discount:g}"] = float(other.sum() / clear.sum()) if clear.any() else None
    return row


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _lengths(table: Table) -> Longs:
    """How many rewards were recorded of each rollout: one more than it has turns, or none."""
    if table.said_ends is None:
        return np.zeros(table.size, np.int64)
    return np.diff(table.said_ends, prepend=0)


def _gave_turn_rewards(table: Table) -> Bools:
    """Whether the environment said a reward with the answer to a turn that was not a rollout's last, or there was none
    to say it with."""
    lengths = _lengths(table)
    if table.said is None or table.said_ends is None:
        return np.zeros(table.size, np.bool_)
    of = np.repeat(np.arange(table.size), lengths)
    place = np.arange(len(table.said)) - (table.said_ends - lengths)[of]
    between = (place > 0) & (place < lengths[of] - 1) & np.isfinite(table.said)
    return np.asarray((np.bincount(of, between, table.size) > 0) | (lengths == 2))


def turns_of(table: Table, found: Scored) -> Turns | None:
    """The turns whose credit is known; ``None`` where no rollout's is."""
    lengths, kept = _lengths(table), _gave_turn_rewards(table) & found.included
    if table.said is None or not kept.any():
        return None
    mine = np.repeat(kept, lengths)
    reported, of = table.said[mine], np.repeat(np.arange(table.size), np.where(kept, lengths, 0))
    counts = lengths[kept]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    reported[starts] = np.nan_to_num(reported[starts], nan=0.0)  # a reward that the reset does not mention begins at 0
    seen = np.maximum.accumulate(np.where(np.isfinite(reported), np.arange(len(reported)), 0))
    worth = _worth(table, found, reported[seen], of)
    place = np.arange(len(reported)) - np.repeat(starts, counts)
    last = place == np.repeat(counts - 1, counts)
    before, first = np.roll(worth, 1), np.repeat(worth[starts], counts)
    total = np.repeat(worth[starts + counts - 2], counts) - first  # all gains but the last turn's
    gain = np.where(last, np.nan, worth - before)
    turn = place > 0
    others = total - np.where(last, 0.0, worth - before)
    return Turns(of[turn], place[turn], gain[turn], (before - first)[turn], others[turn])


def _worth(table: Table, found: Scored, reported: Floats, of: Longs) -> Floats:
    """What the components that pay the environment's reward make of it, in units of the rollout's reward."""
    worth = np.zeros(len(reported))
    for item in found.components:
        if item.registered == PAID:
            term = np.where(np.isfinite(found.parts[item.name])[of], _turn_term(table, found, item, reported, of), 0.0)
            worth += item.weight * term
    return worth


def _turn_term(table: Table, found: Scored, item: RewardComponent, value: Floats, of: Longs) -> Floats:
    """``combining.term_of`` of another raw value."""
    if item.clip is not None:
        value = np.minimum(np.maximum(value, item.clip[0]), item.clip[1])
    if item.scale is not None:
        value = (value - item.scale[0]) / (item.scale[1] - item.scale[0])
    if item.schedule is not None:
        steps = table.step if found.step is None else np.full(table.size, found.step)
        seen, places = np.unique(steps, return_inverse=True)
        value = value * np.array([factor(item.schedule, int(step)) for step in seen])[places][of]
    if item.gate is not None:
        behind = found.parts.get(item.gate.component)
        raw = np.full(table.size, -np.inf) if behind is None else np.nan_to_num(behind, nan=-np.inf)
        value = np.where((raw > item.gate.above)[of], value, 0.0)
    return value


def turn_advantages(
    table: Table, found: Scored, turns: Turns, advantage: Floats, scale: Scale, discount: float
) -> Floats:
    """The advantage of each turn, with a weight of 1 and a discount of 1 or 0."""
    taken = turns.before if discount else turns.others
    groups = group_of(table)
    _seen, of = np.unique(np.stack([groups[turns.rollout], turns.turn]), axis=1, return_inverse=True)
    of = of.reshape(-1)
    size, own = int(of.max()) + 1, found.reward[turns.rollout] - taken
    paid, here = statistics(taken, of, size), statistics(own, of, size)
    whole, compared = advantage[turns.rollout], ~paid.flat[of]  # one alone is flat
    divisor = np.ones(len(own))
    if scale == "group":
        divisor = here.std[of] + SCALE_EPSILON
    elif scale == "batch":
        by = batch_of(table)
        divisor = statistics(found.reward, by, int(by.max()) + 1).std[by][turns.rollout] + SCALE_EPSILON
    credit = np.nan_to_num((own - here.mean[of]) / divisor, nan=0.0)
    return np.where(compared, credit, whole)
