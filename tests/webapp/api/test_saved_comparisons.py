"""Saved comparisons over the API: what a page can do, a script can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


def _send(client: Client, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(f"/api/v1/{path}", body or {}, content_type="application/json")


@pytest.fixture
def runs(evaluation: Callable[..., Run]) -> list[str]:
    return [str(evaluation(name, {0: [1], 1: [0]}).pk) for name in ("a", "b", "c")]


def test_a_script_saves_lists_renames_and_deletes(
    client_for: Callable[..., Client], bob: User, rita: User, project: Project, runs: list[str]
) -> None:
    client = client_for(bob)
    body = {"name": "nightly", "runs": runs, "spec": runs[0], "pair": runs[1:], "tasks": "both", "category": "even"}
    made = _send(client, "post", "projects/joust/comparisons", body)
    assert made.status_code == 201
    item = made.json()
    assert {key: item[key] for key in ("name", "spec", "pair", "tasks", "category", "created_by")} == {
        "name": "nightly", "spec": runs[0], "pair": runs[1:], "tasks": "both", "category": "even", "created_by": "bob"
    }  # fmt: skip
    assert item["runs"] == [{"id": run, "name": name} for run, name in zip(runs, "abc", strict=True)]
    listed = client_for(rita).get("/api/v1/projects/joust/comparisons").json()
    assert (listed["total"], listed["items"]) == (1, [item])
    assert client_for(rita).get(f"/api/v1/comparisons/{item['id']}").json() == item
    assert _send(client, "patch", f"comparisons/{item['id']}", {"name": "weekly"}).json()["name"] == "weekly"
    assert client.delete(f"/api/v1/comparisons/{item['id']}").json() == {"deleted": item["id"]}
    assert not SavedComparison.objects.exists()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "<b>"}, "name"),
        ({"runs": ["x", "y"]}, "runs"),
        ({"spec": "reward:none"}, "spec"),
        ({"pair": ["x", "y"]}, "pair"),
        ({"tasks": "all"}, "tasks"),
        ({"run": []}, "body.body.run"),
    ],
)
def test_what_is_wrong_is_named(
    client_for: Callable[..., Client], bob: User, project: Project, runs: list[str], change: Any, path: str
) -> None:
    answer = _send(client_for(bob), "post", "projects/joust/comparisons", {"name": "x", "runs": runs} | change)
    assert answer.status_code == 422 and not SavedComparison.objects.exists()
    assert answer.json()["detail"][0]["path"] == path


def test_fifty_runs_and_a_taken_name(
    client_for: Callable[..., Client], bob: User, project: Project, runs: list[str]
) -> None:
    client = client_for(bob)
    fifty = _send(client, "post", "projects/joust/comparisons", {"name": "x", "runs": [f"{n}" for n in range(50)]})
    assert fifty.json()["message"] == "8 can be compared at once, and these are 50; choose fewer."
    answers = [_send(client, "post", "projects/joust/comparisons", {"name": "x", "runs": runs}) for _twice in range(2)]
    assert [answer.status_code for answer in answers] == [201, 422]
    assert answers[1].json()["message"] == "A saved comparison has this name already; choose another one."


def test_a_script_makes_and_revokes_links(
    client_for: Callable[..., Client], bob: User, rita: User, project: Project, runs: list[str]
) -> None:
    client = client_for(bob)
    saved = _send(client, "post", "projects/joust/comparisons", {"name": "x", "runs": runs}).json()["id"]
    made = _send(client, "post", f"comparisons/{saved}/links", {"days": 1})
    assert made.status_code == 201 and made.json()["opened"] == 0
    path = made.json()["url"].removeprefix("http://testserver")
    assert Client().get(path).status_code == 200
    (listed,) = client_for(rita).get(f"/api/v1/comparisons/{saved}/links").json()["items"]
    assert (listed["state"], listed["opened"], listed["hint"]) == ("open", 1, path[3:7]) and "url" not in listed
    assert client.delete(f"/api/v1/shared-links/{listed['id']}").json() == {"revoked": listed["id"]}
    assert Client().get(path).status_code == 404
    assert client.get(f"/api/v1/comparisons/{saved}/links").json()["items"][0]["state"] == "revoked"
    refused = _send(client, "post", f"comparisons/{saved}/links", {"days": 3650})
    assert refused.status_code == 422 and refused.json()["detail"][0]["path"] == "days"
    assert SharedLink.objects.count() == 1


def test_a_script_comments(
    client_for: Callable[..., Client], alice: User, bob: User, project: Project, runs: list[str]
) -> None:
    client = client_for(bob)
    saved = _send(client, "post", "projects/joust/comparisons", {"name": "x", "runs": runs}).json()["id"]
    first = _send(client, "post", f"comparisons/{saved}/comments", {"text": "one\r\n<b>two</b>"}).json()
    _send(client_for(alice), "post", f"comparisons/{saved}/comments", {"text": "hers"})
    assert (first["text"], first["created_by"], first["edited_at"]) == ("one\n<b>two</b>", "bob", None)
    assert _send(client_for(alice), "patch", f"comments/{first['id']}", {"text": "no"}).status_code == 403
    assert _send(client, "patch", f"comments/{first['id']}", {"text": "changed"}).json()["edited_at"] is not None
    listed = client.get(f"/api/v1/comparisons/{saved}/comments").json()["items"]
    assert [item["text"] for item in listed] == ["changed", "hers"]
    assert _send(client, "post", f"comparisons/{saved}/comments", {"text": " "}).status_code == 422
    assert client.delete(f"/api/v1/comments/{listed[1]['id']}").status_code == 403
    assert client_for(alice).delete(f"/api/v1/comments/{first['id']}").status_code == 200
    assert [comment.text for comment in Comment.objects.all()] == ["hers"]


def test_a_token_that_only_reads_shares_nothing(bob: User, project: Project, saved_by_bob: str) -> None:
    from webapp.people.teams.tokens import token_create

    _token, text = token_create(user=bob, name="t", role="viewer")
    headers = {"Authorization": f"Bearer {text}"}
    path = f"/api/v1/comparisons/{saved_by_bob}"
    assert Client().get(path, headers=headers).status_code == 200
    assert Client().post(f"{path}/links", {"days": 1}, "application/json", headers=headers).status_code == 403
    assert Client().delete(path, headers=headers).status_code == 403


@pytest.fixture
def saved_by_bob(client_for: Callable[..., Client], bob: User, project: Project, runs: list[str]) -> str:
    body = {"name": "x", "runs": runs}
    return str(_send(client_for(bob), "post", "projects/joust/comparisons", body).json()["id"])
