"""Evaluations that recorded the environment's word alone, and specs that ask for more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.working import done
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import Evaluations, evaluations, rescore
from webapp.evaluation.rescoring.models import Rescoring
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

SOLVED = {"name": "regex_match", "weight": 0.5, "params": {"pattern": "^solved$"}}
OWN = {"name": "env_success", "weight": 1.0, "params": {}}


@pytest.fixture
def two(evaluation: Callable[..., Run]) -> list[Run]:
    """Of four tasks with two tries each; a try that is solved says "solved", one that is not "given up"."""
    a = evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation("b", {0: [1, 1], 1: [1, None], 2: [1, 0], 3: [1, 1]})
    return [a, b]


@pytest.fixture
def spec(make_reward_spec: Any) -> Callable[..., str]:
    """``spec(component, …)``: the reference of a spec of these."""
    numbers = iter(range(1, 100))

    def make(*components: dict[str, Any]) -> str:
        made = make_reward_spec(name=f"spec-{next(numbers)}", components=list(components))
        return str(made.reference)

    return make


@pytest.fixture
def read(project: Project) -> Callable[..., Evaluations]:
    """``read(runs, reference)``: what a comparison reads."""

    def make(runs: Sequence[Run], reference: str) -> Evaluations:
        found = evaluations(project, contestants_of(project, [str(run.pk) for run in runs])[0], reference)
        assert found is not None
        return found

    return make


@pytest.fixture
def begun(project: Project, bob: User) -> Callable[..., Rescoring]:
    """``begun(runs, reference)``: asked for, as bob."""

    def make(runs: Sequence[Run], reference: str, *, confirmed: bool = False) -> Rescoring:
        ids = [str(run.pk) for run in runs]
        return rescore(project=project, user=bob, runs=ids, spec=reference, confirmed=confirmed)

    return make


@pytest.fixture
def scored(begun: Callable[..., Rescoring]) -> Callable[..., Rescoring]:
    """``scored(runs, reference)``: asked for, and done by a worker."""

    def make(runs: Sequence[Run], reference: str, **more: Any) -> Rescoring:
        return done(begun(runs, reference, **more))

    return make
