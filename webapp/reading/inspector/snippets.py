"""The words around a phrase that was found: which turn of a rollout says it, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of_phrase, texts_of

AROUND = 80  # characters before and after


class Snippet(NamedTuple):
    """A phrase as a turn says it, with the text before and after it."""

    turn: int
    before: str
    said: str
    after: str


def snippets(rollouts: Sequence[Rollout], phrase: str) -> dict[UUID, Snippet]:
    """For each rollout the first turn that holds the phrase; one query for all."""
    if not phrase or not rollouts:
        return {}
    wanted = Q(rollout=None)
    for run in {item.run_id for item in rollouts}:
        numbers = numbers_of_phrase(run, phrase)
        wanted |= Q(run=run, rollout__in=[item.pk for item in rollouts if item.run_id == run], words__contains=numbers)
    found: dict[UUID, Snippet] = {}
    for turn in Turn.objects.filter(wanted).defer("words").order_by("rollout", "number"):
        if turn.rollout_id not in found and (snippet := _in_turn(turn, phrase)):
            found[turn.rollout_id] = snippet
    return found


def _in_turn(turn: Turn, phrase: str) -> Snippet | None:
    wanted = phrase.lower()
    for text in (*texts_of(turn.messages), turn.wrote):
        at = text.lower().find(wanted)
        if at >= 0:
            end = at + len(phrase)
            before, after = text[max(0, at - AROUND) : at], text[end : end + AROUND]
            return Snippet(
                turn.number,
                ("…" if at > AROUND else "") + before,
                text[at:end],
                after + ("…" if end + AROUND < len(text) else ""),
            )
    return None
