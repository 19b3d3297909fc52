"""Task by task: who solves what, by category, and the tasks themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from training.evaluation.figures import Sheet
from training.evaluation.intervals import Interval, mean_intervals
from training.rewards.combining import CATEGORY_FIELDS
from training.rewards.facts import row_value
from webapp.comparison.contestants import Contestant
from webapp.rollouts.models import Rollout

SOLVED_FROM = 0.5
READ_BYTES = 256 << 20
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
    """What a group of tasks is called."""
    return {
        "gained": _("%(b)s solves, %(a)s fails") % {"a": first, "b": second},
        "lost": _("%(a)s solves, %(b)s fails") % {"a": first, "b": second},
        "both": _("both solve"),
        "neither": _("neither solves"),
        "missing": _("one has no try that counts"),
    }[group]


def grouped(first: Sheet, second: Sheet) -> dict[str, list[int]]:
    """The tasks of two contestants by who solves them; a task is solved where more than half of its tries are."""
    a, b = _shares(first), _shares(second)
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


def _shares(sheet: Sheet) -> dict[int, float | None]:
    values = sheet.of("success")
    return {task: None if np.isnan(value) else float(value) for task, value in zip(sheet.tasks, values, strict=True)}


def lines_of(
    contestants: Sequence[Contestant], sheets: Sequence[Sheet], tasks: Sequence[int], categories: Mapping[int, str]
) -> list[TaskLine]:
    """The lines of these tasks."""
    shares = [(item.run.name, _shares(sheet)) for item, sheet in zip(contestants, sheets, strict=True)]
    texts = _texts(contestants, tasks)
    return [
        TaskLine(
            task, texts.get(task, ""), categories.get(task, ""), [(name, share.get(task)) for name, share in shares]
        )
        for task in tasks
    ]


def _texts(contestants: Sequence[Contestant], tasks: Sequence[int]) -> dict[int, str]:
    runs = [item.run.pk for item in contestants]
    rows = Rollout.objects.filter(run__in=runs, row__in=list(tasks)).order_by("row").distinct("row")
    return {row.row: row.task for row in rows.only("row", "task") if row.row is not None}


def categories_of_tasks(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """What the dataset's rows say that they are, in the first field that one of them has. Empty where they say nothing.

    Reading ends after ``READ_BYTES`` of a dataset; later tasks have no category.
    """
    if contestant.config is None or not contestant.config.data.train or not tasks:
        return {}
    wanted, found = set(tasks), dict[int, str]()
    try:
        with Path(contestant.config.data.train).open("rb") as file:
            left = READ_BYTES
            for place, line in enumerate(islice(file, max(wanted) + 1)):
                left -= len(line)
                if left < 0:
                    break
                if place in wanted and (category := _category(line)):
                    found[place] = category
    except OSError:
        return {}
    return found


def _category(line: bytes) -> str:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    values = (row_value(row, field) for field in CATEGORY_FIELDS)
    return next((value[:80] for value in values if isinstance(value, str) and value), "")


def by_category(
    contestants: Sequence[Contestant], sheets: Sequence[Sheet], categories: Mapping[int, str]
) -> list[CategoryLine]:
    """The success of each contestant by category, the largest first; none where there is only one category."""
    names: dict[str, int] = {}
    for category in categories.values():
        names[category] = names.get(category, 0) + 1
    if len(names) < 2:
        return []
    order = sorted(names, key=lambda name: (-names[name], name))[:CATEGORIES_SHOWN]
    found: dict[str, list[tuple[str, Interval]]] = {name: [] for name in order}
    for contestant, sheet in zip(contestants, sheets, strict=True):
        of = np.array([categories.get(task, "") for task in sheet.tasks])
        success = sheet.of("success")
        columns = np.column_stack([np.where(of == name, success, np.nan) for name in order])
        for name, interval in zip(order, mean_intervals(columns), strict=True):
            found[name].append((contestant.run.name, interval))
    return [CategoryLine(name, names[name], found[name]) for name in order]
