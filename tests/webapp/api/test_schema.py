"""The schema says what every operation answers, and real answers are as it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from jsonschema import Draft202012Validator

from tests.security.routes import API, TABLE, Who
from tests.security.test_authorisation_matrix import _address, objects
from tests.webapp.api.answers import complaints, operations, schema
from webapp.api.base import api
from webapp.engine.history import event_add
from webapp.environments.models import DatasetOrder
from webapp.people.notifications.models import Event
from webapp.people.teams.models import Project, User
from webapp.runs.advisories.models import Advisory
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.registry.models import ModelPush, RegisteredModel
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

__all__ = ["objects"]
# What is answered is no JSON.
FILES = {
    "/api/v1/models/{model_id}/card": "Markdown",
    "/api/v1/models/{model_id}/download": "a tar stream",
    "/api/v1/runs/{run_id}/exports/{file_id}/file": "the file itself",
}
READS = sorted(route for route, methods in TABLE.items() if route.startswith(API) and "GET" in methods)
UNREAD = {API + "openapi.json", API + "docs", API + "^"}


def _shape(answer: dict[str, Any]) -> dict[str, Any]:
    found = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return schema()["components"]["schemas"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def test_every_operation_says_what_it_answers() -> None:
    for (method, path), operation in operations().items():
        for status, answer in operation["responses"].items():
            shape = _shape(answer)
            typed = bool(shape.get("properties")) or "$ref" in shape.get("items", {})
            assert typed != (path in FILES and status < 400), (
                f"{method} {path} answers {status} with {shape or 'anything'}"
            )


def test_every_operation_has_a_tag_and_a_sentence() -> None:
    for (method, path), operation in operations().items():
        assert len(operation.get("tags") or []) == 1, (method, path)
        assert re.search(r"[.)]$", operation.get("description", "").strip()), (method, path)


def test_every_default_is_of_its_own_type_and_within_its_limits() -> None:
    """Else a checker refuses the whole document."""
    every = schema()["components"]
    fields = [
        (f"{name}.{key}", field)
        for name, shape in every["schemas"].items()
        for key, field in shape.get("properties", {}).items()
        if "default" in field
    ]
    assert len(fields) > 100
    for name, field in fields:
        rules = {key: value for key, value in field.items() if key != "default"}
        assert Draft202012Validator(rules | {"components": every}).is_valid(field["default"]), name


def test_no_list_has_other_values_at_other_places() -> None:
    """Generators of clients, and Schemathesis, cannot read what the schema says of such a list."""
    assert "prefixItems" not in str(schema())


def test_two_bodies_or_answers_never_share_a_name() -> None:
    """A name of the schema means one thing: of two classes with one name the schema kept only the last."""
    named: dict[str, set[type]] = {}

    def look(kind: Any) -> None:
        for part in getattr(kind, "__args__", ()):
            look(part)
        fields = getattr(kind, "model_fields", None)
        if fields is not None and kind not in named.setdefault(kind.__name__, set()):
            named[kind.__name__].add(kind)
            for field in fields.values():
                look(field.annotation)

    for _prefix, router in api._routers:
        for view in router.path_operations.values():
            for operation in view.operations:
                for model in operation.models:
                    if model.__ninja_param_source__ == "body":
                        look(next(iter(model.model_fields.values())).annotation)
                for model in operation.response_models.values():
                    if getattr(model, "model_fields", None):
                        look(model.model_fields["response"].annotation)
    assert {"RunIn", "PartIn", "RunWhole", "Rollout"} <= set(named)
    assert {name: kinds for name, kinds in named.items() if len(kinds) > 1} == {}


@pytest.fixture
def lived(project: Project, objects: dict[str, Any], evaluation: Any, alice: User) -> dict[str, Any]:
    """The objects of the matrix after something has happened to them."""
    run = Run.objects.get(pk=objects["run_id"])
    error = {"code": "env_down", "message": "gone", "hint": "start it"}
    Run.objects.filter(pk=run.pk).update(state="failed", error=error, started_at=timezone.now(), tags=["best"])
    MetricPoint.objects.create(run=run, attempt=1, step=1, name="reward", value=0.5, seq=1)
    MetricPoint.objects.create(run=run, attempt=1, step=2, name="reward", value=float("nan"), seq=2)
    rollout = Rollout.objects.filter(run=run, held_out=False).first()
    assert rollout is not None
    Rollout.objects.filter(pk=rollout.pk).update(task="add two numbers", row=0, outcome="solved")
    Rollout.objects.filter(run=run, held_out=True).update(outcome="failed")
    messages = [{"role": "assistant", "content": "5"}]
    Turn.objects.create(run=run, rollout=rollout, number=2, messages=messages, tokens=3, seconds=0.5, seq=3)
    curve = {"name": "kl", "steps": [1, 2], "values": [0.1, 3.0]}
    shown = {"id": str(rollout.pk), "step": 1, "group": 0, "index": 0}
    evidence = {"curves": [curve], "rollouts": [shown], "figures": {"now": "3", "usual": "0.1"}}
    Advisory.objects.create(run=run, code="kl_spike", first=2, last=2, evidence=evidence)
    RolloutGroup.objects.create(
        run=run, attempt=1, step=1, group=0, reward_mean=0.5, reward_std=0.0, zero_variance=True, seq=4
    )
    event_add(run.pk, "warning", {"message": "slow"}, attempt=1)
    RegisteredModel.objects.filter(pk=objects["model_id"]).update(kind="run", checkpoint=objects["checkpoint_id"])
    RegisteredModel.objects.create(project=project, name="tiny", kind="hub", source="a/tiny", mark="production")
    ModelPush.objects.create(model_id=objects["model_id"], hub="https://hub.example", repository="team/small")
    DatasetOrder.objects.create(environment_id=objects["environment_id"], name="made", command="tasks")
    played = [evaluation(name, {0: [won, 1.0], 1: [0.0, won]}) for name, won in (("x", 1.0), ("y", 0.0))]
    Event.objects.filter(key="k").update(subject=run.name)
    return objects | {"played": [str(item.pk) for item in played]}


@pytest.mark.parametrize("route", [route for route in READS if route not in UNREAD])
def test_what_is_read_is_as_the_schema_says(
    route: str, lived: dict[str, Any], alice: User, client_for: Callable[..., Client]
) -> None:
    query = {"c": lived["played"]} if route.endswith("/compare") else {}
    address = _address(route, lived)
    if TABLE[route]["GET"] is Who.ADMIN:
        User.objects.filter(pk=alice.pk).update(is_superuser=True)
    response = client_for(alice).get(address, query)
    if route.endswith("/download"):
        assert response.status_code == 409  # its files are not here
        return
    assert response.status_code == 200, response.content
    if response["Content-Type"].startswith("application/json"):
        body = response.json()
        assert complaints("GET", address, 200, body) == []
        rows = body if isinstance(body, list) else body.get("items", [body])
        assert rows, "an empty list proves nothing"


def test_a_field_that_the_schema_does_not_name_is_noticed() -> None:
    body = {"username": "alice", "token": None}
    assert complaints("GET", "/api/v1/me", 200, body) == []
    (more,) = complaints("GET", "/api/v1/me", 200, body | {"email": "a@example.org"})
    assert "email" in more
    (less,) = complaints("GET", "/api/v1/me", 200, {"username": "alice"})
    assert "token" in less
    assert complaints("GET", "/api/v1/nothing", 200, {}) and complaints("GET", "/api/v1/me", 201, body)
