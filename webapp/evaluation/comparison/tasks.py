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

from training.evaluation import SUCCESS_PART, Interval, Sheet
from webapp.common.answers import in_shape
from webapp.datasets.models import Dataset
from webapp.datasets.rows import expected_of, row_of
from webapp.evaluation.comparison.contestants import Contestant, rollouts_of
from webapp.evaluation.comparison.figures import Numbers
from webapp.runs import answers
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import last_words

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


# Where two contestants differ: a few tasks that only one of them solves, with how each of them ended.

SHOWN = 3
"""Tasks of each side."""


class Ending(NamedTuple):
    """How a contestant ended a task: the share of its tries that solve it, the try that is shown, and the last words of
    that one."""

    contestant: Contestant
    share: float
    rollout: Rollout | None
    words: str


class Example(NamedTuple):
    """A task that one of two solves; ``number`` is the try that is shown of both, from 1. No ``expected`` answer where
    its row names none."""

    task: int
    text: str
    expected: str
    number: int
    endings: list[Ending]


class Side(NamedTuple):
    """The tasks that one solves and the other fails: how many there are, and those with the largest difference."""

    title: str
    tasks: int
    examples: list[Example]


def examples_of(playing: Sequence[Contestant], numbers: Numbers, pair: tuple[int, int]) -> list[Side]:
    """The tasks that the better of a pair solves and the worse fails, and the reverse: two queries for all."""
    better, worse = (playing[place] for place in pair)
    shares = [success_by_task(numbers.sheets[place]) for place in pair]
    groups = grouped(numbers.sheets[pair[1]], numbers.sheets[pair[0]])
    chosen = {name: _largest(groups[name], shares) for name in ("gained", "lost")}
    tries = tries_of([better, worse], [task for tasks in chosen.values() for task in tasks])
    drawn = {
        task: _shown_tries(tries, task, (better, worse) if name == "gained" else (worse, better))
        for name, tasks in chosen.items()
        for task in tasks
    }
    words = last_words([item.pk for _number, found in drawn.values() for item in found.values()])
    expected = {task: _expected_answer(better, numbers.datasets[pair[0]], task) for task in drawn}
    return [
        Side(
            title_of_group(name, worse.run.name, better.run.name),
            len(groups[name]),
            [_example((better, worse), task, shares, *drawn[task], words, expected[task]) for task in tasks],
        )
        for name, tasks in chosen.items()
    ]


def _largest(tasks: Sequence[int], shares: Sequence[Mapping[int, float | None]]) -> list[int]:
    """Those with the largest difference, then by their row."""
    first, second = shares
    return sorted(tasks, key=lambda task: (-abs((first[task] or 0.0) - (second[task] or 0.0)), task))[:SHOWN]


def _shown_tries(
    tries: Mapping[tuple[UUID, int], Sequence[Rollout]], task: int, who: tuple[Contestant, Contestant]
) -> tuple[int, dict[UUID, Rollout]]:
    """The number of the first try, from 1, that the first one solves and the second fails, and that try of each.

    Where excluded tries leave none, it is the first that the first one solves.
    """
    solver, failer = (tries.get((item.run.pk, task), []) for item in who)
    solved = [place for place, item in enumerate(solver) if _success(item) > SOLVED_FROM]
    failed = {
        place
        for place, item in enumerate(failer)
        if item.status != RolloutStatus.EXCLUDED and _success(item) <= SOLVED_FROM
    }
    place = next((place for place in solved if place in failed), solved[0] if solved else 0)
    found = {item.run.pk: each[place] for item, each in zip(who, (solver, failer), strict=True) if place < len(each)}
    return place + 1, found


def _success(rollout: Rollout) -> float:
    return float(rollout.env_parts.get(SUCCESS_PART) or 0.0)


def _example(
    who: tuple[Contestant, Contestant],
    task: int,
    shares: Sequence[Mapping[int, float | None]],
    number: int,
    shown: Mapping[UUID, Rollout],
    words: Mapping[UUID, str],
    expected: str,
) -> Example:
    endings = []
    for item, share in zip(who, shares, strict=True):
        rollout = shown.get(item.run.pk)
        said = words.get(rollout.pk, "") if rollout is not None else ""
        endings.append(Ending(item, share[task] or 0.0, rollout, said))
    text = next((rollout.task for rollout in shown.values()), "")
    return Example(task, text, expected, number, endings)


def _expected_answer(contestant: Contestant, dataset: Dataset | None, task: int) -> str:
    """The first expected answer of the task's row; empty where there is none."""
    row = row_of(dataset, task + 1) if dataset is not None else None
    found = expected_of(row, contestant.components) if row else []
    return found[0].text if found else ""
