"""What people do with runs, datasets, rewards, environments, models and projects: the same from a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.working import at_once
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import DatasetOrder, Environment
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel

pytestmark = pytest.mark.django_db
V1 = "/api/v1"


@pytest.fixture
def bobs(bob: User, client_for: Callable[..., Client]) -> Client:
    return client_for(bob)


def _post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(V1 + path, json.dumps(body or {}), content_type="application/json")


def _patch(client: Client, path: str, body: Any) -> Any:
    return client.patch(V1 + path, json.dumps(body), content_type="application/json")


def _paths(answer: Any) -> list[str]:
    assert answer.status_code == 422, answer.content
    return [item["path"] for item in answer.json()["detail"]]


# --- Runs -----------------------------------------------------------------------------------------------------------
def test_a_clone_has_the_config_with_its_changes(bobs: Client, make_run: Any) -> None:
    run = make_run(name="night-4", config={"kind": "grpo", "run": {"max_steps": 30, "seed": 5}})
    made = _post(bobs, f"/runs/{run.pk}/clone", {"config": {"run": {"max_steps": 60}}, "launch": False})
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["config"]["run"]["max_steps"], body["config"]["run"]["seed"], body["state"]) == (60, 5, "draft")
    assert body["name"] != "night-4" and Run.objects.count() == 2
    named = _post(bobs, f"/runs/{run.pk}/clone", {"name": "night-5", "launch": False})
    assert named.json()["name"] == "night-5" and named.json()["config"]["run"]["max_steps"] == 30


def test_a_clone_names_what_is_wrong(bobs: Client, make_run: Any) -> None:
    run = make_run()
    wrong = _post(bobs, f"/runs/{run.pk}/clone", {"config": {"run": {"max_steps": 0}}})
    assert _paths(wrong) == ["run.max_steps"]
    taken = _post(bobs, f"/runs/{run.pk}/clone", {"name": run.name, "launch": False})
    assert _paths(taken) == ["name"]
    missing = _post(bobs, f"/runs/{run.pk}/clone", {"config": {"data": {"train": "dataset:none@1"}}})
    assert _paths(missing) == ["data.train"] and Run.objects.count() == 1


def test_a_draft_is_checked_and_launched_once(
    bobs: Client, make_run: Any, make_dataset: Any, make_environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    config = {"data": {"train": make_dataset().reference}, "environment": {"name": make_environment().reference}}
    run = make_run(config=config)
    assert bobs.get(f"{V1}/runs/{run.pk}/check").json() == {"state": "", "blocked": False, "checks": []}
    begun = _post(bobs, f"/runs/{run.pk}/launch")
    assert (begun.status_code, begun.json()["state"], begun.json()["phase"]) == (200, "draft", "checking")
    assert bobs.get(f"{V1}/runs/{run.pk}/check").json()["state"] == "open"
    Run.objects.filter(pk=run.pk).update(state="succeeded")
    again = _post(bobs, f"/runs/{run.pk}/launch")
    assert again.status_code == 409 and again.json()["code"] == "conflict"


def test_preflight_makes_nothing(bobs: Client, project: Project, make_dataset: Any) -> None:
    found = _post(bobs, "/projects/joust/preflight", {"config": {"data": {"train": "dataset:none@1"}}}).json()
    assert (found["ok"], found["blocked"]) == (False, True)
    (check,) = found["checks"]
    assert (check["path"], check["level"], check["hard"]) == ("data.train", "problem", True) and check["message"]
    assert _paths(_post(bobs, "/projects/joust/preflight", {"yaml": "run: {max_steps: 0}"})) == ["run.max_steps"]
    assert not Run.objects.exists()


# --- Datasets -------------------------------------------------------------------------------------------------------
def test_bad_rows_are_left_out_only_where_that_is_asked(bobs: Client, make_dataset: Any) -> None:
    asked, ready = make_dataset(state=DatasetState.NEEDS_CHOICE, bad_rows=1), make_dataset()
    kept = _post(bobs, f"/datasets/{asked.pk}/keep")
    assert (kept.status_code, kept.json()["state"]) == (200, "ready")
    assert _post(bobs, f"/datasets/{ready.pk}/keep").status_code in (409, 422)


def test_a_ready_dataset_is_read_again_as_its_next_version(
    bobs: Client, make_dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    ready, rejected = make_dataset(name="talks"), make_dataset(name="other", state=DatasetState.REJECTED)
    made = _post(bobs, f"/datasets/{ready.pk}/read", {"checking": {"window": 100}})
    assert made.status_code == 200, made.content
    assert (made.json()["reference"], made.json()["state"]) == ("dataset:talks@2", "checking")
    same = _post(bobs, f"/datasets/{rejected.pk}/read", {})
    assert (same.json()["id"], same.json()["state"]) == (str(rejected.pk), "checking")
    wrong = _post(bobs, f"/datasets/{ready.pk}/read", {"reading": {"nonsense": 1}})
    assert wrong.status_code == 422
    assert _post(bobs, f"/datasets/{rejected.pk}/read", {}).status_code == 409  # it is being checked


def test_a_dataset_of_the_hub(bobs: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    body = {"name": "gsm", "id": "openai/gsm8k", "split": "train", "look": True}
    made = _post(bobs, "/projects/joust/datasets/fetch", body)
    assert made.status_code == 201 and made.json()["reference"] == "dataset:gsm@1"
    assert Dataset.objects.get().source["hub"]["id"] == "openai/gsm8k" and Dataset.objects.get().source["look"] is True
    assert _post(bobs, "/projects/joust/datasets/fetch", {"name": "x", "id": "../etc"}).status_code == 422


# --- Rewards --------------------------------------------------------------------------------------------------------
def test_a_conversation_is_scored_and_a_spec_deleted(
    bobs: Client, rita: User, client_for: Callable[..., Client], make_reward_spec: Any, make_run: Any
) -> None:
    spec = make_reward_spec(components=[{"name": "coherence", "weight": 0.5}])
    talk = json.dumps([{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}])
    tried = _post(client_for(rita), f"/rewards/{spec.pk}/try", {"conversation": talk})
    assert tried.status_code == 200, tried.content
    (part,) = tried.json()["parts"]
    assert part["weight"] == 0.5 and tried.json()["total"] == part["weighted"] == part["value"] * 0.5
    assert _post(bobs, f"/rewards/{spec.pk}/try", {"conversation": "no JSON"}).status_code == 422
    make_run(state="queued", config={"rewards": {"spec": spec.reference}})
    assert bobs.delete(f"{V1}/rewards/{spec.pk}").status_code == 409
    Run.objects.update(state="succeeded")
    assert bobs.delete(f"{V1}/rewards/{spec.pk}").json() == {"deleted": spec.reference}
    assert not RewardSpec.objects.exists()


def test_test_cases_are_listed_without_their_episodes(bobs: Client, project: Project) -> None:
    case = RewardCase.objects.create(
        project=project, name="sum", messages=[{"role": "user", "content": "hidden"}], prompt_length=1, total=[0.5, 1]
    )
    (found,) = bobs.get(f"{V1}/projects/joust/reward-cases").json()["items"]
    assert (found["name"], found["total"], found["expected"]) == ("sum", [0.5, 1], {})
    assert "hidden" not in json.dumps(found)
    assert bobs.delete(f"{V1}/reward-cases/{case.pk}").json() == {"deleted": "sum"}
    assert bobs.delete(f"{V1}/reward-cases/{case.pk}").status_code == 404


# --- Environments ---------------------------------------------------------------------------------------------------
def test_limits_of_an_environment_change(bobs: Client, make_environment: Any, make_run: Any) -> None:
    shop = make_environment(kind="process", program="webshop", url="", arguments={"products": 50}, memory_mb=768)
    changed = _patch(bobs, f"/environments/{shop.pk}", {"memory_mb": 512})
    assert changed.status_code == 200, changed.content
    shop.refresh_from_db()
    assert (shop.memory_mb, shop.arguments) == (512, {"products": 50})
    assert _paths(_patch(bobs, f"/environments/{shop.pk}", {"slots": 0})) == ["body.body.slots"]
    elsewhere = make_environment()
    assert _patch(bobs, f"/environments/{elsewhere.pk}", {"slots": 3}).status_code == 422
    make_run(state="queued", config={"environment": {"name": shop.reference}})
    assert _patch(bobs, f"/environments/{shop.pk}", {"memory_mb": 1024}).status_code == 409
    assert bobs.delete(f"{V1}/environments/{shop.pk}").status_code == 409
    Run.objects.update(state="failed")
    assert bobs.delete(f"{V1}/environments/{shop.pk}").json() == {"deleted": shop.reference}
    assert list(Environment.objects.values_list("pk", flat=True)) == [elsewhere.pk]


def test_an_environment_is_asked_now(bobs: Client, make_environment: Any, tools_server: str, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    gone = make_environment(url="http://127.0.0.1:1")
    found = _post(bobs, f"/environments/{gone.pk}/check")
    assert found.status_code == 200 and found.json()["healthy"] is False
    here = make_environment(url=tools_server, healthy=False)
    assert _post(bobs, f"/environments/{here.pk}/check").json()["healthy"] is True


def test_a_dataset_is_ordered(bobs: Client, make_environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once(monkeypatch)
    shop = make_environment(kind="process", program="webshop", url="", arguments={"products": 50})
    path = f"/environments/{shop.pk}/dataset-orders"
    made = _post(bobs, path, {"command": "tasks", "name": "goals"})
    assert made.status_code == 201, made.content
    assert (made.json()["name"], made.json()["dataset"]) == ("goals", None) and DatasetOrder.objects.count() == 1
    assert [item["id"] for item in bobs.get(V1 + path).json()["items"]] == [made.json()["id"]]
    assert _paths(_post(bobs, path, {"command": "rm", "name": "x"})) == ["command"]


# --- Models and projects --------------------------------------------------------------------------------------------
def test_models_are_registered(bobs: Client, project: Project, make_run: Any) -> None:
    run = make_run()
    checkpoint = Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=9, path="1/checkpoint-9", bytes=1, seq=1, created_at=run.created_at
    )
    hub = _post(bobs, "/projects/joust/models", {"name": "qwen", "kind": "hub", "source": "a/b", "revision": "main"})
    assert (hub.status_code, hub.json()["reference"]) == (201, "model:qwen")
    body = {"name": "trained", "kind": "run", "checkpoint": str(checkpoint.pk)}
    assert _post(bobs, "/projects/joust/models", body).json()["step"] == 9
    for wrong, field in (
        ({"name": "qwen", "kind": "hub", "source": "a/b"}, "name"),
        ({"name": "x", "kind": "run"}, "checkpoint"),
        ({"name": "x", "kind": "hub", "source": "/etc"}, "source"),
        ({"name": "x", "kind": "starter"}, "body.body.kind"),
    ):
        assert _paths(_post(bobs, "/projects/joust/models", wrong)) == [field], wrong
    assert RegisteredModel.objects.count() == 2


def test_a_checkpoint_of_another_project_is_none(bobs: Client, project: Project, charlie: User, make_run: Any) -> None:
    theirs = Project.objects.get(slug="elsewhere")
    run = make_run(project=theirs)
    checkpoint = Checkpoint.objects.create(
        project=theirs, run=run, attempt=1, step=1, path="1/checkpoint-1", bytes=1, seq=1, created_at=run.created_at
    )
    body = {"name": "x", "kind": "run", "checkpoint": str(checkpoint.pk)}
    assert _paths(_post(bobs, "/projects/joust/models", body)) == ["checkpoint"]


def test_owners_start_projects_and_tokens_only_with_everything(
    alice: User, bobs: Client, project: Project, client_for: Callable[..., Client]
) -> None:
    made = _post(client_for(alice), "/projects", {"name": "Second Joust"})
    assert (made.status_code, made.json()) == (
        201,
        {"slug": "second-joust", "name": "Second Joust", "team": "Knights"},
    )
    assert _post(bobs, "/projects", {"name": "No"}).status_code == 403
    assert _paths(_post(client_for(alice), "/projects", {"name": "x", "team": "Strangers"})) == ["team"]
    for role, within, status in (("editor", None, 403), ("owner", project, 403), ("owner", None, 201)):
        _token, text = token_create(user=alice, name=f"t {role} {within}", role=role, project=within)
        script = client_for(None, headers={"authorization": f"Bearer {text}"})
        assert _post(script, "/projects", {"name": "By token"}).status_code == status, (role, within)


def test_members_tell_names_and_roles(
    rita: User, bob: User, project: Project, client_for: Callable[..., Client]
) -> None:
    found = client_for(rita).get(f"{V1}/projects/joust/members").json()["items"]
    assert found == [{"username": "bob", "role": "editor"}, {"username": "rita", "role": "viewer"}]
