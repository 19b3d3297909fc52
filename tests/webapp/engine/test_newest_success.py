"""A run's newest task success in its own row, and what becomes of an archived run that continues."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from webapp.engine.services import run_launch
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


def test_the_projection_keeps_the_newest_success(written: Any) -> None:
    w = written()
    w.raw(
        b'{"type":"run_started","kind":"grpo","total_steps":9,"t":1000}\n'
        b'{"type":"metrics","step":1,"t":1001,"values":{"rollouts/task_success":0.25,"heldout/success":0.5}}\n'
        b'{"type":"metrics","step":2,"t":1002,"values":{"rollouts/task_success":0.75,"reward":2}}\n'
    )
    w.project()
    run = Run.objects.get(pk=w.run.pk)
    assert (run.success, run.heldout_success, run.last_reward) == (0.75, 0.5, 2.0)


def test_a_run_that_continues_leaves_the_archive(queued: Any, bob: Any, project: Any) -> None:
    run = queued(fields={"archived_at": timezone.now()})
    Run.objects.filter(pk=run.pk).update(state="draft")
    run_launch(run=Run.objects.get(pk=run.pk), user=bob)
    run.refresh_from_db()
    assert (run.state, run.archived_at) == ("queued", None)
