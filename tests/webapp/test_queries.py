"""Pages take at most 15 queries, and no more of them with many objects than with few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q, QuerySet
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.growth import MOST_QUERIES, assert_few_queries, queries_of
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent, RunStar
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
LISTS = (
    "", "runs/", "runs/?sort=-device&tag=best", "runs/?archived=1", "runs/?starred=1&cols=model,spec,device",
    "datasets/", "datasets/new/", "rewards/", "rewards/lab/", "environments/", "models/", "models/new/", "compare/",
    "runs/new/", "chats/new/", "settings/", "settings/retention/", "delete/",
)  # fmt: skip


@pytest.fixture
def fill(
    project: Project, alice: User, make_run: Any, make_dataset: Any, make_reward_spec: Any, make_environment: Any
) -> Callable[[int], Run]:
    """``fill(n)``: n runs with everything that belongs to one, and n of all else; the last run."""

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


@pytest.mark.parametrize("state", ["draft", "queued", "running", "paused", "failed", "cancelled", "succeeded"])
def test_a_run_takes_few_queries_in_every_state(
    project: Project, alice: User, client_for: Any, fill: Callable[[int], Run], state: str
) -> None:
    run, client = fill(1), client_for(alice)
    error = {"code": "trainer_died", "message": "It died.", "hint": ""} if state == "failed" else None
    Run.objects.filter(pk=run.pk).update(state=state, archived_at=None, error=error)
    for point in Checkpoint.objects.filter(run=run):
        point.folder.mkdir(parents=True, exist_ok=True)
    for tab in ("", "rollouts/?newest=yes", "?tab=log"):
        assert queries_of(client, f"/p/{project.slug}/runs/{run.pk}/{tab}") <= MOST_QUERIES, tab


def _asked(client: Any, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as caught:
        answer = client.get(address)
        assert answer.status_code == 200
        if answer.streaming:
            b"".join(answer.streaming_content)
    return [query["sql"] for query in caught.captured_queries]


def test_lists_read_no_more_than_they_show(
    project: Project, alice: User, client_for: Any, fill: Callable[[int], Run]
) -> None:
    """Curves only for the column that draws them; of what a form offers no report, config or components."""
    fill(2)
    client, runs, points = client_for(alice), f"/p/{project.slug}/runs/", "metrics_metricpoint"
    assert any(points in sql for sql in _asked(client, runs))
    assert not any(points in sql for sql in _asked(client, f"{runs}?cols=state,success"))
    assert not any(points in sql for sql in _asked(client, f"/api/v1/projects/{project.slug}/runs"))
    form = _asked(client, f"{runs}new/")
    large = ('"datasets_dataset"."report"', '"runs_run"."config"', '"rewards_rewardspec"."components"')
    assert [sql for sql in form if any(column in sql for column in large)] == []
    assert len(_asked(client, f"{runs}new/yaml/")) <= 8  # it shows no form, so none is made


def test_all_runs_as_csv_are_one_query(
    project: Project, alice: User, client_for: Any, fill: Callable[[int], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.runs.records.listing.PAGE_MAX", 2)  # lines that come from the database together
    fill(2)
    client, address = client_for(alice), f"/p/{project.slug}/runs/runs.csv?all=1"
    few = _asked(client, address)
    fill(9)
    assert len(_asked(client, address)) == len(few) <= MOST_QUERIES


def test_counts_and_filters_of_the_list_come_from_indexes(project: Project, fill: Callable[[int], Run]) -> None:
    """A row is 3 KB: to count or to offer the tags of 2,500 runs must not read them."""
    fill(3)
    runs = Run.objects.filter(project=project)
    tags = runs.exclude(tags=[]).values_list("tags", flat=True)
    with connection.cursor() as cursor:
        # With three rows every index costs the same, and in PostgreSQL 18 index scans cannot be switched off without
        # index-only ones: so the planner sees no other index of the table than the one that should do.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")

        def with_only(index: str, query: QuerySet[Any, Any]) -> str:
            cursor.execute(
                "UPDATE pg_index SET indisvalid = indexrelid::regclass::text = %s WHERE indrelid = %s::regclass",
                [index, query.model._meta.db_table],
            )
            return str(query.explain())

        checkpoints = Checkpoint.objects.filter(project=project, state="whole")
        models = RegisteredModel.objects.filter(project=project)
        plans = [
            with_only("run_listed", runs.filter(archived_at=None).order_by().values("created_by")),
            with_only("run_listed", runs.filter(archived_at=None).order_by("-created_at", "pk").values("pk")[:50]),
            with_only("run_tagged", tags.order_by()),
            with_only("checkpoint_listed", checkpoints.order_by("-created_at").values("pk")),
            with_only("model_listed", models.order_by("-created_at").values("pk")),
        ]
    names = ["run_listed", "run_listed", "run_tagged", "checkpoint_listed", "model_listed"]
    assert [name for name, plan in zip(names, plans, strict=True) if f"using {name}" not in plan] == []
    assert all("Index Only Scan" in plan for plan in plans[:3]) and not any("Sort" in plan for plan in plans[1:4])
    assert Q(removed_at=None) == next(index.condition for index in Run._meta.indexes if index.name == "run_listed")
