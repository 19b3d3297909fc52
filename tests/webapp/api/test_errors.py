"""The schema leaves no error out: every operation names those that it gives, in the one shape, under a plain id."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from django.db import transaction
from django.http import QueryDict
from django.test import Client

from tests.security.routes import API, TABLE
from tests.security.test_authorisation_matrix import _address, objects
from tests.webapp.api.answers import PREFIX, complaints, operation_of, operations, schema
from webapp.api.base import api
from webapp.api.schema import MORE
from webapp.people.teams.models import User
from webapp.reading.inspector.filters import CHOICES, MEASURES, filters_of

__all__ = ["objects"]
SCHEMALESS = {API + "openapi.json", API + "docs", API + "^"}
ROUTES = sorted(
    (method, route)
    for route, methods in TABLE.items()
    if route.startswith(API) and route not in SCHEMALESS
    for method in methods
)
FOUND = (
    "/runs/{run_id}/rollouts",
    "/runs/{run_id}/rollouts/spread",
    "/runs/{run_id}/rollouts/causes",
    "/runs/{run_id}/rollouts/save",
)


def _views() -> dict[str, Callable[..., Any]]:
    """The function of each operation by the operation's id."""
    named: dict[str, Callable[..., Any]] = {}
    for _prefix, router in api._routers:
        for view in router.path_operations.values():
            named |= {operation.view_func.__name__: operation.view_func for operation in view.operations}
    return named


def test_ids_are_plain_and_no_two_are_the_same() -> None:
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(ids) == len(set(ids)) > 150 and {"runs_list", "run_get", "rollout_words"} <= set(ids)
    assert [name for name in ids if re.search("webapp|api|training|envs", name)] == []
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in ids)
    assert set(ids) == set(_views())


def test_every_error_has_the_one_shape_and_says_what_it_is() -> None:
    shape = schema()["components"]["schemas"]["Error"]
    assert set(shape["properties"]) == set(shape["required"]) == {"ok", "code", "message", "detail", "request_id"}
    for (method, path), operation in operations().items():
        errors = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {401, 500, 503} <= set(errors) and (507 in errors) == (method != "GET"), (method, path)
        assert (404 in errors) >= ("{" in path) and (400 in errors) == ("requestBody" in operation), (method, path)
        for status, answer in errors.items():
            content = answer["content"]["application/json"]["schema"]
            assert content == {"$ref": "#/components/schemas/Error"}, (method, path, status)
            assert HTTPStatus(status) and len(answer["description"]) > 10
            assert ("Retry-After" in answer.get("headers", {})) == (status in (429, 503, 507))
    assert complaints("GET", "/api/v1/me", 401, {"ok": False, "code": "x"}) != []


def test_the_schema_says_what_it_is_and_where() -> None:
    found = schema()
    assert "Every error has one shape" in found["info"]["description"] and found["servers"][0]["url"] == "/"


def test_who_counts_what_people_ask_for_says_429() -> None:
    limits = re.compile(r"probe_allowed\(|reward_try\(|words_of\(")
    limited = {name for name, view in _views().items() if limits.search(inspect.getsource(view))}
    assert limited == {name for name, statuses in MORE.items() if 429 in statuses}
    assert set(MORE) <= set(_views())


def test_errors_that_strangers_readers_and_odd_bodies_meet_are_in_the_schema(
    objects: dict[str, Any], bob: User, rita: User, charlie: User, client_for: Callable[..., Client]
) -> None:
    """An editor's act that needs no body would be done, so editors send only what is no body."""
    clients = {person: client_for(person) for person in (None, charlie, rita, bob)}
    met: set[int] = set()
    for method, route in ROUTES:
        address = _address(route, objects)
        operation = operation_of(method, address)
        assert operation is not None, (method, address)
        for person, client in clients.items():
            for body in ("{", '{"no such field": 1}', "")[
                : 3 if person is not bob else 2 * ("requestBody" in operation)
            ]:
                with transaction.atomic():
                    answer = client.generic(method, address, body, content_type="application/json")
                    transaction.set_rollback(True)
                if (status := answer.status_code) >= 400:
                    assert status in operation["responses"], (method, route, person, body, answer.content)
                    assert complaints(method, address, status, answer.json()) == []
                    met.add(status)
    assert {400, 401, 403, 404, 409, 422} <= met


def test_a_form_of_files_that_cannot_be_read_is_refused(
    objects: dict[str, Any], bob: User, client_for: Callable[..., Client]
) -> None:
    """Found by Schemathesis: a form without its boundary was an error of ours."""
    client = client_for(bob)
    forms = [
        one for one, operation in operations().items() if "multipart/form-data" in str(operation.get("requestBody"))
    ]
    assert len(forms) >= 2
    for method, path in forms:
        place = re.sub(r"{(\w+)}", lambda hole: str(objects[hole[1]]), path)
        for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=é"):
            answer = client.generic(method, place, b"--x\r\n", content_type=kind)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), (path, kind, answer.content)


def test_the_schema_says_that_results_may_not_be_seen_yet() -> None:
    """Found by Schemathesis."""
    assert "403" in {
        str(status) for status in operations()["GET", PREFIX + "vote-rounds/{round_id}/results"]["responses"]
    }


@pytest.mark.parametrize("path", FOUND)
def test_every_filter_of_rollouts_is_a_parameter(path: str) -> None:
    bounds = {f"{name}_{end}" for name in MEASURES for end in ("from", "to", "below")}
    of_run = {item["name"]: item for item in operations()["GET", PREFIX + path[1:]]["parameters"]}
    project = path.replace("/runs/{run_id}", "/projects/{slug}")
    of_project = {item["name"]: item for item in operations()["GET", PREFIX + project[1:]]["parameters"]}
    assert bounds | (set(CHOICES) - {"run"}) | {"q", "parts"} <= set(of_run) and "run" not in of_run
    assert bounds | set(CHOICES) | {"q", "parts"} <= set(of_project)
    assert of_run["outcome"]["schema"]["items"]["enum"] == list(CHOICES["outcome"].values)
    assert of_run["held_out"]["schema"]["enum"] == ["yes", "no"]
    assert len({item["name"] for item in operations()["GET", PREFIX + path[1:]]["parameters"]}) == len(of_run)
    name = re.compile(of_run["parts"]["schema"]["propertyNames"]["pattern"])
    assert name.search("part_judge_from") and not name.search("part_judge") and not name.search("reward_from")


def test_a_bound_of_a_component_is_read_by_the_name_that_the_schema_gives() -> None:
    assert filters_of(QueryDict("part_judge_from=0.5")).spans["part_judge"].low == 0.5
