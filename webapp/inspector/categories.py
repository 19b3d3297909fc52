"""Which tasks are of a category: what the rows of a run's dataset say that they are, read once and kept for a while."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from django.db.models import Q

from training.rewards.combining import categories_of
from webapp.datasets.of_runs import dataset_of_step
from webapp.inspector.scope import Scope
from webapp.runs.models import Run

READ_BYTES = 16 << 20
KEPT = 16  # datasets
MOST = 50
LINE_MAX = 1 << 20
Tasks = dict[str, list[int]]
"""Places of rows by category."""


class _Course(NamedTuple):
    """The steps after ``began`` up to ``end`` (``None``: to the last), and the tasks that they drew from."""

    began: int | None
    end: int | None
    tasks: Tasks


def rows_of_category(scope: Scope, category: str) -> Q:
    """Rollouts of tasks of this category."""
    wanted = Q(pk=None)
    for run in scope.runs:
        for course in _courses(run):
            if places := course.tasks.get(category):
                steps = Q() if course.began is None else Q(step__gt=course.began)
                steps &= Q() if course.end is None else Q(step__lte=course.end)
                wanted |= Q(run=run.pk, row__in=places) & steps
    return wanted


def categories_in(scope: Scope) -> list[tuple[str, int]]:
    """The categories that the scope's tasks have, each with its number of tasks, the largest first."""
    found: Counter[str] = Counter()
    for run in scope.runs:
        for course in _courses(run):
            found.update({name: len(places) for name, places in course.tasks.items()})
    return found.most_common(MOST)


def _courses(run: Run) -> list[_Course]:
    """The stages of a run that have begun; all of a run without stages is one."""
    begun = [each["began"] for each in run.health.get("stages") or []] or [0]
    ends = [*begun[1:], None]
    return [
        _Course(began if number else None, end, _tasks(run, began + 1))
        for number, (began, end) in enumerate(zip(begun, ends, strict=True))
    ]


def _tasks(run: Run, step: int) -> Tasks:
    """Of the dataset version that a step drew from."""
    dataset = dataset_of_step(run, step)
    return _read(dataset.rows_path) if dataset is not None else {}


@lru_cache(maxsize=KEPT)  # the rows of a version never change
def _read(path: Path) -> Tasks:
    """Reading ends after ``READ_BYTES``; later tasks are of no category."""
    found: Tasks = {}
    with path.open("rb") as file:
        left = READ_BYTES
        for place, line in enumerate(iter(lambda: file.readline(LINE_MAX), b"")):
            left -= len(line)
            if left < 0:
                break
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            for name in sorted(categories_of(row)) if isinstance(row, dict) else ():
                found.setdefault(name[:80], []).append(place)
    return found
