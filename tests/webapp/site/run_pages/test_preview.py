"""The card that a link to a run shows: what it says, who may see it, what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.markup import dense
from webapp.people.teams.models import User
from webapp.runs.advisories.models import Examination
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
LEARNING = {"kind": "learning", "curve": "success", "then": 0.25, "now": 0.5, "error": 0.1, "begun": 10, "steps": 10}


def card_of(client: Client, run: Run) -> str:
    answer = client.get(reverse("run-preview", args=[run.project.slug, run.pk]))
    assert answer.status_code == 200
    return dense(answer.content.decode())


def points(run: Run, *values: float) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=1, name="rollouts/task_success", step=step, value=value, seq=step)
        for step, value in enumerate(values, 1)
    )


def test_it_says_what_a_run_does_and_how_well(client_for: Clients, rita: User, make_run: Any) -> None:
    run = make_run(name="learner", state=RunState.RUNNING, step=3, total_steps=40, success=0.5, attempt=1)
    points(run, 0.25, 0.375, 0.5)
    Examination.objects.create(run=run, diagnosis=LEARNING)
    shown = card_of(client_for(rita), run)
    assert "learner" in shown and ">GRPO<" in shown and 'data-state="running">running<' in shown
    assert "step 3 of 40" in shown
    assert 'data-diagnosis="learning">Learning<' in shown and "Success rose from 25% in the first 10 steps" in shown
    assert "Success<strong>50%</strong>" in shown and "64 rollouts, 95%: 38.1% – 61.9%" in shown
    assert 'aria-label="Success: 0.250 → 0.500"' in shown


def test_a_run_without_figures_says_so_and_shows_no_zero(client_for: Clients, rita: User, make_run: Any) -> None:
    shown = card_of(client_for(rita), make_run(name="fresh", total_steps=0))
    assert "No figure of success yet." in shown and "%" not in shown
    assert "step " not in shown and "diagnosis" not in shown and "<svg" not in shown


def test_held_out_success_comes_first_with_its_tasks(client_for: Clients, rita: User, make_run: Any) -> None:
    best = {"step": 20, "success": 0.6, "low": 0.4, "high": 0.75}
    run = make_run(step=30, success=0.0, health={"held_out": {"tasks": 25, "best": best}})
    shown = card_of(client_for(rita), run)
    assert shown.index("Held-out success<strong>60%</strong>") < shown.index(">Success<strong>0%</strong>")
    assert "25 tasks, 95%: 40% – 75%" in shown and "64 rollouts, 95%: 0% – 5.66%" in shown


def test_an_evaluation_shows_its_own_interval(client_for: Clients, rita: User, make_run: Any) -> None:
    figures = {"success": {"value": 0.8, "low": 0.7, "high": 0.9, "tasks": 50}}
    report = {"figures": figures, "tasks": 50, "missing_tasks": 0, "tries": 50, "excluded": 0}
    run = make_run(kind="evaluate", state=RunState.SUCCEEDED, success=0.1, evaluation=report)
    shown = card_of(client_for(rita), run)
    assert "Success<strong>80%</strong>" in shown and "50 tasks, 95%: 70% – 90%" in shown and "10%" not in shown


def test_of_an_evaluation_without_a_verdict_nothing_is_made_up(client_for: Clients, rita: User, make_run: Any) -> None:
    figures = {"success": {"value": None, "low": None, "high": None, "tasks": 0}}
    shown = card_of(client_for(rita), make_run(kind="evaluate", evaluation={"figures": figures}))
    assert "No figure of success yet." in shown


def test_a_figure_of_which_the_number_is_not_known_has_no_interval(
    client_for: Clients, rita: User, make_run: Any
) -> None:
    """The rollouts of a step of another trainer were not counted, and NaN is no figure."""
    foreign = make_run(imported_from="veRL", success=0.5)
    shown = card_of(client_for(rita), foreign)
    assert "Success<strong>50%</strong>" in shown and "95%" not in shown and ">veRL<" in shown
    assert "No figure of success yet." in card_of(client_for(rita), make_run(success=float("nan")))


def test_names_are_text_in_full_and_the_words_are_the_readers(client_for: Clients, rita: User, make_run: Any) -> None:
    name = "运行" * 38 + "-abc"
    assert len(name) == 80
    run = make_run(name=name, state=RunState.FAILED, error={"code": "E", "message": "<b>broken</b>"})
    shown = card_of(client_for(rita), run)
    assert f'<strong dir="auto">{name}</strong>' in shown and "<b>" not in shown
    client = client_for(rita, headers={"accept-language": "zh-hans"})
    assert "成功率" in card_of(client, make_run(success=0.5, step=2))
    turned = card_of(client_for(rita), make_run(name="abc\u202edef"))
    assert "U+202E" in turned and "\u202e" not in turned


def test_strangers_and_other_projects_get_nothing(
    client_for: Clients, alice: User, charlie: User, make_run: Any
) -> None:
    run = make_run()
    address = reverse("run-preview", args=["joust", run.pk])
    assert client_for(charlie).get(address).status_code == 404
    assert client_for(charlie).get(reverse("run-preview", args=["elsewhere", run.pk])).status_code == 404
    assert client_for(None).get(address).status_code == 302
    assert client_for(alice).post(address).status_code == 405


def test_it_costs_three_queries_and_is_kept_by_this_browser_alone(
    client_for: Clients, rita: User, make_run: Any
) -> None:
    run, client = make_run(state=RunState.RUNNING, step=3, success=0.5), client_for(rita)
    Examination.objects.create(run=run, diagnosis=LEARNING)
    points(run, *[0.5] * 60)
    address = reverse("run-preview", args=["joust", run.pk])
    with CaptureQueriesContext(connection) as caught:
        answer = client.get(address)
    own = [
        each["sql"]
        for each in caught
        if "django_session" not in each["sql"] and '"teams_user"."id" =' not in each["sql"]
    ]
    assert len(own) == 3, "the project, the run, the line"
    assert "max-age" not in answer["Cache-Control"]  # what a person was shown stays in no cache
