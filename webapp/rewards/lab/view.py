"""The answer to ``lab-score``: a set under one spec or two, as figures, alarms and a page of groups."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.rewards.lab import (
    ALARMS,
    STATUSES,
    Alarm,
    Bools,
    Column,
    Floats,
    Ints,
    Longs,
    Outcome,
    Scored,
    Statistics,
    Table,
    advantages,
    alarms_of,
    figures,
    group_of,
    is_asked,
    number,
    outcome_of,
    phantom_of,
    ranks,
    scored,
    statistics,
    turn_report,
)
from training.rewards.scoring import COMPONENTS
from webapp.common import words
from webapp.common.text import in_words, translated
from webapp.rewards.lab.requests import ScoreRequest
from webapp.rewards.lab.scoring import Job, Values, table_of, values_of
from webapp.rewards.models import RolloutSet
from webapp.runs.config import title_of

MAX_ROLLOUTS_SHOWN = 128
MAX_MISSING = 50


class Pending(NamedTuple):
    """Values are still being computed: how far it is."""

    job: Job


class _Side(NamedTuple):
    """The set under one spec."""

    found: Scored
    values: Values
    outcome: Outcome | None
    advantage: Floats
    rank: Ints
    within: Statistics
    phantom: Bools


def score_reply(rollout_set: RolloutSet, request: ScoreRequest) -> dict[str, Any] | Pending:
    """The whole answer, or how far the values are. Raises ``DataError`` when the set's files are gone."""
    began = time.monotonic()
    table = table_of(rollout_set)
    sides = []
    for components in (request.components, request.against):
        if components is None:
            continue
        values = values_of(rollout_set, table, components)
        if values.pending is not None:
            return Pending(values.pending)
        sides.append(_side_of(table, components, values, request))
    main, other = sides[0], sides[1] if len(sides) > 1 else None
    before = table.reward if other is None else other.found.reward
    rank_before = ranks(table, before)
    changed = np.bincount(group_of(table), main.rank != rank_before, table.groups) > 0
    order = _group_order(table, main, changed, request)
    shown = order[request.offset : request.offset + request.limit]
    return {
        "rescored": list(dict.fromkeys(name for side in sides for name in side.values.computed)),
        "summary": _summary_json(table, main),
        "against": _summary_json(table, other) if other else None,
        "agreement": figures.rank_correlation(main.found.reward, other.found.reward) if other else None,
        "components": [_component_json(table, main, item) for item in request.components],
        "turns": _turns_json(table, main, request),
        "total": {"histogram": figures.histogram(main.found.reward)},
        "alarms": [_alarm_json(table, alarm, main) for alarm in alarms_of(table, main.found, main.outcome)],
        "groups": [_group_json(table, main, other, rank_before, int(group)) for group in shown],
        "total_groups": len(order),
        "missing": _missing_reasons(main),
        "took_ms": round(1000 * (time.monotonic() - began)),
    }


def _side_of(table: Table, components: list[RewardComponent], values: Values, request: ScoreRequest) -> _Side:
    found = scored(table, components, values.columns, request.step)
    outcome = outcome_of(table, found)
    within = statistics(found.reward, group_of(table), table.groups)
    return _Side(
        found,
        values,
        outcome,
        advantages(table, found, request.aggregation, request.scale),
        ranks(table, found.reward),
        within,
        phantom_of(table, found, outcome, within),
    )


def _summary_json(table: Table, side: _Side) -> dict[str, Any]:
    flat, phantom = int(side.within.flat.sum()), int(side.phantom.sum())
    return {
        "rollouts": table.size,
        "excluded": int((~side.found.included).sum()),
        "groups": table.groups,
        "outcome": side.outcome.name if side.outcome else None,
        "reward": figures.moments(side.found.reward),
        "zero_variance": {"groups": flat, "share": flat / table.groups},
        "phantom": {"groups": phantom, "share": phantom / table.groups},
    }


def _component_json(table: Table, side: _Side, item: RewardComponent) -> dict[str, Any]:
    known = COMPONENTS.get(item.registered)
    value = side.found.parts[item.name]
    included = np.where(side.found.included, value, np.nan)
    moments = figures.moments(value[~table.excluded])
    low, high = moments["min"], moments["max"]
    return {
        "name": item.name,
        "title": title_of(item),
        "weight": item.weight,
        "low": number(known.low) if known else None,
        "high": number(known.high) if known else None,
        **moments,
        "missing": int(side.found.missing[item.name].sum()),
        "constant": low is not None and high is not None and high - low <= figures.NO_SPREAD,
        "r_outcome": figures.correlation(included, side.outcome.value) if side.outcome else None,
        "r_length": figures.correlation(included, table.length),
        "share_of_spread": figures.share_of_spread(side.found.weighed(item), side.found.reward),
        "histogram": figures.histogram(value[~table.excluded]),
    }


def _turns_json(table: Table, side: _Side, request: ScoreRequest) -> dict[str, Any] | None:
    """The report on credit to turns; ``None`` where each component is compared by itself, which it cannot divide."""
    if request.aggregation != "sum_then_normalize":
        return None
    return turn_report(table, side.found, side.advantage, request.scale)


def _group_order(table: Table, side: _Side, changed: Bools, request: ScoreRequest) -> Longs:
    """The requested groups, in the requested order."""
    some_excluded = np.bincount(group_of(table), ~side.found.included, table.groups) > 0
    chosen = {
        "all": np.ones(table.groups, np.bool_),
        "zero_variance": side.within.flat,
        "phantom": side.phantom,
        "excluded": some_excluded,
        "changed": changed,
    }[request.only]
    spread, mean = np.nan_to_num(side.within.std, nan=-1.0), np.nan_to_num(side.within.mean, nan=-math.inf)
    keys = {"step": None, "spread": -spread, "changed": ~changed, "phantom": ~side.phantom, "reward": -mean}
    key = keys[request.sort]
    order = np.arange(table.groups) if key is None else np.argsort(key, kind="stable")
    return np.asarray(order[chosen[order]], np.int64)


def _group_json(table: Table, side: _Side, other: _Side | None, rank_before: Ints, group: int) -> dict[str, Any]:
    begin, end = int(table.starts[group]), int(table.starts[group + 1])
    places = range(begin, min(end, begin + MAX_ROLLOUTS_SHOWN))
    return {
        "key": f"{table.step[begin]}/{table.group[begin]}",
        "step": int(table.step[begin]),
        "group": int(table.group[begin]),
        "task": table.task_of(group),
        "mean": number(side.within.mean[group]),
        "std": number(side.within.std[group]),
        "zero_variance": bool(side.within.flat[group]),
        "phantom": bool(side.phantom[group]),
        "hidden": max(0, end - begin - MAX_ROLLOUTS_SHOWN),
        "rollouts": [_rollout_json(table, side, other, rank_before, place) for place in places],
    }


def _rollout_json(table: Table, side: _Side, other: _Side | None, rank_before: Ints, place: int) -> dict[str, Any]:
    found = side.found
    return {
        "id": table.id_of(place),
        "index": int(table.index[place]),
        "policy": table.meta["policies"][table.policy[place]],
        "status": STATUSES[table.status[place]],
        "outcome": _outcome_at(side, place),
        "excluded": excluded_sentence(table, found, side.values.columns, place, side.values.failed),
        "length": number(table.length[place]),
        "reward": number(found.reward[place]),
        "reward_before": number(table.reward[place]),
        "reward_against": number(other.found.reward[place]) if other else None,
        "advantage": number(side.advantage[place]),
        "advantage_against": number(other.advantage[place]) if other else None,
        "rank": int(side.rank[place]) or None,
        "rank_before": int(rank_before[place]) or None,
        "parts": {item.name: number(found.parts[item.name][place]) for item in found.components},
        "terms": {item.name: number(item.weight * found.terms[item.name][place]) for item in found.components},
    }


def _outcome_at(side: _Side, place: int) -> words.Outcome:
    """The outcome of a rollout's task as this spec judges it."""
    if not side.found.included[place]:
        return words.Outcome.EXCLUDED
    return words.outcome_of(float(side.outcome.value[place]) if side.outcome else None)


def excluded_sentence(
    table: Table, found: Scored, columns: dict[str, Column], place: int, failed: str = ""
) -> str | None:
    """Why a rollout has no reward; ``None`` where it has one."""
    if found.included[place]:
        return None
    if table.excluded[place]:
        return translated(table.reason_of(place))
    for item in found.components:
        if found.missing[item.name][place]:
            return (
                f"{title_of(item)}: {reason_of(item, columns[item.name], int(columns[item.name].code[place]), failed)}"
            )
    return _("No component counts for a row of this category.")


def reason_of(item: RewardComponent, column: Column, code: int, failed: str = "") -> str:
    """Why a value is missing."""
    if code >= 0:
        return in_words(column.reasons[code])
    if not is_asked(item):
        return _("The run recorded no value for it, and judges and models are not called here.")
    return failed or _("It was not computed.")


def _missing_reasons(side: _Side) -> list[dict[str, Any]]:
    """Each reason for missing values with its number of rollouts, the most frequent first."""
    rows: list[dict[str, Any]] = []
    for item in side.found.components:
        column, missing = side.values.columns[item.name], side.found.missing[item.name]
        codes, counts = np.unique(column.code[missing], return_counts=True)
        for code, count in zip(codes, counts, strict=True):
            reason = reason_of(item, column, int(code), side.values.failed)
            rows.append({"component": item.name, "reason": reason, "rollouts": int(count)})
    return sorted(rows, key=lambda row: -int(row["rollouts"]))[:MAX_MISSING]


def _alarm_json(table: Table, alarm: Alarm, side: _Side) -> dict[str, Any]:
    shown_figures = {name: _figure_text(value) for name, value in alarm.figures.items()}
    labels = _figure_labels()
    return {
        "code": alarm.code,
        "severity": alarm.severity,
        "component": alarm.component,
        "title": _(ALARMS[alarm.code].title),
        "sentence": _(alarm.sentence) % shown_figures,
        "figures": {labels.get(name, name): value for name, value in alarm.figures.items()},
        "rollouts": [table.id_of(place) for place in alarm.places],
    }


def _figure_text(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 10 else f"{value:.3g}"


def _figure_labels() -> dict[str, str]:
    """The titles of alarms' figures."""
    return {
        "cases": _("cases"),
        "groups": _("groups"),
        "rollouts": _("rollouts"),
        "missing": _("missing"),
        "mean": _("their mean reward"),
        "against": _("compared with"),
        "cut": _("cut off, unsolved"),
        "r": _("correlation with length"),
        "gain": _("longest quarter minus shortest quarter"),
        "value": _("value"),
        "ceiling": _("highest reward"),
        "shaping": _("spread of shaping"),
        "worth": _("worth of the outcome"),
        "share": _("ranked wrongly, %"),
        "low": _("at least, %"),
        "high": _("at most, %"),
        "spread": _("spread of all rewards"),
    }
