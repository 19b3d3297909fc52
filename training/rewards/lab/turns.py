"""What credit to turns would do to a set: ``training/rewards/turns.py`` on whole columns, by number of turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from training.config import RewardComponent
from training.config.learning import PAID
from training.rewards.advantages import SCALE_EPSILON, ZERO_VARIANCE_TOLERANCE
from training.rewards.combining import Scale, factor
from training.rewards.lab.figures import Scored, number
from training.rewards.lab.groups import batch_of, group_of, statistics
from training.rewards.lab.table import Bools, Floats, Longs, Table

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
    said, of = table.said[mine], np.repeat(np.arange(table.size), np.where(kept, lengths, 0))
    counts = lengths[kept]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    said[starts] = np.nan_to_num(said[starts], nan=0.0)  # a reward that the reset does not mention begins at 0
    seen = np.maximum.accumulate(np.where(np.isfinite(said), np.arange(len(said)), 0))
    worth = _worth(table, found, said[seen], of)
    place = np.arange(len(said)) - np.repeat(starts, counts)
    last = place == np.repeat(counts - 1, counts)
    before, first = np.roll(worth, 1), np.repeat(worth[starts], counts)
    total = np.repeat(worth[starts + counts - 2], counts) - first  # all gains but the last turn's
    gain = np.where(last, np.nan, worth - before)
    turn = place > 0
    others = total - np.where(last, 0.0, worth - before)
    return Turns(of[turn], place[turn], gain[turn], (before - first)[turn], others[turn])


def _worth(table: Table, found: Scored, said: Floats, of: Longs) -> Floats:
    """What the components that pay the environment's reward make of it, in units of the rollout's reward."""
    worth = np.zeros(len(said))
    for item in found.components:
        if item.registered == PAID:
            term = np.where(np.isfinite(found.parts[item.name])[of], _term(table, found, item, said, of), 0.0)
            worth += item.weight * term
    return worth


def _term(table: Table, found: Scored, item: RewardComponent, value: Floats, of: Longs) -> Floats:
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
