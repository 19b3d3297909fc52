"""Task by task: who solves what, by category, and a task's tries side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils.translation import gettext as _

from training.evaluation import Interval, Sheet
from webapp.common.answers import in_shape
from webapp.evaluation.comparison.contestants import Contestant, rollouts_of
from webapp.evaluation.comparison.figures import Numbers
from webapp.runs import answers
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

SOLVED_FROM = 0.5
GROUPS = ("gained", "lost", "both", "neither", "missing")
CATEGORIES_SHOWN = 40


class TaskLine(NamedTuple):
    """A task: its number, first words and category, and by name the share of tries that each contestant solves."""

    task: int
    text: str
    category: str
    shares: list[tuple[str, float | None]]


class CategoryLine(NamedTuple):
    """The success of each contestant on the tasks of one category."""

    name: str
    tasks: int
    intervals: list[tuple[str, Interval]]


def title_of_group(group: str, first: str, second: str) -> str:
    """The title of a group of tasks."""
    return {
        "gained": _("%(b)s solves, %(a)s fails") % {"a": first, "b": second},
        "lost": _("%(a)s solves, %(b)s fails") % {"a": first, "b": second},
        "both": _("both solve"),
        "neither": _("neither solves"),
        "missing": _("one has no try that counts"),
    }[group]


def grouped(first: Sheet, second: Sheet) -> dict[str, list[int]]:
    """The tasks of two contestants by who solves them; a task is solved where more than half of its tries are."""
    a, b = success_by_task(first), success_by_task(second)
    groups: dict[str, list[int]] = {name: [] for name in GROUPS}
    for task in sorted(a.keys() | b.keys()):
        one, other = a.get(task), b.get(task)
        if one is None or other is None:
            groups["missing"].append(task)
        else:
            solved = one > SOLVED_FROM, other > SOLVED_FROM
            name = {(False, True): "gained", (True, False): "lost", (True, True): "both"}.get(solved, "neither")
            groups[name].append(task)
    return groups


def success_by_task(sheet: Sheet) -> dict[int, float | None]:
    """The share of a task's tries that solve it; ``None`` where none counts."""
    values = sheet.of("success")
    return {task: None if np.isnan(value) else float(value) for task, value in zip(sheet.tasks, values, strict=True)}


def lines_of(
    contestants: Sequence[Contestant], sheets: Sequence[Sheet], tasks: Sequence[int], categories: Mapping[int, str]
) -> list[TaskLine]:
    """The lines of these tasks."""
    shares = [(item.run.name, success_by_task(sheet)) for item, sheet in zip(contestants, sheets, strict=True)]
    texts = texts_of(contestants, tasks)
    return [
        TaskLine(
            task, texts.get(task, ""), categories.get(task, ""), [(name, share.get(task)) for name, share in shares]
        )
        for task in tasks
    ]


def texts_of(contestants: Sequence[Contestant], tasks: Sequence[int]) -> dict[int, str]:
    """The first words of tasks."""
    rows = Rollout.objects.filter(rollouts_of(contestants), row__in=list(tasks)).order_by("row").distinct("row")
    return {row.row: row.task for row in rows.only("row", "task") if row.row is not None}


def by_category(contestants: Sequence[Contestant], numbers: Numbers) -> list[CategoryLine]:
    """The success of each contestant by category, the largest first; none where there is only one category."""
    if not numbers.by_category:
        return []
    sizes = Counter(numbers.categories.values())
    return [
        CategoryLine(
            name,
            sizes[name],
            [(item.run.name, found[name]) for item, found in zip(contestants, numbers.by_category, strict=True)],
        )
        for name in sorted(sizes, key=lambda name: (-sizes[name], name))[:CATEGORIES_SHOWN]
    ]


# --- Tries ----------------------------------------------------------------------------------------------------------
# One task, as several contestants played it, side by side.

MOST_TRIES = 64
MOST_READ = 4 * MOST_TRIES
"""How many tries of one run are read, those of lost attempts included."""
Row = tuple[list[list[dict[str, Any]]], bool]
"""A turn of several episodes: the messages of each, and whether they are the same in all."""


class PlayedTask(NamedTuple):
    """A contestant's tries of a task, and the one that is shown; ``None`` where it has no such try."""

    contestant: Contestant
    tries: list[Rollout]
    shown: Rollout | None
    turns: list[dict[str, Any]]


def played_tasks(contestants: Sequence[Contestant], task: int, number: int) -> list[PlayedTask]:
    """The try ``number`` (from 0) of a task, of each contestant: two queries for all of them."""
    tries = {run: found for (run, _task), found in tries_of(contestants, [task]).items()}
    shown = {pk: found[number] for pk, found in tries.items() if number < len(found)}
    turns: dict[UUID, list[dict[str, Any]]] = {}
    for turn in Turn.objects.filter(rollout__in=[rollout.pk for rollout in shown.values()]).order_by("number"):
        turns.setdefault(turn.run_id, []).append(in_shape(answers.Turn, turn))
    return [
        PlayedTask(item, tries.get(item.run.pk, []), shown.get(item.run.pk), turns.get(item.run.pk, []))
        for item in contestants
    ]


def tries_of(contestants: Sequence[Contestant], tasks: Sequence[int]) -> dict[tuple[UUID, int], list[Rollout]]:
    """Each run's tries of each task in the order of their places, ``MOST_TRIES`` at most; of a place that two attempts
    played, the later one's. One query for all."""
    order = [F("step").asc(), F("group").asc(), F("index").asc(), F("attempt").desc()]
    rows = Rollout.objects.filter(rollouts_of(contestants), row__in=list(tasks)).exclude(status=RolloutStatus.RUNNING)
    rows = rows.annotate(place=Window(RowNumber(), partition_by=[F("run"), F("row")], order_by=order))
    found: dict[tuple[UUID, int], dict[tuple[int, int, int], Rollout]] = {}
    for item in rows.filter(place__lte=MOST_READ).order_by("run", "row", "place"):
        if item.row is not None:
            found.setdefault((item.run_id, item.row), {}).setdefault((item.step, item.group, item.index), item)
    return {key: list(places.values())[:MOST_TRIES] for key, places in found.items()}


def aligned(found: Sequence[PlayedTask]) -> list[Row]:
    """The turns of contestants side by side."""
    return side_by_side([item.turns for item in found])


def side_by_side(episodes: Sequence[list[dict[str, Any]]]) -> list[Row]:
    """For each turn the messages of each episode, and whether they are the same in all."""
    rows = []
    for turns in zip_longest(*episodes):
        messages_of_each = [turn["messages"] if turn else [] for turn in turns]
        rows.append((messages_of_each, all(messages == messages_of_each[0] for messages in messages_of_each)))
    return rows
