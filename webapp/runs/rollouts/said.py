"""What rollouts say: the words around a phrase that was found, the last words of the model, the errors of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q

from training.rewards.base import ERROR_PREFIXES
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
        if turn.rollout_id not in found and (snippet := snippet_in(turn, phrase)):
            found[turn.rollout_id] = snippet
    return found


def snippet_in(turn: Turn, phrase: str) -> Snippet | None:
    """The first place of a turn that holds the phrase."""
    wanted = re.compile(re.escape(phrase), re.IGNORECASE)  # lower() makes two characters of some, such as İ
    for text in (*texts_of(turn.messages), turn.wrote):
        if (found := wanted.search(text)) is not None:
            at, end = found.span()
            before, after = text[max(0, at - AROUND) : at], text[end : end + AROUND]
            return Snippet(
                turn.number,
                ("…" if at > AROUND else "") + before,
                text[at:end],
                after + ("…" if end + AROUND < len(text) else ""),
            )
    return None


# --- Last words -----------------------------------------------------------------------------------------------------

LAST_CHARS = 240
LAST_TURNS = 3  # which are read: a last turn may hold calls only
LAST_MESSAGE = r"""
SELECT wanted.id, said.text FROM unnest(%s::uuid[]) AS wanted (id), LATERAL (
    SELECT right(message ->> 'content', {longest}) AS text
    FROM (
        SELECT number, messages FROM rollouts_turn WHERE rollout_id = wanted.id AND number > 0
        ORDER BY number DESC LIMIT {turns}
    ) AS turn, jsonb_array_elements(turn.messages) WITH ORDINALITY AS each (message, place)
    WHERE message ->> 'role' = %s AND message ->> 'content' ~ %s
    ORDER BY turn.number DESC, each.place DESC LIMIT 1
) AS said
"""
ERROR_TURNS = 64


def last_words(ids: Sequence[UUID]) -> dict[UUID, str]:
    """The end of the last text that the model wrote in each rollout, by rollout, on one line; one query for all."""
    return _last_messages(ids, "assistant", r"\S", LAST_TURNS)


def last_errors(ids: Sequence[UUID]) -> dict[UUID, str]:
    """The end of the last error that a tool answered with in each rollout, by rollout, on one line; one query for
    all."""
    return _last_messages(ids, "tool", rf"^\s*({'|'.join(ERROR_PREFIXES)})", ERROR_TURNS)


def array_of(ids: Sequence[UUID]) -> str:
    """Ids as PostgreSQL writes an array: ten thousand objects as a parameter would take longer than a query."""
    return f"{{{','.join(map(str, ids))}}}"


def _last_messages(ids: Sequence[UUID], role: str, pattern: str, turns: int) -> dict[UUID, str]:
    if not ids:
        return {}
    with connection.cursor() as cursor:
        statement = LAST_MESSAGE.format(longest=4 * LAST_CHARS, turns=turns)
        cursor.execute(statement, [array_of(ids), role, pattern])
        texts = {rollout: " ".join(text.split()) for rollout, text in cursor.fetchall()}
    return {rollout: text if len(text) <= LAST_CHARS else f"…{text[-LAST_CHARS:]}" for rollout, text in texts.items()}
