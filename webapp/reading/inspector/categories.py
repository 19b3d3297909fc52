"""The tasks of runs by category."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from django.db.models import Q

from webapp.datasets.recorded import dataset_of_step
from webapp.datasets.rows import Categories, categories_in_file
from webapp.reading.inspector.scope import Scope
from webapp.runs.config import config_of
from webapp.runs.models import Run

MOST = 50


class _Course(NamedTuple):
    """The steps after ``began`` up to ``end`` (``None``: to the last), and the tasks that they, or a ``part`` of their
    mix, drew from."""

    began: int | None
    end: int | None
    tasks: Categories | None
    part: str | None = None


def rows_of_category(scope: Scope, category: str) -> Q:
    """Rollouts of tasks of this category."""
    wanted = Q(pk=None)
    for run in scope.runs:
        for course in _begun_courses(run):
            if course.tasks is not None and (places := course.tasks.rows(category)):
                steps = Q() if course.began is None else Q(step__gt=course.began)
                steps &= Q() if course.end is None else Q(step__lte=course.end)
                steps &= Q() if course.part is None else Q(part=course.part)
                wanted |= Q(run=run.pk, row__in=places) & steps
    return wanted


def categories_in(scope: Scope) -> list[tuple[str, int]]:
    """The categories that the scope's tasks have, each with its number of tasks, the largest first."""
    found: Counter[str] = Counter()
    for run in scope.runs:
        for course in _begun_courses(run):
            if course.tasks is not None:
                found.update(course.tasks.names[at] for at in course.tasks.of_row if at >= 0)
    return found.most_common(MOST)


def _begun_courses(run: Run) -> list[_Course]:
    """The stages of a run that have begun, or the parts of its mix; all of a run without either is one."""
    config = config_of(run)
    if config is not None and config.mix.parts:
        return [_Course(None, None, _categories_at(run, 1, part.name), part.name) for part in config.mix.parts]
    begun = [each["began"] for each in run.health.get("stages") or []] or [0]
    ends = [*begun[1:], None]
    return [
        _Course(began if number else None, end, _categories_at(run, began + 1))
        for number, (began, end) in enumerate(zip(begun, ends, strict=True))
    ]


def _categories_at(run: Run, step: int, part: str = "") -> Categories | None:
    """The categories of the dataset version that a step, or a part of it, drew from."""
    dataset = dataset_of_step(run, step, part)
    return categories_in_file(dataset.rows_path) if dataset is not None else None
