"""The demo's content, made through the services that the pages use."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from tests.working import at_once
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import Environment
from webapp.ops import demo
from webapp.ops.console import Console
from webapp.ops.demo import follow, run_line
from webapp.ops.management.commands.prepare_site import demo_project, site_prepare
from webapp.people.teams.models import Membership
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.states import RunState


@pytest.fixture
def checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check uploads here, without a worker, and make few rows."""
    at_once(monkeypatch, Dataset)
    monkeypatch.setattr(demo, "DEMONSTRATIONS", 40)
    monkeypatch.setattr(demo, "TASKS", 20)


@pytest.mark.django_db(transaction=True)
def test_the_demo_is_made_once(checked_at_once: None, tools_server: str, settings: Any) -> None:
    settings.TOOLS_URL = tools_server
    user = site_prepare(demo=True)
    project = demo_project(Membership.objects.filter(user=user)[0].team)
    first = demo.demo_create(project=project, user=user)
    assert {dataset.name: (dataset.state, dataset.rows, dataset.bad_rows) for dataset in Dataset.objects.all()} == {
        "tool-demonstrations": (DatasetState.READY, 40, 0),
        "tool-tasks": (DatasetState.READY, 20, 0),
    }
    assert [environment.healthy for environment in Environment.objects.all()] == [True]
    assert [(run.name, run.kind, run.state) for run in (first.warm_up, first.grpo)] == [
        ("warm-up", "sft", RunState.QUEUED),
        ("first-grpo", "grpo", RunState.QUEUED),
    ]
    assert first.grpo.after == first.warm_up
    assert first.grpo.config["model"]["source"] == "run:warm-up"
    assert first.grpo.config["environment"]["name"] == "environment:tools"
    held = first.grpo.config["evaluate"]
    assert held["every"] == 12 and 0.1 < held["share"] <= 0.5  # few tasks, so more than a tenth of them
    assert first.warm_up.config["sft"]["held_out_share"] == held["share"]
    assert demo.demo_create(project=project, user=user) == first
    counts = [model.objects.count() for model in (Dataset, Environment, RewardSpec, Run)]
    assert counts == [2, 1, 1, 2]


def test_a_run_in_one_line(make_run: Any) -> None:
    first = make_run(name="warm-up", kind="sft", state=RunState.RUNNING, step=42, total_steps=330)
    MetricPoint.objects.create(run=first, attempt=1, step=41, name="loss", value=1.25, seq=1)
    waiting = make_run(name="first-grpo", state=RunState.QUEUED, after=first)
    assert run_line(first) == "  warm-up      running · step 42/330 · loss 1.250"
    assert run_line(waiting) == "  first-grpo   queued · waits for warm-up"


def test_following_ends_with_how_the_reward_rose(make_run: Any) -> None:
    run = make_run(
        name="g", state=RunState.SUCCEEDED, step=2, total_steps=2, last_reward=0.8, finished_at=timezone.now()
    )
    for step, value in ((1, 0.46), (2, 0.8)):
        MetricPoint.objects.create(run=run, attempt=1, step=step, name="reward", value=value, seq=step)
    error = {"message": "The environment is gone.", "hint": "Start it."}
    failed = make_run(name="f", state=RunState.FAILED, error=error)
    output = io.StringIO()
    follow([run, failed], Console(output))
    assert "reward rose from 0.46 to 0.80" in output.getvalue()
    assert "The environment is gone. Start it." in output.getvalue()


@pytest.mark.django_db
def test_following_outlasts_an_outage_of_the_database(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo --follow` ended with a traceback when PostgreSQL was killed."""
    run, output, reads = make_run(name="r", state=RunState.RUNNING), io.StringIO(), []
    refresh = Run.refresh_from_db

    def away(self: Run, *args: Any, **kwargs: Any) -> None:
        reads.append(self)
        if len(reads) in {2, 3}:
            raise OperationalError("terminating connection due to administrator command")
        if len(reads) == 4:
            Run.objects.filter(pk=run.pk).update(state=RunState.PAUSED, error={"message": "The disk is full."})
        refresh(self, *args, **kwargs)

    monkeypatch.setattr(Run, "refresh_from_db", away)
    monkeypatch.setattr("webapp.ops.demo.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("webapp.ops.demo.LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr("webapp.ops.demo.connection", SimpleNamespace(close=lambda: None))
    follow([run], Console(output))
    printed = output.getvalue()
    assert printed.count("The database does not answer") == 1 and "The disk is full." in printed and len(reads) == 4


@pytest.mark.django_db
def test_following_ends_when_the_database_does_not_come_back(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any, **_kwargs: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(Run, "refresh_from_db", away)
    monkeypatch.setattr("webapp.ops.demo.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("webapp.ops.demo.LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr("webapp.ops.demo.AWAY_LIMIT_S", 0.05)
    monkeypatch.setattr("webapp.ops.demo.connection", SimpleNamespace(close=lambda: None))
    output = io.StringIO()
    follow([Run(name="r")], Console(output))
    assert "is still unreachable" in output.getvalue()
