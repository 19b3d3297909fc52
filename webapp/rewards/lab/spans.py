"""The answer to ``lab-rollout``: one rollout, what each component says of it, and the text that it comes from."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.errors import TiltyardError
from training.rewards.base import Episode, Span
from training.rewards.combining import terms_of
from training.rewards.lab.figures import number
from training.rewards.lab.groups import advantages
from training.rewards.lab.scoring import is_asked
from training.rewards.lab.table import Table, episode_at
from training.rewards.lab.terms import Scored, counted, scored
from training.rewards.lab.values import Column
from training.rewards.scoring import raw_value, resolve
from webapp.rewards.lab.requests import RolloutRequest
from webapp.rewards.lab.scoring import known_columns, table_of
from webapp.rewards.lab.view import reason_of
from webapp.rewards.models import RolloutSet
from webapp.rewards.services import TRY_LIMIT_S, scorers
from webapp.rollouts.selectors import CONTENT_MAX
from webapp.runs.config import title_of
from webapp.text import in_words, translated

MAX_SPANS = 200
Value = tuple[float | None, str, list[Span]]


def rollout_reply(rollout_set: RolloutSet, rollout: UUID, request: RolloutRequest) -> dict[str, Any] | None:
    """The answer; ``None`` where the set has no such rollout. Raises ``DataError`` when its files are gone."""
    table = table_of(rollout_set)
    place = table.place_of(rollout)
    if place is None:
        return None
    episode = episode_at(table, place)
    columns = known_columns(rollout_set, table, request.components)
    values = _values(table, place, episode, request.components, columns)
    raw = {name: value for name, (value, _reason, _spans) in values.items() if value is not None}
    terms = terms_of(raw, request.components, int(table.step[place]) if request.step is None else request.step)
    found = scored(table, request.components, columns, request.step)
    return {
        "id": str(rollout),
        "step": int(table.step[place]),
        "group": int(table.group[place]),
        "index": int(table.index[place]),
        "policy": table.meta["policies"][table.policy[place]],
        "excluded": translated(table.reason_of(place)) or None,
        "messages": [_message(message.model_dump(exclude_none=True)) for message in episode.messages],
        "prompt_length": episode.prompt_length,
        "parts": {item.name: _part(item, values, terms) for item in request.components if item.name in values},
        "reward": number(found.reward[place]),
        "advantage": _advantage(table, found, place, request),
    }


def _values(
    table: Table, place: int, episode: Episode, components: list[RewardComponent], columns: dict[str, Column]
) -> dict[str, Value]:
    """What each component that counts for the row says: as it was recorded or kept, else computed now."""
    asked = {
        item.name: scorers.submit(_value, item, episode, columns[item.name], place)
        for item in components
        if counted(table, item)[place]
    }
    found: dict[str, Value] = {}
    for item in components:
        if item.name not in asked:
            continue
        try:
            value, why, spans = asked[item.name].result(timeout=TRY_LIMIT_S)
            reason = in_words(why) if why else ""
        except FutureTimeout:
            value, reason, spans = None, _("Scoring took longer than %(s)g seconds.") % {"s": TRY_LIMIT_S}, []
        if value is None and not reason:
            reason = reason_of(item, columns[item.name], int(columns[item.name].code[place]))
        found[item.name] = value, reason, spans
    return found


def _value(item: RewardComponent, episode: Episode, column: Column, place: int) -> Value:
    component, params = resolve(item)
    spans: list[Span] = []
    if component.spans is not None:
        spans = component.spans(episode, params)[:MAX_SPANS]
    if np.isfinite(column.value[place]):
        return float(column.value[place]), "", spans
    if not is_asked(item):
        return None, "", spans
    try:
        return raw_value(item.name, component, params, episode), "", spans
    except TiltyardError as exc:
        return None, exc.message, spans


def _part(item: RewardComponent, values: dict[str, Value], terms: dict[str, float]) -> dict[str, Any]:
    value, reason, spans = values[item.name]
    return {
        "title": title_of(item),
        "value": value,
        "term": item.weight * terms[item.name] if item.name in terms else None,
        "reason": reason or None,
        "spans": [span._asdict() | {"note": _(span.note) if span.note else ""} for span in spans],
    }


def _advantage(table: Table, found: Scored, place: int, request: RolloutRequest) -> float | None:
    return number(advantages(table, found, request.aggregation, request.scale)[place])


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message as a screen shows it: what is longer than the limit is cut, and says so."""
    if len(message["content"]) <= CONTENT_MAX:
        return message
    return {**message, "content": message["content"][:CONTENT_MAX], "shortened": True}
