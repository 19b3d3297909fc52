"""Runs that an older version launched get the needs and the sessions that a launch writes now."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps

from training.config import JobConfig
from webapp.engine.services import run_create, run_resume
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer

pytestmark = pytest.mark.django_db
migration = import_module("webapp.runs.migrations.0027_reserve_waiting")
CANNOT = "This version cannot read its config, so it is not known what it asks for: any worker may take it."


def reserve() -> None:
    migration.reserve(apps, None)


def shown(run: Run) -> list[str]:
    answer = queue_answer(read_queue().queued(run.pk), [run.project_id])
    assert answer is not None
    return [line["text"] for line in answer["lines"]]


@pytest.fixture
def launched(
    project: Project, bob: User, make_dataset: Any, make_environment: Callable[..., Environment]
) -> Callable[[], Run]:
    """``launched()``: a run of two devices that plays 6 sessions, as it is launched now."""
    environment, dataset = make_environment(name="shop"), make_dataset()

    def make() -> Run:
        config = JobConfig.model_validate(
            {
                "data": {"train": dataset.reference},
                "environment": {"name": environment.reference},
                "rollout": {"prompts_per_step": 2, "num_generations": 3},
                "run": {"device": "cuda"},
            }
        )
        run = run_create(project=project, user=bob, name=f"run-{Run.objects.count()}", config=config)
        assert run.needs and run.sessions == f"{environment.pk}/6"
        return run

    return make


def forget(run: Run, **fields: Any) -> None:
    """The row as a version before 0.3.0 left it."""
    Run.objects.filter(pk=run.pk).update(needs="", sessions="", **fields)


@pytest.mark.parametrize("state", ["queued", "preparing", "running", "pausing", "stopping"])
def test_a_run_that_was_launched_before_gets_what_a_launch_writes_now(state: str, launched: Callable[[], Run]) -> None:
    run = launched()
    forget(run, state=state)
    for _twice in range(2):
        reserve()
        found = Run.objects.get(pk=run.pk)
        assert (found.needs, found.sessions, found.seq) == (run.needs, run.sessions, run.seq)


def test_what_a_launch_wrote_stays(launched: Callable[[], Run], bob: User) -> None:
    run = launched()
    for column, value in (("needs", "8/80/H100/0/0/1"), ("sessions", f"{UUID(int=7)}/9")):
        Run.objects.filter(pk=run.pk).update(**{column: value, "state": "queued"})
        reserve()
        Run.objects.filter(pk=run.pk).update(state="paused", attempt=1)
        run_resume(run=Run.objects.get(pk=run.pk), user=bob)
        assert getattr(Run.objects.get(pk=run.pk), column) == value


def test_others_are_left_as_they_are(launched: Callable[[], Run], charlie: User) -> None:
    ended, imported, moved, endpoint = (launched() for _each in range(4))
    forget(ended, state="succeeded")
    forget(imported, imported=True)
    forget(moved, project=Project.objects.get(slug="elsewhere"))  # its environments are those of its project
    forget(endpoint, pool="endpoint")
    reserve()
    assert [Run.objects.get(pk=run.pk).needs for run in (ended, imported)] == ["", ""]
    assert Run.objects.get(pk=moved.pk).sessions == "" and Run.objects.get(pk=moved.pk).needs == moved.needs
    assert Run.objects.get(pk=endpoint.pk).sessions == endpoint.sessions and not Run.objects.get(pk=endpoint.pk).needs


def test_a_paused_run_gets_it_once_it_is_resumed(launched: Callable[[], Run], bob: User) -> None:
    run = launched()
    forget(run, state="paused", attempt=1)
    reserve()
    assert Run.objects.get(pk=run.pk).needs == ""
    found = run_resume(run=Run.objects.get(pk=run.pk), user=bob)
    assert (found.state, found.needs, found.sessions) == ("queued", run.needs, run.sessions)


@pytest.mark.parametrize("column", ["config", "resolved"])
def test_a_run_whose_config_cannot_be_read_says_so_in_the_queue(column: str, launched: Callable[[], Run]) -> None:
    run, other = launched(), launched()
    forget(run, **{column: {"kind": "grpo", "an": "option of another time"}})
    forget(other)
    reserve()
    reserve()
    assert Run.objects.get(pk=run.pk).needs == "?" and Run.objects.get(pk=run.pk).sessions == ""
    assert Run.objects.get(pk=other.pk).needs == other.needs, "one that cannot be read stops none of the others"
    assert shown(run)[0].startswith(f"{CANNOT} Stop it, and launch")
    assert not any(CANNOT in text for text in shown(other))
