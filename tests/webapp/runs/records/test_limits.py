"""How many devices the runs of a project may have at once: set by administrators, kept by claims, shown on pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from tests.webapp.runs.records.conftest import claims_at_once
from training.config import JobConfig
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Worker
from webapp.engine.attempts import claim, first_in_line
from webapp.launch.preflight import _check_limit
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.models import Run
from webapp.runs.records.limits import MOST, limit_change, limits_for
from webapp.runs.records.queue import Span, read_queue
from webapp.runs.records.queue_words import queue_answer

pytestmark = pytest.mark.django_db
Make = Callable[..., Run]


@pytest.fixture(autouse=True)
def leases(settings: Any) -> None:
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S = 600, 150


@pytest.fixture
def admin(alice: User) -> User:
    alice.is_superuser = True
    alice.save(update_fields=["is_superuser"])
    return alice


@pytest.fixture
def line(make_run: Make) -> Make:
    """``line(minutes, **fields)``: a run that was queued so many minutes ago."""

    def make(minutes: float = 1, **fields: Any) -> Run:
        return make_run(**{"state": "queued", "queued_at": timezone.now() - timedelta(minutes=minutes), **fields})

    return make


@pytest.fixture
def busy(line: Make) -> Make:
    """``busy(worker, **fields)``: a run that this worker has."""

    def make(place: str = "train@a", **fields: Any) -> Run:
        at = timezone.now()
        work = {"state": "running", "attempt": 1, "lease_worker": place, "lease_beat_at": at, "queued_at": at}
        return line(**work | {"step": 0, "total_steps": 10, "step_seconds": 10.0} | fields)

    return make


def workers(*names: str) -> None:
    at = timezone.now()
    for name in names:
        Worker.objects.create(name=name, queues=[TRAIN], started_at=at, beat_at=at)


def limit(project: Project, devices: int | None) -> None:
    Project.objects.filter(pk=project.pk).update(device_limit=devices)


def shown(run: Run, *sees: Project) -> dict[str, Any]:
    found = queue_answer(read_queue().queued(run.pk), [project.pk for project in sees])
    assert found is not None
    return found


# --- Claims ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("devices", "taken"), [(0, False), (1, False), (2, True), (None, True)])
def test_a_claim_keeps_to_the_limit(line: Make, busy: Make, project: Project, devices: int | None, taken: bool) -> None:
    busy(), busy(pool=ENDPOINT), busy(imported=True)
    limit(project, devices)
    run = line()
    assert (claim(run.pk) is not None) is taken


@pytest.mark.parametrize(("devices", "taken"), [(3, False), (4, True)])
def test_a_run_counts_with_all_of_its_devices(
    line: Make, busy: Make, project: Project, devices: int, taken: bool
) -> None:
    busy(devices=2)
    limit(project, devices)
    assert (claim(line(devices=2).pk) is not None) is taken


def test_a_claim_that_meets_a_deletion_of_its_project_does_not_fail(line: Make, project: Project) -> None:
    run = line()
    Project.all_objects.filter(pk=project.pk).update(removed_at=timezone.now())
    assert claim(run.pk) is not None


def test_runs_that_ask_endpoints_have_no_limit(line: Make, project: Project) -> None:
    limit(project, 0)
    assert claim(line(pool=ENDPOINT).pk) is not None


def test_another_project_passes_one_that_has_all_its_devices(
    line: Make, busy: Make, project: Project, elsewhere: Project
) -> None:
    busy()
    limit(project, 1)
    mine, theirs = line(60), line(1, project=elsewhere)
    assert first_in_line(mine.pk, TRAIN) == theirs.pk
    limit(project, 2)
    limit(elsewhere, 0)
    assert first_in_line(mine.pk, TRAIN) == mine.pk


@pytest.mark.django_db(transaction=True)
def test_two_workers_do_not_claim_the_last_device_at_once(line: Make, project: Project) -> None:
    limit(project, 1)
    runs = [line(2), line(1)]
    assert sorted(claims_at_once(runs)) == [False, True]


# --- Pages ----------------------------------------------------------------------------------------------------------
def test_a_run_says_that_its_project_has_all_its_devices_and_when_it_starts(
    line: Make, busy: Make, project: Project, elsewhere: Project
) -> None:
    workers("train@a", "train@b")
    busy()
    run, later = line(9), line(5)
    limit(project, 1)
    found = shown(run, project)
    assert (found["why"], found["place"], found["seconds"]) == ("limit", 1, 100.0)
    assert found["short"] == "next in line · about 1 min"
    text = "Of the 1 device that project Joust may have at once it has 1: one of its runs has to end first."
    assert text in [each["text"] for each in found["lines"]]
    assert text not in str(shown(run)) and "another project" in str(shown(run))
    Run.objects.filter(pk=run.pk).update(step_seconds=10.0, total_steps=5)
    assert shown(later, project)["seconds"] == 150.0, "one after the other, although a worker is free"
    other = line(1, project=elsewhere)
    assert shown(other, project, elsewhere)["why"] == "starting"
    Run.objects.filter(pk=other.pk).update(state="cancelled")
    limit(project, 2)
    assert shown(run, project)["why"] == "starting" and shown(later, project)["why"] == "busy"


def test_a_run_that_asks_for_more_than_its_project_may_have_says_so(line: Make, project: Project) -> None:
    workers("train@a")
    run = line(devices=4)
    limit(project, 3)
    found = shown(run, project)
    assert (found["why"], found["seconds"], found["short"]) == (
        "limit",
        None,
        "next in line · its project has no device left",
    )
    assert found["title"] == "Next in line, but its project has no device left."
    assert found["lines"][0]["text"] == (
        "It asks for 4 devices, and project Joust may have 3 devices: ask for fewer, or ask an administrator."
    )
    limit(project, 4)
    assert shown(run, project)["why"] == "starting"


def test_without_a_limit_nothing_is_foreseen_otherwise(line: Make, busy: Make) -> None:
    workers("train@a", "train@b")
    busy()
    run = line()
    found = read_queue().queued(run.pk)
    assert found is not None and (found.why, found.start) == ("starting", Span(0.0, 0.0, 0.0))


# --- Who may change it ----------------------------------------------------------------------------------------------
def test_administrators_set_it_on_the_page(
    admin: User, bob: User, project: Project, busy: Make, client_for: Callable[..., Client]
) -> None:
    busy(devices=2)
    address = "/usage/limit/"
    assert client_for(bob).post(address, {"project": project.slug, "devices": "4"}).status_code == 403
    page = client_for(bob).get("/usage/").content.decode()
    assert address not in page and "Devices at most" in page and "no limit" in page
    assert address in client_for(admin).get("/usage/").content.decode()
    for text, kept in (("4", 4), ("", None), ("0", 0), (" 7 ", 7)):
        client_for(admin).post(address, {"project": project.slug, "devices": text})
        project.refresh_from_db()
        assert project.device_limit == kept
    for wrong in ("-1", "x", "1.5", str(MOST + 1)):
        answer = client_for(admin).post(address, {"project": project.slug, "devices": wrong}, follow=True)
        assert 'class="toast' in answer.content.decode() or "message" in answer.content.decode()
        project.refresh_from_db()
        assert project.device_limit == 7
    assert [one.in_use for one in limits_for(admin) if one.project == project] == [2]
    rows = AuditEntry.objects.filter(action="device_limit").order_by("id").values_list("subject", "username")
    assert list(rows) == [(f"Joust: {to}", "alice") for to in ("4", "no limit", "0", "7")]


def test_a_limit_that_stays_the_same_leaves_no_row(admin: User, project: Project) -> None:
    assert limit_change(slug=project.slug, limits={"devices": MOST}, user=admin)[1:] == (MOST, 0, None, 0)
    assert limit_change(slug=project.slug, limits={"devices": MOST}, user=admin).devices == MOST
    assert AuditEntry.objects.filter(action="device_limit").count() == 1
    for devices in (-1, MOST + 1):
        with pytest.raises(ValidationError, match="Between 0 and"):
            limit_change(slug=project.slug, limits={"devices": devices}, user=admin)
    with pytest.raises(ValidationError, match="no project"):
        limit_change(slug="nowhere", limits={"devices": 1}, user=admin)


def test_members_see_the_limits_of_their_projects_alone(bob: User, project: Project, elsewhere: Project) -> None:
    assert elsewhere.pk not in {one.project.pk for one in limits_for(bob)}
    assert project.pk in {one.project.pk for one in limits_for(bob)}


def test_the_api_sets_and_lists_them(
    admin: User, bob: User, project: Project, client_for: Callable[..., Client]
) -> None:
    address, body = "/api/v1/limits", {"project": project.slug, "devices": 3}
    assert client_for(bob).post(address, body, content_type="application/json").status_code == 403
    answer = client_for(admin).post(address, body, content_type="application/json")
    kept = {"storage_gib": None, "stored_bytes": 0}
    assert answer.json() == {"project": project.slug, "devices": 3, "in_use": 0} | kept
    assert client_for(bob).get(address).json() == {"items": [answer.json()]}
    wrong = client_for(admin).post(address, body | {"devices": -1}, content_type="application/json")
    assert wrong.status_code == 422 and "Between 0 and" in wrong.content.decode()


def test_the_check_before_a_launch_says_what_would_wait(project: Project) -> None:
    config = JobConfig.model_validate({"data": {"train": "x"}, "hardware": {"devices": 4}})
    for devices in (None, 4):
        project.device_limit = devices
        assert list(_check_limit(project, config)) == []
    project.device_limit = 3
    (check,) = _check_limit(project, config)
    assert (check.level, check.path) == ("problem", "hardware.devices") and "4 devices" in check.message
