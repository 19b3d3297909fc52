"""Every unsafe address leaves a row in the audit, or is listed with the reason why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.security.acts import ACTS, DATASETS, DELETES, JSON, RUNS, UNAUDITED
from tests.security.routes import API, FILES, PROJECT, TABLE, Who
from tests.security.test_authorisation_matrix import _address, objects
from tests.webapp.launch.test_launch import config, trainer
from tests.webapp.rewards.test_custom import _form
from tests.working import at_once
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset
from webapp.evaluation.votes.models import VoteRound
from webapp.people.teams.models import AuditAction, AuditEntry, Membership, Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.removal.models import Removal
from webapp.runs.rollouts.models import Rollout

__all__ = ["config", "objects", "trainer"]
UNSAFE = sorted(
    route for route, methods in TABLE.items() if set(methods) - {"GET"} and Who.ABSENT not in methods.values()
)


@pytest.fixture
def places(
    objects: dict[str, Any],
    project: Project,
    config: Any,
    trainer: Any,
    make_environment: Any,
    make_run: Any,
    settings: Any,
    evaluation: Any,
    alice: User,
) -> dict[str, Any]:
    """The objects of the matrix, each in a state in which the act is possible."""
    shop = make_environment(kind="process", program="webshop", url="", name="mall", arguments={"products": 50})
    place = make_environment(url="http://127.0.0.1:65001")
    settings.CUSTOM_REWARDS, settings.HUB_TOKEN = True, "token"
    return objects | {
        "project": project,
        "config": config,
        "place": place,
        "other": make_run().pk,
        "environments": shop.pk,
        "environment_id": shop.pk,
        "evaluation": evaluation,
        "voter": alice.pk,
    }


def _written(run: Any) -> None:
    """A journal of the run's first attempt."""
    folder = attempt_dir(run, 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal.jsonl").touch()


def _prepare(route: str, places: dict[str, Any], alice: User, client: Client) -> None:
    states = {"pause/": "running", "resume/": "paused", "queue/": "queued"}
    tail = f"{route.rstrip('/').rsplit('/', 1)[-1]}/"
    if tail in states and ("runs/<" in route or tail == "queue/"):
        Run.objects.update(state=states[tail], attempt=1, lease_owner="w", lease_beat_at=timezone.now())
    elif tail in ("end/", "fail/"):
        Run.objects.filter(rollouts=places["rollouts"]).update(state="running", attempt=1, lease_owner="w")
        Rollout.objects.filter(pk=places["rollouts"]).update(status="running", attempt=1)
    elif "rollouts/<" in route and tail == "continue/":
        config = places["config"].model_dump(mode="json") | {"kind": "evaluate"}
        config["data"]["train"] = ""  # its environment drew the task
        Rollout.objects.filter(pk=places["rollouts"]).update(row=0)
        url = {"environment": config["environment"] | {"url": "http://127.0.0.1:9"}}
        Run.objects.filter(rollouts=places["rollouts"]).update(kind="evaluate", config=config, resolved=config | url)
    elif "teams/<" in route:
        Removal.objects.all().delete()  # the failed one would keep the team
        Run.objects.update(state="succeeded", attempt=1)
    elif tail == "reopen/":
        VoteRound.objects.update(closed_at=timezone.now())
    elif (route.startswith(PROJECT) and tail == "delete/") or (
        "runs/<" in route and tail in ("export/", "exports/", "pairs/")
    ):
        Run.objects.update(state="succeeded", attempt=1)
        _written(places["runs"])
    elif route in (RUNS + "launch/", API + "runs/<uuidstr:run_id>/launch"):
        Run.objects.update(state="draft", config=places["config"].model_dump(mode="json"))
    elif route in (DATASETS + "keep/", API + "datasets/<uuidstr:dataset_id>/keep"):
        Dataset.objects.update(state="needs_choice")
    elif "rewards/<uuid:pk>/" in route or "runs/new" in route or "projects/<slug:slug>/runs" in route:
        Run.objects.exclude(pk=places["runs"]).delete()
        if tail in ("sample/", "test-bed/"):
            RewardSpec.objects.update(components=[{"name": "bfcl_stage_1", "weight": 1.0}])
    elif getattr(ACTS.get(route), "action", "") == "model_pushed":
        RegisteredModel.objects.update(kind="run", checkpoint=places["checkpoint_id"])
        folder = RegisteredModel.objects.select_related("checkpoint").first().folder  # type: ignore[union-attr]
        folder.mkdir(parents=True, exist_ok=True)  # type: ignore[union-attr]
        (folder / "model.safetensors").write_bytes(b"weights")  # type: ignore[operator]
    elif route == "site/custom-rewards/":
        User.objects.filter(pk=alice.pk).update(is_superuser=True)
    elif route == PROJECT + "rewards/custom/":
        assert client.post(f"/p/{places['slug']}/rewards/custom/test/", _form()).status_code == 200


def test_every_unsafe_address_is_audited_or_listed_with_a_reason() -> None:
    assert set(UNSAFE) == set(ACTS) | set(DELETES) | set(UNAUDITED)
    deleting = {route for route in UNSAFE if "DELETE" in TABLE[route]} - set(UNAUDITED)
    assert set(DELETES) == deleting - {"login/", "language/"}
    assert not set(ACTS) & set(UNAUDITED) and all(UNAUDITED.values())
    assert {act.action for act in ACTS.values()} <= set(AuditAction.values)


@pytest.mark.parametrize("route", sorted(ACTS))
def test_an_act_leaves_a_row(
    route: str, places: dict[str, Any], alice: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    act, client = ACTS[route], client_for(alice, REMOTE_ADDR="10.9.8.7", HTTP_USER_AGENT="Lance/1")
    _prepare(route, places, alice, client)
    before = set(AuditEntry.objects.values_list("pk", flat=True))
    body = act.body(places) if callable(act.body) else act.body
    address = _address(route, places)
    if (route.startswith(API) and route not in FILES) or route in JSON:
        text = body if isinstance(body, str) else json.dumps(body)
        method = "POST" if "POST" in TABLE[route] else "PATCH"
        response = client.generic(method, address, text, content_type="application/json")
    else:
        response = client.post(address, body)
    rows = AuditEntry.objects.exclude(pk__in=before)
    assert response.status_code < 400 or act.action == "confirm_failed", response.content.decode()[:3000]
    found = rows.filter(action=act.action).first()
    assert found is not None, (list(rows.values_list("action", flat=True)), response.content.decode()[:1500])
    assert (found.username, found.user_id, found.address, found.agent) == ("alice", alice.pk, "10.9.8.7", "Lance/1")
    if route.startswith(PROJECT) and "members" not in route:
        assert found.project_id == places["project"].pk and found.subject


@pytest.mark.parametrize("route", sorted(DELETES))
def test_a_deletion_over_the_api_leaves_a_row(
    route: str, places: dict[str, Any], alice: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    client, of_team = client_for(alice), "teams/<" in route
    Run.objects.update(state="succeeded")
    if of_team:
        _prepare(route, places, alice, client)
    response = client.delete(_address(route, places))
    assert response.status_code == 200, response.content
    rows = AuditEntry.objects.exclude(action="machine_ended") if of_team else AuditEntry.objects.all()
    row = rows.get()
    project = "" if of_team else "Joust"
    assert (row.action, row.username, row.project_name) == (DELETES[route], "alice", project) and row.subject


def test_the_page_links_and_filters(
    project: Project, alice: User, bob: User, client_for: Callable[..., Client], make_run: Any
) -> None:
    run = make_run(name="lance-1")
    client_for(bob).post(f"/p/{project.slug}/runs/{run.pk}/stop/")
    User.objects.filter(pk=alice.pk).update(is_superuser=True)
    member = Membership.objects.get(user=bob)
    boss = client_for(alice)
    boss.post(f"/p/{project.slug}/settings/members/{member.pk}/role/", {"role": "viewer"})
    page = boss.get("/site/").content.decode()
    assert f'href="/p/joust/runs/{run.pk}/">lance-1</a>' in page and "run stopped" in page
    assert "bob · Knights · viewer" in page
    only = boss.get("/site/", {"who": "alice"}).content.decode()
    assert "bob · Knights · viewer" in only and "lance-1" not in only
    here = boss.get("/site/", {"project": "Joust"}).content.decode()
    assert "lance-1" in here and "bob · Knights · viewer" not in here
    run.delete()
    assert "lance-1</span>" in boss.get("/site/").content.decode()


def test_what_happened_to_nothing_leaves_no_row(project: Project, bob: User, client_for: Any, make_run: Any) -> None:
    run = make_run(state="succeeded")
    client_for(bob).post(f"/p/{project.slug}/runs/{run.pk}/stop/")
    assert not AuditEntry.objects.exists()
