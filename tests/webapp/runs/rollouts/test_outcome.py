"""Outcome is its own word: decided when a rollout ends, filled in for older rows, said on every page."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.utils import timezone

from training import journal
from webapp.engine.batch import Batch, rollout_id
from webapp.engine.projection import close_rows
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import judge_functions
from webapp.runs.rollouts.models import Rollout

migration = importlib.import_module("webapp.runs.rollouts.migrations.0008_outcomes")
RENAMED = {"rewards": {"components": [{"name": "right", "function": "exact_match", "weight": 1.0}]}}
CASES = [
    # status, env_parts, parts, outcome, judged_by
    ("completed", {"task_success": 1.0}, {"right": 0.0}, "solved", ""),
    ("completed", {"task_success": 0.25}, {}, "partly", ""),
    ("completed", {"task_success": 0.0}, {"right": 1.0}, "failed", ""),
    ("truncated", {"task_success": 0.0}, {}, "failed", ""),
    ("completed", {}, {"right": 1.0}, "solved", "right"),
    ("completed", {}, {"numeric_match": 0.0}, "failed", "numeric_match"),
    ("completed", {"task_success": -1.0}, {}, "failed", ""),
    ("completed", {"score": 1.0}, {"other": 1.0}, "no_verdict", ""),
    ("completed", {}, {"right": None}, "no_verdict", ""),
    ("excluded", {"task_success": 1.0}, {"right": 1.0}, "excluded", ""),
    ("running", {}, {}, "in_flight", ""),
]


@pytest.mark.parametrize("case", CASES)
def test_a_rollout_that_ends_has_its_outcome(case: tuple[Any, ...], make_run: Callable[..., Run]) -> None:
    status, env_parts, parts, outcome, judged_by = case
    run = make_run()
    run.config |= RENAMED
    batch = Batch(run, 1)
    batch.add(journal.RolloutStarted(rollout="a", step=0, group=0, index=0, task="?", t=1.0))
    if status != "running":
        batch.add(journal.RolloutFinished(rollout="a", status=status, env_parts=env_parts, parts=parts, t=2.0))
    row = batch.rollouts[rollout_id(run.pk, 1, "a")]
    assert (row.outcome, row.judged_by) == (outcome, judged_by)


@pytest.fixture
def rows(make_run: Callable[..., Run]) -> list[Rollout]:
    """A row for each case as it was before there were outcomes."""
    run = make_run()
    Run.objects.filter(pk=run.pk).update(config={**run.config, **RENAMED})
    return [
        Rollout.objects.create(
            run=run, attempt=1, step=number * 60, group=0, index=0, started_at=timezone.now(), seq=number,
            status=status, env_parts=env_parts, parts=parts,
        )
        for number, (status, env_parts, parts, *_rest) in enumerate(CASES)
    ]  # fmt: skip


def test_rows_from_before_get_theirs(rows: list[Rollout]) -> None:
    with connection.schema_editor() as editor:
        migration.fill(apps, editor)
    found = Rollout.objects.order_by("seq").values_list("outcome", "judged_by")
    assert list(found) == [(outcome, judged_by) for *_rest, outcome, judged_by in CASES]


def test_a_config_of_stages_names_its_judges() -> None:
    stages = [{"rewards": {"components": [{"name": "b", "function": "numeric_match"}]}}, {}]
    found = migration.judges_of({**RENAMED, "curriculum": {"stages": stages}})
    assert found[:3] == ["task_success", "bfcl_task_success", "webshop_success"]
    assert found[5:] == ["b", "numeric_match", "right", "exact_match", "webshop_score"]
    assert migration.judges_of({}) == list(migration.JUDGES)


def test_a_run_whose_config_is_of_another_time_has_no_names(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.config = {"nothing": "known"}
    assert judge_functions(run) == {}


def test_what_an_attempt_left_in_flight_is_excluded(rows: list[Rollout]) -> None:
    left = rows[-1]
    close_rows(left.run_id, [left])
    left.refresh_from_db()
    assert (left.status, left.outcome, left.judged_by) == ("excluded", "excluded", "")


def test_pages_say_the_outcome_and_never_that_a_task_was_completed(
    client: Client, alice: Any, rows: list[Rollout]
) -> None:
    Rollout.objects.filter(pk=rows[3].pk).update(outcome="failed")
    Rollout.objects.filter(pk=rows[5].pk).update(outcome="failed", judged_by="numeric_match")
    client.force_login(alice)
    for row, words in (
        (rows[3], ('data-state="failed"', ">failed<", ">truncated<")),
        (rows[5], ("numeric_match decides",)),
    ):
        page = client.get(f"/p/joust/rollouts/{row.pk}/").content.decode()
        assert all(word in page for word in words) and "completed" not in page
