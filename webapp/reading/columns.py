"""Transcripts of a group side by side, turn by turn, with the first turn in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from webapp.reading.groups import Member
from webapp.reading.turns import Message, message_of
from webapp.runs.rollouts.models import Turn

MOST_COLUMNS = 4
ROWS = 24
TEXT_CHARS = 4_000
MOST_SEARCHED = 480
"""Turns in which the first difference is looked for."""


class Row(NamedTuple):
    """A turn of several rollouts. ``same``: all of them said the same; ``first``: the first turn of all in which they
    did not. A rollout that had ended before has no messages."""

    number: int
    messages: list[list[Message]]
    same: bool
    first: bool


class Beside(NamedTuple):
    """The rollouts that are shown, their turns from ``first`` on, and where the parts before and after begin."""

    shown: list[Member]
    rows: list[Row]
    first: int
    before: int | None
    after: int | None
    differs: int | None


def chosen_of(members: Sequence[Member], asked: Sequence[str]) -> list[Member]:
    """The rollouts that an address names by index; without any the best and the worst of the group."""
    indices = {int(text) for text in asked if text.isascii() and text.isdigit() and len(text) < 6}
    found = [member for member in members if member.rollout.index in indices][:MOST_COLUMNS]
    if found:
        return found
    known = [member for member in members if member.rollout.reward is not None]
    if len(known) < 2:
        return list(members[:2])
    best = max(known, key=lambda member: member.rollout.reward or 0.0)
    worst = min((item for item in known if item is not best), key=lambda member: member.rollout.reward or 0.0)
    return [best, worst]


def beside(shown: Sequence[Member], first: int) -> Beside:
    """The turns of these rollouts from number ``first`` on, ``ROWS`` of them."""
    ids = [member.rollout.pk for member in shown]
    found = _turn_messages(ids, first, first + ROWS)
    differs = _first_difference(ids)
    rows = []
    for number in range(first, first + ROWS):
        said = [found.get((pk, number), []) for pk in ids]
        if any(said):
            same = len(ids) < 2 or all(messages == said[0] for messages in said)
            drawn = [[message_of(raw, at, TEXT_CHARS) for at, raw in enumerate(messages)] for messages in said]
            rows.append(Row(number, drawn, same, number == differs))
    more = Turn.objects.filter(rollout__in=ids, number__gte=first + ROWS).exists()
    before = max(0, first - ROWS) if first else None
    return Beside(list(shown), rows, first, before, first + ROWS if more else None, differs)


def _turn_messages(ids: Sequence[UUID], first: int, end: int) -> dict[tuple[UUID, int], list[dict[str, Any]]]:
    rows = Turn.objects.filter(rollout__in=ids, number__gte=first, number__lt=end).defer("words")
    return {(turn.rollout_id, turn.number): turn.written for turn in rows}


def _first_difference(ids: Sequence[UUID]) -> int | None:
    """The number of the first turn in which they differ; ``None`` where they are the same."""
    if len(ids) < 2:
        return None
    for start in range(0, MOST_SEARCHED, ROWS):
        found = _turn_messages(ids, start, start + ROWS)
        if not found:
            return None
        for number in range(start, start + ROWS):
            said = [found.get((pk, number)) for pk in ids]
            if any(messages != said[0] for messages in said):
                return number
    return None
