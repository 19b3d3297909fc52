"""How much a project may store: what counts, what is refused beyond it and what is not, who sets it and who sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.markup import dense
from tests.webapp.launch.test_checked import data_of
from training.config import JobConfig
from training.errors import StorageLimit
from webapp.endpoints.models import Endpoint
from webapp.endpoints.spending import endpoint_days, spend_add
from webapp.engine.services import run_create, run_resume
from webapp.launch.background import check_begin
from webapp.launch.preflight import _check_storage
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.models import Run
from webapp.runs.records.limits import GIB, MOST, limit_change, limits_for, require_storage
from webapp.runs.registry.models import Checkpoint
from webapp.runs.removal.models import StoredSize

pytestmark = pytest.mark.django_db
Make = Callable[..., Run]


@pytest.fixture
def admin(alice: User) -> User:
    alice.is_superuser = True
    alice.save(update_fields=["is_superuser"])
    return alice


@pytest.fixture
def config(make_dataset: Any, make_environment: Any) -> JobConfig:
    options = {
        "data": {"train": make_dataset(bytes=0).reference},
        "environment": {"name": make_environment().reference},
    }
    return JobConfig.model_validate(options)


def saves(run: Run, size: int, step: int = 1, **fields: Any) -> Checkpoint:
    known = {"attempt": 1, "path": f"1/{step}", "state": "whole", "seq": step, "created_at": timezone.now()}
    return Checkpoint.objects.create(project=run.project, run=run, step=step, bytes=size, **known | fields)


def stored(user: User, project: Project) -> int:
    return next(limit.stored_bytes for limit in limits_for(user) if limit.project == project)


def limit(project: Project, gib: int | None) -> None:
    Project.objects.filter(pk=project.pk).update(storage_limit=gib)


# --- What counts ----------------------------------------------------------------------------------------------------
def test_checkpoints_measured_rollouts_and_datasets_count_and_what_is_gone_does_not(
    bob: User, project: Project, elsewhere: Project, make_run: Make, make_dataset: Any
) -> None:
    make_dataset(bytes=700), make_dataset(bytes=40), make_dataset(bytes=9, project=elsewhere)
    ended, active, gone = make_run(state="succeeded"), make_run(state="running"), make_run(state="failed")
    saves(ended, 1000), saves(ended, 2000, 2, final=True), saves(active, 4000), saves(gone, 64_000)
    saves(ended, 128_000, 3, state="removed"), saves(ended, 256_000, 4, state="torn")
    StoredSize.objects.create(run=ended, words=10, tokens=100, logs=1)
    StoredSize.objects.create(run=gone, words=512_000)
    Run.objects.filter(pk=gone.pk).update(removed_at=timezone.now())
    other = make_run(project=elsewhere)
    saves(other, 8)
    assert stored(bob, project) == 700 + 40 + 1000 + 2000 + 4000 + 111


def test_a_project_with_nothing_stores_nothing(bob: User, project: Project) -> None:
    assert stored(bob, project) == 0


# --- What is refused ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "refused"), [(2 * GIB - 1, False), (2 * GIB, True), (2 * GIB + 1, True)])
def test_a_launch_is_refused_once_the_limit_is_reached(
    bob: User, project: Project, config: JobConfig, make_run: Make, size: int, refused: bool
) -> None:
    saves(make_run(state="succeeded"), size)
    limit(project, 2)
    if not refused:
        assert run_create(project=project, user=bob, name="a", config=config).state == "queued"
        return
    with pytest.raises(StorageLimit) as caught:
        run_create(project=project, user=bob, name="a", config=config)
    assert (caught.value.code, caught.value.option) == ("storage_limit", "")
    assert str(caught.value.sentence) == (
        "Project Joust stores 2.0 GiB and may store 2 GiB, so no run can be launched. Delete runs, checkpoints or "
        "datasets, or set rules under Retention in the project's settings; an administrator can raise the limit."
    )
    assert not Run.objects.filter(name="a").exists()
    limit(project, None)
    assert run_create(project=project, user=bob, name="a", config=config).state == "queued"


def test_a_limit_of_nothing_lets_nothing_begin(project: Project) -> None:
    require_storage(project)
    limit(project, 0)
    with pytest.raises(StorageLimit, match="may store 0 GiB"):
        require_storage(project)


def test_drafts_and_paused_runs_are_not_refused_and_a_launch_of_a_draft_is(
    bob: User, project: Project, config: JobConfig, make_run: Make
) -> None:
    limit(project, 0)
    draft = run_create(project=project, user=bob, name="d", config=config, launch=False)
    with pytest.raises(StorageLimit):
        check_begin(run=draft, user=bob)
    draft.refresh_from_db()
    assert (draft.state, draft.phase) == ("draft", "") and not draft.launch_checks.exists()
    paused = make_run(state="paused", attempt=1)
    assert run_resume(run=paused, user=bob).state == "queued"
    assert check_begin(run=paused, user=bob) is None


def test_one_launch_under_its_key_is_still_that_run(bob: User, project: Project, config: JobConfig) -> None:
    made = run_create(project=project, user=bob, name="a", config=config, idempotency_key="k")
    limit(project, 0)
    assert run_create(project=project, user=bob, name="a", config=config, idempotency_key="k") == made


def test_the_api_and_the_form_name_the_limit(
    bob: User, project: Project, config: JobConfig, client_for: Callable[..., Client]
) -> None:
    limit(project, 0)
    body = {"name": "a", "config": config.model_dump(mode="json")}
    client = client_for(bob)
    answer = client.post("/api/v1/projects/joust/runs", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (422, "storage_limit")
    assert "may store 0 GiB" in answer.json()["message"]
    axes = [{"option": "run.seed", "values": [1, 2]}]
    sweep = client.post("/api/v1/projects/joust/sweeps", body | {"axes": axes}, content_type="application/json")
    assert (sweep.status_code, sweep.json()["code"]) == (422, "storage_limit")
    page = client.post("/p/joust/runs/new/", data_of(project, config, "a"))
    assert page.status_code == 422 and "may store 0 GiB" in page.content.decode()
    assert not Run.objects.exists()


def test_the_check_before_a_launch_says_it(project: Project) -> None:
    assert list(_check_storage(project)) == []
    limit(project, 0)
    (found,) = _check_storage(project)
    assert found.level == "problem" and "may store 0 GiB" in found.message


# --- Who may change it ----------------------------------------------------------------------------------------------
def test_administrators_set_it_on_the_page_and_all_members_see_it(
    admin: User, bob: User, project: Project, make_run: Make, client_for: Callable[..., Client]
) -> None:
    saves(make_run(), 3 * GIB // 2)
    limit(project, 5)
    address = "/usage/limit/"
    assert client_for(bob).post(address, {"project": project.slug, "storage_gib": "4"}).status_code == 403
    page = dense(client_for(bob).get("/usage/").content.decode())
    assert address not in page and 'name="storage_gib"' not in page
    assert 'data-label="GiB stored">1.5</td>' in page and 'data-label="GiB at most">5</td>' in page
    assert 'data-label="Devices at most">no limit</td>' in page
    page = client_for(admin).get("/usage/").content.decode()
    assert page.count(f'action="{address}"') >= 2 and 'name="storage_gib"' in page and 'name="devices"' in page
    for text, kept in (("4", 4), ("", None), ("0", 0), (" 7 ", 7)):
        client_for(admin).post(address, {"project": project.slug, "storage_gib": text})
        project.refresh_from_db()
        assert (project.storage_limit, project.device_limit) == (kept, None)
    client_for(admin).post(address, {"project": project.slug, "devices": "3"})
    project.refresh_from_db()
    assert (project.storage_limit, project.device_limit) == (7, 3), "the one that was not sent stays"
    for wrong in ("-1", "x", "1.5", str(MOST + 1)):
        client_for(admin).post(address, {"project": project.slug, "storage_gib": wrong})
        project.refresh_from_db()
        assert project.storage_limit == 7
    rows = AuditEntry.objects.order_by("id").values_list("action", "subject", "username")
    storage = [("storage_limit", f"Joust: {to}", "alice") for to in ("4 GiB", "no limit", "0 GiB", "7 GiB")]
    assert list(rows) == [*storage, ("device_limit", "Joust: 3", "alice")]


def test_the_api_changes_what_is_sent_alone(
    admin: User, bob: User, project: Project, make_run: Make, client_for: Callable[..., Client]
) -> None:
    saves(make_run(), 77)
    address = "/api/v1/limits"

    def send(user: User, **body: Any) -> Any:
        return client_for(user).post(address, {"project": project.slug, **body}, content_type="application/json")

    assert send(bob, storage_gib=1).status_code == 403
    known = {"project": project.slug, "in_use": 0, "stored_bytes": 77}
    assert send(admin, storage_gib=2).json() == known | {"devices": None, "storage_gib": 2}
    assert send(admin, devices=3).json() == known | {"devices": 3, "storage_gib": 2}
    assert send(admin, storage_gib=None).json() == known | {"devices": 3, "storage_gib": None}
    assert send(admin).json() == known | {"devices": 3, "storage_gib": None}
    assert send(admin, devices=None, storage_gib=MOST).json() == known | {"devices": None, "storage_gib": MOST}
    for wrong in (-1, MOST + 1):
        answer = send(admin, storage_gib=wrong)
        assert answer.status_code == 422 and [one["path"] for one in answer.json()["detail"]] == ["storage_gib"]
    assert client_for(bob).get(address).json() == {"items": [known | {"devices": None, "storage_gib": MOST}]}


def test_a_wrong_one_of_two_limits_changes_neither(admin: User, project: Project) -> None:
    with pytest.raises(ValidationError):
        limit_change(slug=project.slug, limits={"devices": 3, "storage_gib": -1}, user=admin)
    project.refresh_from_db()
    assert (project.device_limit, project.storage_limit) == (None, None) and not AuditEntry.objects.exists()


def test_a_change_reads_the_figures_of_its_project_alone(admin: User, project: Project, elsewhere: Project) -> None:
    with CaptureQueriesContext(connection) as queries:
        found = limit_change(slug=project.slug, limits={"devices": 1}, user=admin)
    assert found.project == project
    assert not any(str(elsewhere.pk.hex) in each["sql"] or str(elsewhere.pk) in each["sql"] for each in queries)


# --- Endpoints ------------------------------------------------------------------------------------------------------
def test_the_page_shows_what_endpoints_may_spend_in_a_day(
    bob: User, admin: User, project: Project, elsewhere: Project, client_for: Callable[..., Client]
) -> None:
    def add(name: str, of: Project = project, **limits: Any) -> Endpoint:
        return Endpoint.objects.create(project=of, name=name, url="http://a", model="m", currency="USD", **limits)

    now = timezone.now()
    paid, words, free = add("paid", max_day_cost=5.0), add("words", max_day_tokens=2000), add("free", max_run_cost=9.0)
    both = add("both", max_day_cost=1.0, max_day_tokens=10)
    theirs = add("theirs", elsewhere, max_day_cost=3.0)
    spend_add(paid, tokens=100, cost=1.25, at=now, name="a")
    spend_add(paid, tokens=100, cost=1.0, at=now, name="b")
    spend_add(paid, tokens=999, cost=4.0, at=now - timedelta(days=2), name="a")
    spend_add(words, tokens=1500, cost=None, at=now)
    spend_add(free, tokens=1, cost=None, at=now)
    found = endpoint_days([project.pk])[project.pk]
    assert [(day.endpoint, day.cost, day.tokens) for day in found] == [
        (both, "0 / 1 USD", "0 / 10"),
        (paid, "2.25 / 5 USD", ""),
        (words, "", "1,500 / 2,000"),
    ]
    page = dense(client_for(bob).get("/usage/").content.decode())
    assert "paid: 2.25 / 5 USD" in page and "words: 1,500 / 2,000 tokens" in page and theirs.name not in page
    assert "both: 0 / 1 USD · 0 / 10 tokens" in page and "free:" not in page
    assert "theirs: 0 / 3 USD" in dense(client_for(admin).get("/usage/").content.decode())
