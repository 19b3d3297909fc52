"""The REST API: thin over the services, one error shape."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.working import at_once
from webapp.engine.history import event_add
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create, token_revoke
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.rollouts.models import Rollout

SHAPE = {"ok", "code", "message", "detail", "request_id"}
V1 = "/api/v1"


@pytest.fixture
def bobs(bob: User, client_for: Callable[..., Client]) -> Client:
    return client_for(bob)


def _post(client: Client, path: str, body: Any) -> Any:
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return client.post(V1 + path, text, content_type="application/json")


def _config(dataset: Any, environment: Any) -> dict[str, Any]:
    return {"data": {"train": dataset.reference}, "environment": {"name": environment.reference}}


def test_projects(project: Project, bobs: Client) -> None:
    assert bobs.get(f"{V1}/projects").json()["items"] == [{"slug": "joust", "name": "Joust", "team": "Knights"}]
    assert bobs.get(f"{V1}/projects/joust").json()["role"] == "editor"


def test_pause_and_resume(project: Project, bobs: Client, make_run: Any) -> None:
    run = make_run(state="running", attempt=1)
    assert bobs.post(f"{V1}/runs/{run.pk}/pause").json()["state"] == "pausing"
    paused = make_run(state="paused")
    assert bobs.post(f"{V1}/runs/{paused.pk}/resume").json()["code"] == "config_invalid"  # it names no dataset
    answer = bobs.post(f"{V1}/runs/{make_run(state='succeeded').pk}/resume")
    assert answer.status_code == 409 and answer.json()["message"] == "This run cannot be resumed."


def test_models(project: Project, bobs: Client) -> None:
    model = RegisteredModel.objects.create(project=project, name="small", kind="hub", source="a/b", revision="main")
    (found,) = bobs.get(f"{V1}/projects/joust/models").json()["items"]
    assert found == {
        "id": str(model.pk),
        "name": "small",
        "reference": "model:small",
        "kind": "hub",
        "source": "a/b",
        "revision": "main",
        "run": None,
        "step": None,
        "bytes": None,
        "mark": "",
        "tags": [],
        "notes": "",
        "created_at": model.created_at.isoformat(),
    }


def test_run_life(project: Project, bobs: Client, make_dataset: Any, make_environment: Any, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    config = _config(make_dataset(), make_environment(url="http://127.0.0.1:65001"))
    made = _post(bobs, "/projects/joust/runs", {"name": "one", "config": config, "idempotency_key": "k"})
    again = _post(bobs, "/projects/joust/runs", {"name": "one", "config": config, "idempotency_key": "k"})
    assert made.status_code == 201, made.content
    run_id = made.json()["id"]
    assert again.json()["id"] == run_id and made.json()["state"] == "queued"
    assert bobs.get(f"{V1}/runs/{run_id}").json()["config"]["data"] == made.json()["config"]["data"]
    listed = bobs.get(f"{V1}/projects/joust/runs", {"per_page": 5000}).json()
    assert (listed["total"], listed["items"][0]["name"]) == (1, "one")
    assert _post(bobs, f"/runs/{run_id}/stop", {}).json()["state"] == "cancelled"


def test_run_from_yaml_as_a_draft(project: Project, bobs: Client) -> None:
    made = _post(bobs, "/projects/joust/runs", {"name": "y", "yaml": "run:\n  max_steps: 7\n", "launch": False})
    assert made.status_code == 201 and made.json()["config"]["run"]["max_steps"] == 7
    assert made.json()["state"] == "draft"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": "x", "yaml": "run: {max_steps: 0}"}, "run.max_steps"),
        ({"name": "x", "config": {"run": {"max_steps": 0}}}, "run.max_steps"),
        ({"name": "x", "config": {"optim": {"micro_batch_size": 7}}}, "optim.micro_batch_size"),
        ({"name": "x", "config": {"data": {"train": "/etc/passwd"}}}, "data.train"),
        ({"name": "x", "config": {"model": {"source": "/etc"}}}, "model.source"),
        ({"name": "x", "nonsense": 1}, "body.body.nonsense"),
        ({"name": "x" * 81}, "body.body.name"),
        ({"name": "../x", "launch": False}, "name"),
    ],
)
def test_wrong_runs_name_the_option(body: dict[str, Any], path: str, project: Project, bobs: Client) -> None:
    answer = _post(bobs, "/projects/joust/runs", body)
    assert answer.status_code == 422 and set(answer.json()) == SHAPE
    assert answer.json()["detail"][0]["path"] == path
    assert not Run.objects.exists()


@pytest.mark.parametrize("body", ["", "{", "[]", "3", "null", b"\xff\xfe", "[" * 100_000, '{"name": "\\u0000"}'])
def test_broken_bodies_have_the_shape(body: Any, project: Project, bobs: Client) -> None:
    answer = _post(bobs, "/projects/joust/runs", body)
    assert 400 <= answer.status_code < 500 and set(answer.json()) == SHAPE


def test_large_body_is_413(project: Project, bobs: Client) -> None:
    answer = _post(bobs, "/projects/joust/runs", json.dumps({"name": "x", "yaml": "x" * 2_000_000}))
    assert answer.status_code == 413 and answer.json()["code"] == "too_large"


def test_run_data(project: Project, bobs: Client, make_run: Any) -> None:
    run = make_run()
    for step in range(3):
        MetricPoint.objects.create(run=run, attempt=1, step=step, name="reward", value=step, seq=step)
        MetricPoint.objects.create(run=run, attempt=1, step=step, name="kl", value=float("nan"), seq=step)
        Rollout.objects.create(run=run, attempt=1, step=1, group=0, index=step, started_at=timezone.now(), seq=1)
        event_add(run.pk, "log", {"text": f"line {step}"}, attempt=1)
    curves = bobs.get(f"{V1}/runs/{run.pk}/metrics").json()["curves"]
    assert curves["reward"]["values"] == [0, 1, 2] and curves["kl"]["values"] == [None] * 3
    assert list(bobs.get(f"{V1}/runs/{run.pk}/metrics", {"name": "reward"}).json()["curves"]) == ["reward"]
    part = bobs.get(f"{V1}/runs/{run.pk}/metrics", {"name": "reward", "first": 1, "last": 1}).json()["curves"]
    assert part["reward"] == {"steps": [1], "values": [1.0], "attempts": [1]}
    assert bobs.get(f"{V1}/runs/{run.pk}/metrics", {"first": 2}).json()["curves"]["kl"]["steps"] == [2]
    thin = bobs.get(f"{V1}/runs/{run.pk}/metrics", {"points": 2, "name": "reward"}).json()["curves"]["reward"]
    assert thin["means"] == {"steps": [1], "values": [1.0], "counts": [3]}
    for bad in ({"first": -1}, {"last": 2**31}, {"first": "x"}):
        assert bobs.get(f"{V1}/runs/{run.pk}/metrics", bad).status_code == 422
    rollouts = bobs.get(f"{V1}/runs/{run.pk}/steps/1/rollouts", {"per_page": 2}).json()
    assert (len(rollouts["items"]), rollouts["total"], rollouts["pages"]) == (2, 3, 2)
    events = bobs.get(f"{V1}/runs/{run.pk}/events", {"limit": 2}).json()
    assert len(events["items"]) == 2 and events["more"]
    rest = bobs.get(f"{V1}/runs/{run.pk}/events", {"after": events["items"][-1]["seq"]}).json()
    assert len(rest["items"]) == 1 and not rest["more"]
    for query in ({"after": 10**30}, {"after": -(10**30)}, {"limit": 0}, {"limit": 10**9}, {"after": "x"}):
        assert bobs.get(f"{V1}/runs/{run.pk}/events", query).status_code in (200, 422)
    assert bobs.get(f"{V1}/runs/{run.pk}/steps/{10**20}/rollouts").status_code == 200
    assert bobs.get(f"{V1}/runs/{run.pk}/metrics", {"name": "a\x00b"}).status_code == 200


def test_dataset_upload(project: Project, bobs: Client, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    at_once(monkeypatch)
    file = io.BytesIO(b'{"messages": []}\n')
    file.name = "a.jsonl"
    made = bobs.post(f"{V1}/projects/joust/datasets", {"name": "d", "file": file})
    assert made.status_code == 201 and made.json()["reference"] == "dataset:d@1"
    shown = bobs.get(f"{V1}/datasets/{made.json()['id']}").json()
    assert shown["state"] == "checking" and "token" not in shown["progress"]
    assert bobs.get(f"{V1}/projects/joust/datasets").json()["total"] == 1
    assert bobs.post(f"{V1}/projects/joust/datasets", {"name": "d"}).json()["detail"][0]["path"] == "file"
    settings.MAX_UPLOAD_BYTES = 1000
    for size in (5_000, 200_000):
        large = io.BytesIO(b"x" * size)
        large.name = "b"
        answer = bobs.post(f"{V1}/projects/joust/datasets", {"name": "d", "file": large})
        assert answer.status_code == 413 and set(answer.json()) == SHAPE


def test_reward_specs_and_environments(project: Project, bobs: Client, tools_server: str) -> None:
    body = {"name": "r", "components": [{"name": "coherence", "weight": 1}]}
    made = _post(bobs, "/projects/joust/rewards", body)
    assert made.status_code == 201 and _post(bobs, "/projects/joust/rewards", body).json()["version"] == 1
    assert bobs.get(f"{V1}/rewards/{made.json()['id']}").json()["components"][0]["name"] == "coherence"
    wrong = _post(bobs, "/projects/joust/rewards", {"name": "r", "components": [{"name": "nope", "weight": 1}]})
    assert wrong.status_code == 422 and RewardSpec.objects.count() == 1
    environment = _post(bobs, "/projects/joust/environments", {"name": "tools", "url": tools_server})
    assert environment.status_code == 201 and environment.json()["healthy"]
    refused = _post(bobs, "/projects/joust/environments", {"name": "e", "url": "http://169.254.169.254"})
    assert refused.status_code == 422 and refused.json()["detail"][0]["path"] == "url"
    assert bobs.get(f"{V1}/environments/{environment.json()['id']}").json()["name"] == "tools"


def test_errors_have_one_shape(
    project: Project, bobs: Client, client_for: Callable[..., Client], charlie: User
) -> None:
    cases = [
        (bobs.get(f"{V1}/nothing"), 404, "not_found"),
        (bobs.put(f"{V1}/projects"), 405, "method_not_allowed"),
        (bobs.get(f"{V1}/runs/nonsense"), 404, "not_found"),
        (client_for(None).get(f"{V1}/projects"), 401, "login_required"),
        (client_for(None).post(f"{V1}/projects/joust/runs"), 401, "login_required"),
        (client_for(charlie).get(f"{V1}/projects/joust"), 404, "not_found"),
        (client_for(None).get(f"{V1}/nothing"), 401, "login_required"),
    ]
    for answer, status, code in cases:
        assert (answer.status_code, answer.json()["code"], set(answer.json())) == (status, code, SHAPE)
        assert answer["Content-Type"].startswith("application/json") and answer.json()["request_id"]


@pytest.mark.parametrize("address", ["nothing", "runs/", "runs/not-a-uuid", "runs/not-a-uuid/rollouts", "a%0Ab"])
def test_an_unknown_address_is_404_for_a_good_token_and_401_for_another(
    client_for: Callable[..., Client], bob: User, project: Project, address: str
) -> None:
    """A typing error answered "log in first", and the client said that the token was not taken any more."""
    token, text = token_create(user=bob, name="script", role="viewer")
    anonymous = client_for(None)
    for words, status in ((f"Bearer {text}", 404), (f"bearer {text}", 404), (f"Bearer {text}x", 401), (text, 401)):
        answer = anonymous.get(f"{V1}/{address}", headers={"Authorization": words})
        assert answer.status_code == status and set(answer.json()) == SHAPE, words
    token_revoke(token)
    assert anonymous.get(f"{V1}/{address}", headers={"Authorization": f"Bearer {text}"}).status_code == 401


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_writing_to_an_unknown_address_is_404_in_the_shape_too(bob: User, method: str) -> None:
    """Schemathesis: it was Django's page about forged forms."""
    client = Client(enforce_csrf_checks=True)
    headers = {"Authorization": f"Bearer {token_create(user=bob, name='script', role='viewer')[1]}"}
    answers = [getattr(client, method)(f"{V1}/runs/not-a-uuid", headers=headers)]
    client.force_login(bob)
    answers.append(getattr(client, method)(f"{V1}/runs/not-a-uuid"))
    for answer in answers:
        assert (answer.status_code, answer.json()["code"], set(answer.json())) == (404, "not_found", SHAPE)


def test_unexpected_failure_is_500_in_the_shape(
    project: Project, bobs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("webapp.api.runs.projects_of", broken)
    answer = bobs.get(f"{V1}/projects")
    assert answer.status_code == 500 and set(answer.json()) == SHAPE and b"secret" not in answer.content


def test_the_schema_is_public_and_shows_nothing_of_what_is_here(
    project: Project, client_for: Callable[..., Client]
) -> None:
    answer = client_for(None).get(f"{V1}/openapi.json")
    assert "/api/v1/projects" in answer.json()["paths"] and project.slug not in answer.content.decode()
    assert client_for(None).get(f"{V1}/projects").status_code == 401
