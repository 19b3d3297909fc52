"""What the lab's script asks for, what it gets, and its texts."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field

from training.config import RewardComponent
from training.rewards import lab
from training.rewards.base import Episode, Span
from training.rewards.combining import Aggregation, Scale, terms_of
from training.rewards.scorer.wire import Asked
from training.rewards.scoring import COMPONENTS
from webapp.common import words
from webapp.common.strings import run_strings
from webapp.common.text import in_words, translated
from webapp.people.teams.models import User
from webapp.rewards.lab.scoring import Job, Values, known_columns, table_of, values_of
from webapp.rewards.models import RolloutSet
from webapp.rewards.scorers import scorers
from webapp.rewards.services import TRY_LIMIT_S
from webapp.runs.answers import CONTENT_MAX
from webapp.runs.config import title_of

# --- Requests -------------------------------------------------------------------------------------------------------
# The requests of the lab's page, checked.

MAX_COMPONENTS = 60
MAX_GROUPS = 50
Components = Annotated[list[RewardComponent], Field(min_length=1, max_length=MAX_COMPONENTS)]
Sort = Literal["step", "spread", "changed", "phantom", "reward"]
Only = Literal["all", "zero_variance", "phantom", "excluded", "changed"]


class ScoreRequest(BaseModel):
    """Score a set by one spec, or by two side by side; a page of its groups comes with it."""

    model_config = ConfigDict(extra="forbid")

    components: Components
    against: Components | None = None
    aggregation: Aggregation = "sum_then_normalize"
    scale: Scale = "group"
    step: int | None = Field(default=None, ge=0, le=1_000_000)
    sort: Sort = "step"
    only: Only = "all"
    offset: int = Field(default=0, ge=0, le=10_000_000)
    limit: int = Field(default=20, ge=0, le=MAX_GROUPS)


class RolloutRequest(BaseModel):
    """Show one rollout with the spans of text that earned its parts."""

    model_config = ConfigDict(extra="forbid")

    components: Components
    aggregation: Aggregation = "sum_then_normalize"
    scale: Scale = "group"
    step: int | None = Field(default=None, ge=0, le=1_000_000)


# --- Figures --------------------------------------------------------------------------------------------------------
# The answer to ``lab-score``: a set under one spec or two, as figures, alarms and a page of groups.

MAX_ROLLOUTS_SHOWN = 128
MAX_MISSING = 50


class Pending(NamedTuple):
    """Values are still being computed: how far it is."""

    job: Job


class _Side(NamedTuple):
    """The set under one spec."""

    found: lab.Scored
    values: Values
    outcome: lab.Outcome | None
    advantage: lab.Floats
    rank: lab.Ints
    within: lab.Statistics
    phantom: lab.Bools


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
    rank_before = lab.ranks(table, before)
    changed = np.bincount(lab.group_of(table), main.rank != rank_before, table.groups) > 0
    order = _group_order(table, main, changed, request)
    shown = order[request.offset : request.offset + request.limit]
    return {
        "rescored": list(dict.fromkeys(name for side in sides for name in side.values.computed)),
        "verdict": _verdict_json(table, main),
        "summary": _summary_json(table, main),
        "against": _summary_json(table, other) if other else None,
        "agreement": lab.rank_correlation(main.found.reward, other.found.reward) if other else None,
        "components": [_component_json(table, main, item) for item in request.components],
        "turns": _turns_json(table, main, request),
        "total": {"histogram": lab.histogram(main.found.reward)},
        "alarms": [_alarm_json(table, alarm, main) for alarm in lab.alarms_of(table, main.found, main.outcome)],
        "groups": [_group_json(table, main, other, rank_before, int(group)) for group in shown],
        "total_groups": len(order),
        "missing": _missing_reasons(main),
        "took_ms": round(1000 * (time.monotonic() - began)),
    }


def _side_of(table: lab.Table, components: list[RewardComponent], values: Values, request: ScoreRequest) -> _Side:
    found = lab.scored(table, components, values.columns, request.step)
    outcome = lab.outcome_of(table, found)
    within = lab.statistics(found.reward, lab.group_of(table), table.groups)
    return _Side(
        found,
        values,
        outcome,
        lab.advantages(table, found, request.aggregation, request.scale),
        lab.ranks(table, found.reward),
        within,
        lab.phantom_of(table, found, outcome, within),
    )


def _verdict_json(table: lab.Table, side: _Side) -> dict[str, Any]:
    """The answer of the page in a sentence: whether the reward ranks failures above successes."""
    ranking = lab.ranking_of(table, side.found, side.outcome)
    if ranking is None:
        text = _(
            "Nothing here judges the task, so it is not known whether this reward ranks a failure above a success."
        )
        return {"kind": "info", "sentence": text}
    if not ranking.groups:
        text = _("No group has both outcomes, so it is not known whether this reward ranks a failure above a success.")
        return {"kind": "info", "sentence": text}
    return {"kind": _kind_of(ranking), "sentence": _ranking_text(ranking)}


def _kind_of(ranking: lab.Ranking) -> str:
    if ranking.is_grave:
        return "error"
    if ranking.cases or ranking.ties:
        return "warning"
    return "success" if ranking.is_clear else "info"


def _ranking_text(ranking: lab.Ranking) -> str:
    figures = {name: _figure_text(value) for name, value in lab.ranked(ranking).items()}
    none = _(
        "In none of %(groups)s groups with both outcomes is a failure ranked above a success (95%%: up to %(high)s%%)."
    )
    some = _(
        "Of %(groups)s groups with both outcomes, %(share)s%% (%(cases)s of %(groups)s; 95%%: %(low)s to "
        "%(high)s%%) rank a failure above a success."
    )
    text = (some if ranking.cases else none) % figures
    if not ranking.ties:
        return text
    ties = _("In %(ties)s of them the best failure earns as much as the best success.")
    return f"{text} {ties % {'ties': _figure_text(ranking.ties)}}"


def _summary_json(table: lab.Table, side: _Side) -> dict[str, Any]:
    flat, phantom = int(side.within.flat.sum()), int(side.phantom.sum())
    return {
        "rollouts": table.size,
        "excluded": int((~side.found.included).sum()),
        "groups": table.groups,
        "outcome": side.outcome.name if side.outcome else None,
        "reward": lab.moments(side.found.reward),
        "zero_variance": {"groups": flat, "share": flat / table.groups},
        "phantom": {"groups": phantom, "share": phantom / table.groups},
    }


def _component_json(table: lab.Table, side: _Side, item: RewardComponent) -> dict[str, Any]:
    known = COMPONENTS.get(item.registered)
    value = side.found.parts[item.name]
    included = np.where(side.found.included, value, np.nan)
    described = lab.moments(value[~table.excluded])
    low, high = described["min"], described["max"]
    return {
        "name": item.name,
        "title": title_of(item),
        "weight": item.weight,
        "low": lab.number(known.low) if known else None,
        "high": lab.number(known.high) if known else None,
        **described,
        "missing": int(side.found.missing[item.name].sum()),
        "constant": low is not None and high is not None and high - low <= lab.NO_SPREAD,
        "r_outcome": lab.correlation(included, side.outcome.value) if side.outcome else None,
        "r_length": lab.correlation(included, table.length),
        "share_of_spread": lab.share_of_spread(side.found.weighed(item), side.found.reward),
        "histogram": lab.histogram(value[~table.excluded]),
    }


def _turns_json(table: lab.Table, side: _Side, request: ScoreRequest) -> dict[str, Any] | None:
    """The report on credit to turns; ``None`` where each component is compared by itself, which it cannot divide."""
    if request.aggregation != "sum_then_normalize":
        return None
    return lab.turn_report(table, side.found, side.advantage, request.scale)


def _group_order(table: lab.Table, side: _Side, changed: lab.Bools, request: ScoreRequest) -> lab.Longs:
    """The requested groups, in the requested order."""
    some_excluded = np.bincount(lab.group_of(table), ~side.found.included, table.groups) > 0
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


def _group_json(
    table: lab.Table, side: _Side, other: _Side | None, rank_before: lab.Ints, group: int
) -> dict[str, Any]:
    begin, end = int(table.starts[group]), int(table.starts[group + 1])
    places = range(begin, min(end, begin + MAX_ROLLOUTS_SHOWN))
    return {
        "key": f"{table.step[begin]}/{table.group[begin]}",
        "step": int(table.step[begin]),
        "group": int(table.group[begin]),
        "task": table.task_of(group),
        "mean": lab.number(side.within.mean[group]),
        "std": lab.number(side.within.std[group]),
        "zero_variance": bool(side.within.flat[group]),
        "phantom": bool(side.phantom[group]),
        "hidden": max(0, end - begin - MAX_ROLLOUTS_SHOWN),
        "rollouts": [_rollout_json(table, side, other, rank_before, place) for place in places],
    }


def _rollout_json(
    table: lab.Table, side: _Side, other: _Side | None, rank_before: lab.Ints, place: int
) -> dict[str, Any]:
    found = side.found
    return {
        "id": table.id_of(place),
        "index": int(table.index[place]),
        "policy": table.meta["policies"][table.policy[place]],
        "status": lab.STATUSES[table.status[place]],
        "outcome": _outcome_at(side, place),
        "excluded": excluded_sentence(table, found, side.values.columns, place, side.values.failed),
        "length": lab.number(table.length[place]),
        "reward": lab.number(found.reward[place]),
        "reward_before": lab.number(table.reward[place]),
        "reward_against": lab.number(other.found.reward[place]) if other else None,
        "advantage": lab.number(side.advantage[place]),
        "advantage_against": lab.number(other.advantage[place]) if other else None,
        "rank": int(side.rank[place]) or None,
        "rank_before": int(rank_before[place]) or None,
        "parts": {item.name: lab.number(found.parts[item.name][place]) for item in found.components},
        "terms": {item.name: lab.number(item.weight * found.terms[item.name][place]) for item in found.components},
    }


def _outcome_at(side: _Side, place: int) -> words.Outcome:
    """The outcome of a rollout's task as this spec judges it."""
    if not side.found.included[place]:
        return words.Outcome.EXCLUDED
    return words.outcome_of(float(side.outcome.value[place]) if side.outcome else None)


def excluded_sentence(
    table: lab.Table, found: lab.Scored, columns: dict[str, lab.Column], place: int, failed: str = ""
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


def reason_of(item: RewardComponent, column: lab.Column, code: int, failed: str = "") -> str:
    """Why a value is missing."""
    if code >= 0:
        return in_words(column.reasons[code])
    if not lab.is_asked(item):
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


def _alarm_json(table: lab.Table, alarm: lab.Alarm, side: _Side) -> dict[str, Any]:
    shown_figures = {name: _figure_text(value) for name, value in alarm.figures.items()}
    labels = _figure_labels()
    return {
        "code": alarm.code,
        "severity": alarm.severity,
        "component": alarm.component,
        "title": _(lab.ALARMS[alarm.code].title),
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


# --- One rollout ----------------------------------------------------------------------------------------------------
# The answer to ``lab-rollout``: one rollout, the value of each component, and the text that it comes from.

MAX_SPANS = 200
Value = tuple[float | None, str, list[Span]]


def rollout_reply(rollout_set: RolloutSet, rollout: UUID, request: RolloutRequest, user: User) -> dict[str, Any] | None:
    """The answer; ``None`` where the set has no such rollout. Raises ``DataError`` when its files are gone, and
    ``TooMany``."""
    table = table_of(rollout_set)
    place = table.place_of(rollout)
    if place is None:
        return None
    episode = lab.episode_at(table, place)
    columns = known_columns(rollout_set, table, request.components)
    values = _values_of(table, place, episode, request.components, columns, user)
    raw = {name: value for name, (value, _reason, _spans) in values.items() if value is not None}
    terms = terms_of(raw, request.components, int(table.step[place]) if request.step is None else request.step)
    found = lab.scored(table, request.components, columns, request.step)
    return {
        "id": str(rollout),
        "step": int(table.step[place]),
        "group": int(table.group[place]),
        "index": int(table.index[place]),
        "policy": table.meta["policies"][table.policy[place]],
        "excluded": translated(table.reason_of(place)) or None,
        "messages": [_shorten_message(message.model_dump(exclude_none=True)) for message in episode.messages],
        "prompt_length": episode.prompt_length,
        "parts": {item.name: _part_json(item, values, terms) for item in request.components if item.name in values},
        "reward": lab.number(found.reward[place]),
        "advantage": _advantage_at(table, found, place, request),
    }


def _values_of(
    table: lab.Table,
    place: int,
    episode: Episode,
    components: list[RewardComponent],
    columns: dict[str, lab.Column],
    user: User,
) -> dict[str, Value]:
    """The value of each component that counts for the row: recorded or kept, else computed now."""
    chosen = [item for item in components if lab.counted(table, item)[place]]
    kept = {item.name: float(columns[item.name].value[place]) for item in chosen}
    known = [item.name for item in chosen if np.isfinite(kept[item.name]) or not lab.is_asked(item)]
    asked = Asked(episode=episode, components=chosen, known=known, spans=MAX_SPANS, sandbox=True)
    (values,) = scorers.ask(user.pk, [asked], TRY_LIMIT_S)
    found: dict[str, Value] = {}
    for item in chosen:
        answer = values[item.name]
        value = kept[item.name] if np.isfinite(kept[item.name]) else answer.value
        reason = in_words(answer.why) if value is None else ""
        if value is None and not reason:
            reason = reason_of(item, columns[item.name], int(columns[item.name].code[place]))
        found[item.name] = value, reason, answer.spans
    return found


def _part_json(item: RewardComponent, values: dict[str, Value], terms: dict[str, float]) -> dict[str, Any]:
    value, reason, spans = values[item.name]
    return {
        "title": title_of(item),
        "value": value,
        "term": item.weight * terms[item.name] if item.name in terms else None,
        "reason": reason or None,
        "spans": [span._asdict() | {"note": _(span.note) if span.note else ""} for span in spans],
    }


def _advantage_at(table: lab.Table, found: lab.Scored, place: int, request: RolloutRequest) -> float | None:
    return lab.number(lab.advantages(table, found, request.aggregation, request.scale)[place])


def _shorten_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message as a page shows it: content over the limit is cut and marked as ``shortened``."""
    if len(message["content"]) <= CONTENT_MAX:
        return message
    return {**message, "content": message["content"][:CONTENT_MAX], "shortened": True}


# --- Texts ----------------------------------------------------------------------------------------------------------
# The texts of the lab's scripts.


def lab_strings() -> dict[str, str]:
    """Those of a transcript, and the lab's own."""
    return {
        **run_strings(),
        **_scoring_strings(),
        **_editing_strings(),
        **_figure_strings(),
        **_turn_strings(),
        **_group_strings(),
        **_reading_strings(),
    }


def _scoring_strings() -> dict[str, str]:
    return {
        "lab.scoring": _("Scoring {n} rollouts…"),
        "lab.scored": _("Scored {n} rollouts in {t}"),
        "lab.rescored": _("Scored {n} rollouts in {t}; recomputed: {names}"),
        "lab.ms": _("{n} ms"),
        "lab.computing": _("Computing {names}: {done} of {all} rollouts"),
        "lab.failed": _("The figures below are from before the last change."),
        "lab.no_answer": _(
            "No answer within {n} s. The set may be too large: try again, or create a set of fewer steps."
        ),
    }


def _editing_strings() -> dict[str, str]:
    return {
        "lab.weight_of": _("Weight of {title}"),
        "lab.remove": _("Remove {title}"),
        "lab.unknown": _("This component is no longer known; remove it to score."),
        "lab.outside": _("Needs an external model: recorded values are used, others are missing."),
        "lab.not_number": _("Enter a number."),
        "lab.not_whole": _("Enter a whole number."),
        "lab.needs_both": _("Fill in both ends, or neither."),
        "lab.sum": _("Weights sum to {sum}"),
        "lab.no_sum": _("Weights sum to –"),
        "lab.unchanged": _("as saved"),
        "lab.count_wrong": _("{n} to fix"),
        "lab.count_changed": _("{n} changed"),
        "lab.as_saved": _("{name} as saved"),
        "lab.none": _("A spec needs at least one component."),
        "lab.fix_first": _("Fix the marked fields; the figures wait until then."),
        "lab.saving": _("Saving…"),
        "lab.saved": _("{name} is saved."),
    }


def _figure_strings() -> dict[str, str]:
    return {
        "lab.before": _("before {value}"),
        "lab.groups_of": _("{n} of {all} groups"),
        "lab.rollouts_of": _("{n} of {all} rollouts"),
        "lab.phantom_groups": _("Phantom groups"),
        "lab.agreement": _("Agreement"),
        "lab.nothing_compared": _("nothing changed yet"),
        "lab.values": _("Values"),
        "lab.mean": _("Mean"),
        "lab.std": _("Std"),
        "lab.range": _("Range used"),
        "lab.r_outcome": _("r outcome"),
        "lab.r_length": _("r length"),
        "lab.share": _("Share"),
        "lab.missing": _("Missing"),
        "lab.constant": _("constant"),
        "lab.rank_correlation": _("rank correlation with {name}"),
        "lab.outcome_is": _("Outcome: {name}"),
        "lab.no_outcome": _("No component reports whether the task succeeded."),
        "lab.stop": _("stop"),
        "lab.warn": _("warning"),
        "lab.note": _("note"),
        "lab.evidence": _("Examples"),
        "lab.evidence_label": _("Rollout {n}, an example of: {title}"),
        "lab.no_alarms": _("No alarms: no sign that this reward can be gamed."),
        "lab.used": _("Uses {low} to {high} of {from} to {to}"),
        "lab.histogram": _("{n} rollouts from {low} to {high}"),
        "lab.missing_of": _("{name} is missing for {n} rollouts: {reason}"),
    }


def _turn_strings() -> dict[str, str]:
    return {
        "lab.turns.turn": _("Turn"),
        "lab.turns.rollouts": _("Rollouts"),
        "lab.turns.gain": _("Gain"),
        "lab.turns.spread": _("Spread"),
        "lab.turns.turned_1": _("Sign changes, discount 1"),
        "lab.turns.turned_0": _("Sign changes, discount 0"),
        "lab.turns.known": _("Rewards by turn recorded of {n} of {all} rollouts"),
        "lab.turns.aggregation": _("Credit to turns divides the sum of components; here each is compared by itself."),
        "lab.turns.pays": _("Turns are paid in the environment's own reward, and this spec has no task_success."),
        "lab.turns.not_recorded": _(
            "These rollouts were recorded without the environment's reward after each turn. Newer runs record it."
        ),
        "lab.turns.at_the_end": _(
            "The environment gave its reward only at the end, so each turn would have the rollout's advantage."
        ),
        "lab.turns.one_turn": _("No rollout has more than one turn."),
        "lab.turns.reached": _(
            "A turn is compared with the rollouts of its group that reached it: if those are few or mostly bad, its "
            "figures are biased."
        ),
        "lab.turns.silent": _("{n} rollouts without a reward before the end keep their advantage."),
        "lab.turns.hidden": _("{n} later turns are not shown."),
    }


def _group_strings() -> dict[str, str]:
    return {
        "lab.group": _("Step {step} · group {group}"),
        "lab.phantom": _("phantom"),
        "lab.phantom_help": _("The rewards differ although all outcomes are the same."),
        "lab.shown": _("{from}–{to} of {all} groups"),
        "lab.no_groups": _("No group matches."),
        "lab.ranks_recorded": _("↑↓ places moved in the group, against the recorded rewards"),
        "lab.ranks_against": _("↑↓ places moved in the group, against {name}"),
        "lab.recorded": _("recorded {value}"),
        "lab.rank_up": _("{n} up in its group"),
        "lab.rank_down": _("{n} down in its group"),
        "lab.card": _("Step {step}, group {group}, rollout {index}: {status}, reward {reward}, advantage {advantage}"),
        "lab.length": _("length {n}"),
    }


def _reading_strings() -> dict[str, str]:
    return {
        "lab.choose": _("Choose a rollout to read what earned its reward."),
        "lab.not_computed": _("not computed"),
        "lab.nothing_marked": _("No span of text earned this value: it follows from the whole episode."),
        "lab.whole_message": _("the whole message"),
        "lab.messages": _("message"),
        "lab.task_prompt": _("from the task"),
        "lab.hint": _("Point at a component to see the text that earned it."),
    }
