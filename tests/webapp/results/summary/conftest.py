"""Ended runs with figures, checkpoints and advisories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

Ended = Callable[..., Run]


def points(run: Run, name: str, values: Sequence[float], attempt: int = 1, first: int = 1) -> None:
    """A figure of the steps from ``first`` on."""
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=attempt, step=step, name=name, value=value, seq=1)
        for step, value in enumerate(values, start=first)
    )


@pytest.fixture
def ended(make_run: Any) -> Ended:
    """``ended(success=…, reward=…, **fields)``: a run that succeeded after 300 s on a CPU."""

    def make(*, success: Sequence[float] = (), reward: Sequence[float] = (), **over: Any) -> Run:
        steps = max(len(success), len(reward))
        fields = {"name": "first", "state": RunState.SUCCEEDED, "attempt": 1, "step": steps, "total_steps": steps}
        run: Run = make_run(**(fields | over))
        now = timezone.now()
        Attempt.objects.create(
            run=run, number=1, owner="w", started_at=now - timedelta(seconds=300), ended_at=now, last_step=steps
        )
        run.events.create(seq=1, attempt=1, kind="attempt", payload={"number": 1, "owner": "w"}, at=now)
        run.events.create(seq=2, attempt=1, kind="attempt", payload={"number": 1, "device": "cpu"}, at=now)
        points(run, "rollouts/task_success", success)
        points(run, "reward", reward)
        return run

    return make
