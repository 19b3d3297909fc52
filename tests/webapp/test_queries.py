"""Pages take at most 15 queries, and no more of them with many objects than with few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from tests.growth import assert_few_queries
from webapp.metrics.models import MetricPoint
from webapp.registry.models import Checkpoint, RegisteredModel
from webapp.rollouts.models import Rollout
from webapp.runs.models import Attempt, Run, RunEvent, RunStar
from webapp.teams.models import Project, User

pytestmark = pytest.mark.django_db
LISTS = (
    "", "runs/", "runs/?sort=-device&tag=best", "runs/?archived=1", "runs/?starred=1&cols=model,spec,device",
    "datasets/", "datasets/new/", "rewards/", "environments/", "models/", "models/new/", "compare/", "runs/new/",
    "settings/",
)  # fmt: skip


@pytest.fixture
def fill(
    project: Project, alice: User, make_run: Any, make_dataset: Any, make_reward_spec: Any, make_environment: Any
) -> Callable[[int], Run]:
    """``fill(n)``: n runs with everything that hangs on one, and n of all else; the last run."""

    def make(number: int) -> Run:
        now = timezone.now()
        for n in range(number):
            run: Run = make_run(
                state="succeeded", attempt=1, created_by=alice, tags=["best"], archived_at=now if n % 2 else None
            )
            Attempt.objects.create(run=run, number=1, owner="w", started_at=now, ended_at=now)
            RunStar.objects.create(run=run, user=alice)
            for step in range(3):
                MetricPoint.objects.create(run=run, attempt=1, step=step, name="reward", value=step, seq=step)
                RunEvent.objects.create(
                    run=run, seq=step, kind="log", payload={"message": "a", "level": "info"}, at=now
                )
                Rollout.objects.create(run=run, attempt=1, step=1, group=0, index=step, started_at=now, seq=step)
            point = Checkpoint.objects.create(
                project=project, run=run, attempt=1, step=1, path="1/a", bytes=1, seq=1, created_at=now, final=True
            )
            RegisteredModel.objects.create(project=project, name=run.name, kind="run", checkpoint=point)
            make_dataset(created_by=alice)
            make_reward_spec(created_by=alice)
            make_environment(created_by=alice)
        return run

    return make


def test_lists_take_few_queries_however_long_they_are(
    project: Project, alice: User, client_for: Any, fill: Callable[[int], Run]
) -> None:
    fill(3)
    addresses = [*(f"/p/{project.slug}/{tail}" for tail in LISTS), "/workers/"]
    assert_few_queries(client_for(alice), addresses, lambda: fill(9))


def test_a_run_its_clone_and_the_api_take_few_queries(
    project: Project, alice: User, client_for: Any, fill: Callable[[int], Run]
) -> None:
    run = fill(2)
    addresses = [
        f"/p/{project.slug}/runs/{run.pk}/",
        f"/p/{project.slug}/runs/new/?from={run.pk}",
        f"/api/v1/projects/{project.slug}/runs",
        f"/api/v1/runs/{run.pk}",
        f"/api/v1/runs/{run.pk}/steps/1/rollouts",
        f"/api/v1/runs/{run.pk}/metrics",
    ]
    assert_few_queries(client_for(alice), addresses, lambda: fill(6))
