"""Turns that were recorded before turns had ``words``: they and their rollouts get what new ones have from the start.

The clockwork asks every minute. A rollout is done at once with all of its turns, so that its index
is complete. Nothing that a page shows live changes, so no ``seq`` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from webapp.runs.rollouts.figures import Played, note, surprises
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of

AT_ONCE = 500  # turns that name the rollouts of a batch
SECONDS = 30.0
Place = tuple[UUID, int, int, int]
SET_WORDS = (
    "UPDATE rollouts_turn AS turn SET words = new.words::int[]"
    " FROM unnest(%s::uuid[], %s::int[], %s::text[]) AS new (rollout, number, words)"
    " WHERE turn.rollout_id = new.rollout AND turn.number = new.number"
)


def index_older() -> None:
    """Continue for a while, batch by batch."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and index_batch():
        pass


def index_batch() -> int:
    """Index the rollouts of some turns that are not; returns how many turns that were."""
    ids = list(Turn.objects.filter(words=None).order_by().values_list("rollout", flat=True)[:AT_ONCE])
    if not ids:
        return 0
    rollouts = Rollout.objects.in_bulk(set(ids))
    turns = list(Turn.objects.filter(rollout__in=rollouts).order_by("rollout", "number"))
    for rollout in rollouts.values():
        rollout.tools, rollout.characters = [], 0
    words = words_of(turns)
    for turn in turns:
        note(rollouts[turn.rollout_id], turn.messages, turn.number)
    rare = _with_surprise(list(rollouts.values()))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SET_WORDS, words)
        Rollout.objects.bulk_update(rollouts.values(), ["tools", "characters"], batch_size=500)
        Rollout.objects.bulk_update(rare, ["surprise"], batch_size=500)
    return len(turns)


def words_of(turns: Sequence[Turn]) -> list[list[Any]]:
    """What the search finds turns by, as ``SET_WORDS`` takes it."""
    words = [f"{{{','.join(map(str, numbers_of(turn.run_id, turn.messages, turn.wrote)))}}}" for turn in turns]
    return [[turn.rollout_id for turn in turns], [turn.number for turn in turns], words]


def _with_surprise(rollouts: list[Rollout]) -> list[Rollout]:
    """The rollouts of the same groups, those that were scored, each with its surprise."""
    wanted = Q(pk=None)
    for place in {_group_of(item) for item in rollouts if not item.held_out and item.advantage is not None}:
        wanted |= Q(**dict(zip(("run", "attempt", "step", "group"), place, strict=True)), held_out=False)
    groups: dict[Place, list[Any]] = {}
    for item in Rollout.objects.filter(wanted).only("run", "attempt", "step", "group", "outcome", "reward"):
        groups.setdefault(_group_of(item), []).append(item)
    for group in groups.values():
        played = [None if item.reward is None else Played(item.outcome, item.reward) for item in group]
        for item, rare in zip(group, surprises(played), strict=True):
            item.surprise = rare
    return [item for group in groups.values() for item in group]


def _group_of(item: Rollout) -> Place:
    return item.run_id, item.attempt, item.step, item.group
