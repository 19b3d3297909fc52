"""Over the API a queued run says its place, and names no run of a project that the caller may not see."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from webapp.common.workers.models import Worker
from webapp.people.teams.models import Membership, Project, Role, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(make_run: Any, project: Project, charlie: User) -> Run:
    """A queued run behind one of another project, which has the only worker."""
    at = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=at, beat_at=at)
    fields = {"state": "running", "step": 0, "total_steps": 10, "step_seconds": 60.0, "lease_beat_at": at}
    make_run(name="secret", project=Project.objects.get(slug="elsewhere"), lease_worker="train@a", **fields)
    return make_run(name="mine", state="queued", queued_at=at)


def test_a_queued_run_has_its_place(waiting: Run, client_for: Any, rita: User) -> None:
    answer = client_for(rita).get(f"/api/v1/runs/{waiting.pk}")
    found = answer.json()["queue"]
    assert {name: found[name] for name in ("place", "ahead", "why", "seconds", "low", "high", "places")} == {
        "place": 1, "ahead": 0, "why": "busy", "seconds": 600.0, "low": 600.0, "high": 600.0, "places": 1
    }  # fmt: skip
    assert (found["short"], found["title"]) == (
        "next in line · about 10 min",
        "Next in line: starts in about 10 min.",
    )
    assert found["holders"] == [
        {
            "worker": "train@a", "run": None, "run_id": None, "project": None, "ending": False,
            "seconds": 600.0, "low": 600.0, "high": 600.0,
            "steps_left": None, "step_seconds": None, "steps_measured": None,
        }
    ]  # fmt: skip
    other = Run.objects.get(name="secret")
    assert not any(text in answer.content.decode() for text in ("secret", "elsewhere", str(other.pk)))


def test_the_list_has_the_place_of_each_queued_run(waiting: Run, make_run: Any, client_for: Any, rita: User) -> None:
    make_run(name="draft")
    rows = client_for(rita).get(f"/api/v1/projects/{waiting.project.slug}/runs").json()["items"]
    assert {row["name"]: row["queue"] and row["queue"]["short"] for row in rows} == {
        "draft": None,
        "mine": "next in line · about 10 min",
    }


@pytest.mark.parametrize("limited", [False, True])
def test_a_token_names_only_runs_of_its_projects(
    waiting: Run, project: Project, client_for: Any, charlie: User, limited: bool
) -> None:
    Membership.objects.create(team=project.team, user=charlie, role=Role.VIEWER)
    _token, text = token_create(user=charlie, name="t", role=Role.VIEWER, project=project if limited else None)
    answer = client_for(None).get(f"/api/v1/runs/{waiting.pk}", headers={"Authorization": f"Bearer {text}"})
    assert answer.json()["queue"]["holders"][0]["run"] == (None if limited else "secret")


def test_a_run_that_is_not_queued_has_none(make_run: Any, client_for: Any, rita: User) -> None:
    assert client_for(rita).get(f"/api/v1/runs/{make_run().pk}").json()["queue"] is None
