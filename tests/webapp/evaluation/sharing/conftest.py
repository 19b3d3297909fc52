"""Two evaluations of the same four tasks, and their comparison under a name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.sharing.services import Query, comparison_save
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run


@pytest.fixture
def two(evaluation: Callable[..., Run]) -> tuple[Run, Run]:
    """``a`` solves 37.5% of its tries, ``b`` 87.5%."""
    a = evaluation("run-a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation("run-b", {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]})
    return a, b


@pytest.fixture
def saved(two: tuple[Run, Run], project: Project, bob: User) -> SavedComparison:
    """Their comparison, saved by bob."""
    query = Query([str(run.pk) for run in two])
    return comparison_save(project=project, user=bob, name="week 47", query=query)
