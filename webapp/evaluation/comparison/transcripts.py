"""One task, as several contestants played it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from webapp.evaluation.comparison.contestants import Contestant
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import turn_view

MOST_TRIES = 64
MOST_READ = 4 * MOST_TRIES
"""How many tries of one run are read, those of lost attempts included."""
Row = tuple[list[list[dict[str, Any]]], bool]
"""A turn of several episodes: the messages of each, and whether all said the same."""


class Played(NamedTuple):
    """A contestant's tries of a task, and the one that is shown; ``None`` where it has no such try."""

    contestant: Contestant
    tries: list[Rollout]
    shown: Rollout | None
    turns: list[dict[str, Any]]


def played(contestants: Sequence[Contestant], task: int, number: int) -> list[Played]:
    """The try ``number`` (from 0) of a task, of each contestant: two queries for all of them."""
    tries = _tries_by_run([item.run.pk for item in contestants], task)
    shown = {pk: found[number] for pk, found in tries.items() if number < len(found)}
    turns: dict[UUID, list[dict[str, Any]]] = {}
    for turn in Turn.objects.filter(rollout__in=[rollout.pk for rollout in shown.values()]).order_by("number"):
        turns.setdefault(turn.run_id, []).append(turn_view(turn))
    return [
        Played(item, tries.get(item.run.pk, []), shown.get(item.run.pk), turns.get(item.run.pk, []))
        for item in contestants
    ]


def _tries_by_run(runs: Sequence[UUID], task: int) -> dict[UUID, list[Rollout]]:
    """Each run's tries of a task in the order of their places, ``MOST_TRIES`` at most; of a place that two attempts
    played, the later one's."""
    order = [F("step").asc(), F("group").asc(), F("index").asc(), F("attempt").desc()]
    rows = Rollout.objects.filter(run__in=runs, row=task).exclude(status=RolloutStatus.RUNNING)
    rows = rows.annotate(place=Window(RowNumber(), partition_by=[F("run")], order_by=order))
    found: dict[UUID, dict[tuple[int, int, int], Rollout]] = {}
    for row in rows.filter(place__lte=MOST_READ).order_by("run", "place"):
        found.setdefault(row.run_id, {}).setdefault((row.step, row.group, row.index), row)
    return {pk: list(places.values())[:MOST_TRIES] for pk, places in found.items()}


def aligned(found: Sequence[Played]) -> list[Row]:
    """The turns of contestants side by side."""
    return side_by_side([item.turns for item in found])


def side_by_side(episodes: Sequence[list[dict[str, Any]]]) -> list[Row]:
    """For each turn the messages of each episode, and whether all said the same."""
    rows = []
    for turns in zip_longest(*episodes):
        said = [turn["messages"] if turn else [] for turn in turns]
        rows.append((said, all(messages == said[0] for messages in said)))
    return rows
