"""The reference of the API: what the schema says, as a page of ours."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest
from django.test import Client

from tests.webapp.api.answers import operations
from webapp.api.reference import Operation, pieces, subjects
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db


OPERATIONS = [item for subject in subjects() for item in subject.operations]


def _operation(method: str, path: str) -> Operation:
    (found,) = [item for item in OPERATIONS if (item.method, item.path) == (method, path)]
    return found


def _rows(operation: Operation) -> dict[str, tuple[str, bool, int]]:
    return {row.name: (row.kind, row.required, row.depth) for row in [*operation.parameters, *operation.body]}


def test_without_a_login_the_page_shows_nothing_of_what_is_here(
    client_for: Callable[..., Client], project: Project
) -> None:
    answer = client_for(None).get("/api/v1/docs")
    page = answer.content.decode()
    assert answer.status_code == 200 and answer["Content-Type"].startswith("text/html")
    assert project.slug not in page and project.name not in page
    assert 'href="/api/v1/openapi.json"' in page and "<style" not in page and "javascript:" not in page
    assert re.findall(r"<script(?![^>]*(?: src=\"/|type=\"application/json\"))", page) == []
    assert client_for(None).post("/api/v1/docs").status_code == 405


def test_every_operation_is_there_once(client_for: Callable[..., Client]) -> None:
    page = client_for(None).get("/api/v1/docs").content.decode()
    shown = re.findall(r'api-method" data-method="(\w+)">\w+</span>\s*<span class="api-path mono">([^<]+)<', page)
    assert sorted(shown) == sorted((method, path.removeprefix("/api/v1")) for method, path in operations())
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) and len(page) < 1_500_000


def test_parameters_bodies_and_answers_are_described_by_field() -> None:
    clone = _operation("POST", "/runs/{run_id}/clone")
    assert _rows(clone) == {
        "run_id": ("id", True, 0),
        "name": ("string", False, 0),
        "config": ("object", False, 0),
        "launch": ("boolean", False, 0),
        "step": ("integer | null", False, 0),
        "priority": ('"high" | "normal" | "low" | null', False, 0),
    }
    (answer,) = clone.answers
    kinds = {row.name: (row.kind, row.depth) for row in answer.fields}
    assert (answer.status, kinds["id"], kinds["tags"], kinds["started_at"]) == (
        201,
        ("id", 0),
        ("list of string", 0),
        ("time | null", 0),
    )
    nested = {row.name: row.depth for row in _operation("GET", "/models/{model_id}").answers[0].fields}
    assert (nested["lineage"], nested["trained_on"], nested["label"]) == (0, 1, 2)
    assert [answer.kind for answer in _operation("GET", "/models/{model_id}/download").answers] == ["file"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda item: item.id)
def test_examples_are_calls_that_a_shell_takes(operation: Operation) -> None:
    words = shlex.split(operation.example[0] + "http://x" + operation.example[1] + operation.example[2])
    assert words[0] == "curl" and "http://x/api/v1" + operation.path in words
    assert ("--request" in words) == (operation.method != "GET")
    if "--data" in words:
        assert isinstance(json.loads(words[words.index("--data") + 1]), dict)


def test_an_example_has_what_is_needed() -> None:
    assert '"name": "…"' in _operation("POST", "/projects/{slug}/rewards").example[2]
    assert "--form name=… --form file=@rows.jsonl" in _operation("POST", "/projects/{slug}/datasets").example[2]


def test_code_in_sentences() -> None:
    assert [tuple(item) for item in pieces("set `launch` to\n   false")] == [
        ("set ", False),
        ("launch", True),
        (" to false", False),
    ]


def test_the_page_of_tokens_leads_there(alice: User, client_for: Callable[..., Client]) -> None:
    assert 'href="/api/v1/docs"' in client_for(alice).get("/tokens/").content.decode()


def test_frame_in_chinese_operations_in_english(client_for: Callable[..., Client]) -> None:
    page = client_for(None).get("/api/v1/docs", headers={"accept-language": "zh-CN"}).content.decode()
    assert "操作的说明为英文" in page and "The projects that you may see" in page
