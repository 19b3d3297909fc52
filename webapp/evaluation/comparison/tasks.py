"""Task by task: who solves what, by category, and the tasks themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from training.evaluation.figures import Sheet
from training.evaluation.intervals import Interval
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import Numbers
from webapp.runs.rollouts.models import Rollout

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
    a, b = _success_by_task(first), _success_by_task(second)
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


def _success_by_task(sheet: Sheet) -> dict[int, float | None]:
    values = sheet.of("success")
    return {task: None if np.isnan(value) else float(value) for task, value in zip(sheet.tasks, values, strict=True)}


def lines_of(
    contestants: Sequence[Contestant], sheets: Sequence[Sheet], tasks: Sequence[int], categories: Mapping[int, str]
) -> list[TaskLine]:
    """The lines of these tasks."""
    shares = [(item.run.name, _success_by_task(sheet)) for item, sheet in zip(contestants, sheets, strict=True)]
    texts = texts_of(contestants, tasks)
    return [
        TaskLine(
            task, texts.get(task, ""), categories.get(task, ""), [(name, share.get(task)) for name, share in shares]
        )
        for task in tasks
    ]


def texts_of(contestants: Sequence[Contestant], tasks: Sequence[int]) -> dict[int, str]:
    """The first words of tasks."""
    runs = [item.run.pk for item in contestants]
    rows = Rollout.objects.filter(run__in=runs, row__in=list(tasks)).order_by("row").distinct("row")
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
