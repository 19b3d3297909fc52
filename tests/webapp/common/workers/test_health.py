"""Whether an installation is well: the clockwork, what waits, and what monitors get."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from tests.working import claimed
from webapp.common import work
from webapp.datasets.models import Dataset
from webapp.engine.models import ReaperMark
from webapp.foreign.models import RunImport
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.site import workers

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_kept_answer() -> None:
    cache.delete("readyz")


def looked(seconds_ago: float) -> None:
    at = timezone.now() - timedelta(seconds=seconds_ago)
    ReaperMark.objects.update_or_create(pk=1, defaults={"ran_at": at})


@pytest.mark.parametrize(("ago_s", "status"), [(2, 200), (28, 200), (33, 503), (None, 503)])
def test_an_installation_whose_clockwork_is_late_is_not_ready(client: Client, ago_s: float | None, status: int) -> None:
    if ago_s is not None:
        looked(ago_s)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["ok"]) == (status, status == 200)
    age_s = answer.json()["clock_age_seconds"]
    assert age_s is None if ago_s is None else ago_s <= age_s < ago_s + 2


def test_what_monitors_get(client: Client, project: Project, settings: Any) -> None:
    """Without a login: states and counts, no names."""
    settings.POOLS = {"short": 3, "long": 2}
    looked(1)
    RunImport.objects.create(project=project, name="secret plan")
    answer = client.get("/readyz")
    assert answer.headers["Cache-Control"].startswith("max-age=0, no-cache")
    state = answer.json()
    assert set(state) == {"ok", "database", "broker", "disk", "clock_age_seconds", "pools"}
    assert (state["ok"], state["database"], state["broker"], state["disk"]) == (True, True, True, True)
    train, endpoint, short, long = state["pools"]
    assert train == {"pool": "train", "places": 0, "at_work": 0, "waiting": 0, "oldest_s": None}
    assert endpoint == {"pool": "endpoint", "places": 0, "at_work": 0, "waiting": 0, "oldest_s": None}
    assert short == {"pool": "short", "places": 3, "at_work": 0, "waiting": 0, "oldest_s": None}
    assert 0 <= long.pop("oldest_s") < 60
    assert long == {"pool": "long", "places": 2, "at_work": 0, "waiting": 1}
    assert client.get("/healthz").content == b"ok\n" and client.post("/readyz").status_code == 405


def test_a_broker_and_a_database_that_are_away(client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked(1)
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["broker"], answer.json()["database"]) == (503, False, True)
    cache.delete("readyz")

    def away() -> float:
        raise OperationalError

    monkeypatch.setattr(workers, "clock_age", away)
    monkeypatch.setattr(workers.connection, "close", lambda: None)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        503,
        {"ok": False, "database": False, "broker": False, "disk": True, "clock_age_seconds": None, "pools": []},
    )
    assert client.get("/healthz").status_code == 200


def test_frequent_requests_get_the_answer_of_this_second(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    looked(1)
    asked: list[int] = []
    monkeypatch.setattr(workers, "all_loads", lambda: asked.append(1) or [])
    for _ in range(5):
        client.get("/readyz")
    assert len(asked) == 1


def test_what_waits_and_what_is_being_done(project: Project, settings: Any) -> None:
    settings.POOLS = {"short": 2, "long": 2}
    small = Dataset.objects.create(project=project, name="small", bytes=8 << 20)
    claimed(small)
    Dataset.objects.create(project=project, name="large", bytes=(8 << 20) + 1)
    Dataset.objects.create(project=project, name="done", bytes=5, state="ready")
    for minutes in (1, 5, 3):
        row = RunImport.objects.create(project=project, name=f"n{minutes}")
        RunImport.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(minutes=minutes))
    later = RunImport.objects.create(project=project, name="later")
    RunImport.objects.filter(pk=later.pk).update(heard_at=timezone.now() + timedelta(minutes=1))
    short, long = work.loads()
    assert short == work.Load("short", 2, at_work=1)
    assert (long.at_work, long.waiting, round(long.oldest_s or 0, -1)) == (0, 4, 300)


def test_runs_of_other_teams_are_at_work_without_a_name(
    rita: User, charlie: User, make_run: Callable[..., Run], project: Project
) -> None:
    at = timezone.now()
    for name, ago_s, more in (
        ("later", 10, {}),
        ("earlier", 20, {"state": "stopping"}),
        ("ended", 30, {"state": "failed"}),
        ("unknown", 30, {"lease_worker": ""}),
    ):
        fields = {"state": "running", "lease_worker": "train@a", "lease_started_at": at - timedelta(seconds=ago_s)}
        made = make_run(name=name, **{**fields, **more})
        if name == "later":
            newest = made
    found = workers._runs_at_work(rita)
    assert [run.name for run in found["train@a"]] == ["earlier", "later"] and set(found) == {"train@a"}
    assert found["train@a"][1].url_args == ("joust", str(newest.pk))
    assert [tuple(run) for run in workers._runs_at_work(charlie)["train@a"]] == [("", None)] * 2
    charlie.is_superuser = True
    assert [tuple(run) for run in workers._runs_at_work(charlie)["train@a"]] == [("earlier", None), ("later", None)]


def test_the_page_says_whether_the_clockwork_looks(
    rita: User, client_for: Callable[..., Client], project: Project
) -> None:
    page = "/workers/"
    assert "The clockwork has not checked yet" in client_for(rita).get(page).content.decode()
    looked(workers.LATE_S - 2)
    text = client_for(rita).get(page).content.decode()
    assert "The clockwork" not in text and "0 of 2" in text
    looked(125)
    text = client_for(rita).get(page).content.decode()
    assert "The clockwork last checked 2 min 5 s ago" in text and "manage.py run_clockwork" not in text
    rita.is_superuser = True
    rita.save()
    assert "manage.py run_clockwork" in client_for(rita).get(page).content.decode()
