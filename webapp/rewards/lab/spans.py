"""The answer to ``lab-rollout``: one rollout, the value of each component, and the text that it comes from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.rewards.base import Episode, Span
from training.rewards.combining import terms_of
from training.rewards.lab import Column, Scored, Table, advantages, counted, episode_at, is_asked, number, scored
from training.rewards.scorer.wire import Asked
from webapp.common.text import in_words, translated
from webapp.people.teams.models import User
from webapp.rewards.lab.requests import RolloutRequest
from webapp.rewards.lab.scoring import known_columns, table_of
from webapp.rewards.lab.view import reason_of
from webapp.rewards.models import RolloutSet
from webapp.rewards.scorers.asking import scorers
from webapp.rewards.services import TRY_LIMIT_S
from webapp.runs.answers import CONTENT_MAX
from webapp.runs.config import title_of

MAX_SPANS = 200
Value = tuple[float | None, str, list[Span]]


def rollout_reply(rollout_set: RolloutSet, rollout: UUID, request: RolloutRequest, user: User) -> dict[str, Any] | None:
    """The answer; ``None`` where the set has no such rollout. Raises ``DataError`` when its files are gone, and
    ``TooMany``."""
    table = table_of(rollout_set)
    place = table.place_of(rollout)
    if place is None:
        return None
    episode = episode_at(table, place)
    columns = known_columns(rollout_set, table, request.components)
    values = _values_of(table, place, episode, request.components, columns, user)
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
        "messages": [_shorten_message(message.model_dump(exclude_none=True)) for message in episode.messages],
        "prompt_length": episode.prompt_length,
        "parts": {item.name: _part_json(item, values, terms) for item in request.components if item.name in values},
        "reward": number(found.reward[place]),
        "advantage": _advantage_at(table, found, place, request),
    }


def _values_of(
    table: Table,
    place: int,
    episode: Episode,
    components: list[RewardComponent],
    columns: dict[str, Column],
    user: User,
) -> dict[str, Value]:
    """The value of each component that counts for the row: recorded or kept, else computed now."""
    chosen = [item for item in components if counted(table, item)[place]]
    kept = {item.name: float(columns[item.name].value[place]) for item in chosen}
    known = [item.name for item in chosen if np.isfinite(kept[item.name]) or not is_asked(item)]
    asked = Asked(episode=episode, components=chosen, known=known, spans=MAX_SPANS, sandbox=True)
    (said,) = scorers.ask(user.pk, [asked], TRY_LIMIT_S)
    found: dict[str, Value] = {}
    for item in chosen:
        answer = said[item.name]
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


def _advantage_at(table: Table, found: Scored, place: int, request: RolloutRequest) -> float | None:
    return number(advantages(table, found, request.aggregation, request.scale)[place])


def _shorten_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message as a page shows it: content over the limit is cut and marked as ``shortened``."""
    if len(message["content"]) <= CONTENT_MAX:
        return message
    return {**message, "content": message["content"][:CONTENT_MAX], "shortened": True}
