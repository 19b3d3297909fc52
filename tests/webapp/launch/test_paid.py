"""The check before a launch says in one remark where nothing pays for solving the task, or something else pays more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project

pytestmark = pytest.mark.django_db
UNKNOWN = "How often that ranks a failure above a success is not known: no recorded group shows it."
UNPAID = f"Nothing here pays for solving the task. {UNKNOWN}"
OUTRANKED = (
    "A failed task can earn more than a solved one: all other components are worth up to 0.7, solving it 0.3. "
    f"{UNKNOWN}"
)
ROWS = [{"messages": [{"role": "user", "content": "2 + 2?"}], "answer": "4"}]


def checks_of(project: Project, dataset: Dataset, place: Environment, **over: Any) -> list[tuple[str, str, str]]:
    options = {
        "model": {"source": "starter"},
        "data": {"train": dataset.reference},
        "environment": {"name": place.reference},
    }
    outcome = preflight(project, JobConfig.model_validate(options | over), full=False)
    found = [check for check in outcome.checks if check.title.startswith("What is rewarded")]
    assert all(check.path == "rewards.components" and not outcome.blocked for check in found)
    return [(check.title, check.level, check.message) for check in found]


def components(solved: float, form: float) -> dict[str, Any]:
    parts = [{"name": "task_success", "weight": solved}, {"name": "coherence", "weight": form}]
    return {"components": [part for part in parts if part["weight"]]}


def test_a_reward_that_does_not_pay_for_the_outcome_is_remarked(
    project: Project, make_dataset: Callable[..., Dataset], make_environment: Callable[..., Environment]
) -> None:
    data, place = make_dataset(), make_environment(name="arena")
    title = "What is rewarded"
    assert checks_of(project, data, place) == [(title, "grave", UNPAID)]  # rows that cannot be judged: form alone
    assert checks_of(project, make_dataset(lines=ROWS), place) == []
    assert checks_of(project, data, place, rewards=components(0.0, 1.0)) == [(title, "grave", UNPAID)]
    assert checks_of(project, data, place, rewards=components(0.3, 0.7)) == [(title, "grave", OUTRANKED)]
    assert checks_of(project, data, place, rewards=components(0.5, 0.5)) == []
    assert checks_of(project, data, place, kind="evaluate") == []  # nothing learns from its rewards


def test_each_stage_is_looked_at_by_itself(
    project: Project, make_dataset: Callable[..., Dataset], make_environment: Callable[..., Environment]
) -> None:
    data, place = make_dataset(), make_environment(name="arena")
    stages = [
        {"name": "form", "until_step": 5, "rewards": components(0.0, 1.0)},
        {"name": "goal", "rewards": components(1.0, 0.0)},
    ]
    found = checks_of(project, data, place, rewards=components(1.0, 0.0), curriculum={"stages": stages})
    assert found == [("What is rewarded · form", "grave", UNPAID)]


@pytest.mark.parametrize(
    ("rows", "place", "counts"),
    [
        (ROWS, True, "6 components can be scored. No spec was chosen: the environment's verdict counts 0.6, "),
        (ROWS, False, "6 components can be scored. No spec was chosen: the right answer of each row counts 0.6, "),
        (
            None,
            True,
            "5 components can be scored. No spec was chosen, and nothing reports whether a task was solved, "
            "so only the form of tool calls is rewarded.",
        ),
    ],
)
def test_the_check_says_what_replaces_a_spec(
    project: Project, make_dataset: Any, make_environment: Any, rows: Any, place: bool, counts: str
) -> None:
    options = {
        "model": {"source": "starter"},
        "data": {"train": make_dataset(lines=rows).reference},
        "environment": {"name": make_environment().reference if place else "none"},
    }
    for rewards, reported in (({}, True), (components(1.0, 0.0), False)):
        outcome = preflight(project, JobConfig.model_validate(options | {"rewards": rewards}), full=False)
        (found,) = [check for check in outcome.checks if check.title == "Rewards"]
        assert found.ok and found.message.startswith(counts) is reported, found.message
        assert reported or found.message == "1 components can be scored."
