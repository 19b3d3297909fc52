"""Many runs at once over the API: one result for each, by the same functions as one at a time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.api.answers import complaints
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.removal.models import Removal

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
PATH = "/api/v1/projects/joust/runs/batch"
GONE = "There is nothing here, or you may not see it."


def _send(client: Client, act: str, runs: list[Any], **more: Any) -> Any:
    body = {"act": act, "runs": [str(getattr(run, "pk", run)) for run in runs], **more}
    answer = client.post(PATH, json.dumps(body), content_type="application/json")
    assert complaints("POST", PATH, answer.status_code, answer.json()) == []
    return answer


def _codes(answer: Any) -> list[str | None]:
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert found["done"] == sum(item["ok"] for item in found["items"])
    assert all(item["ok"] == (item["code"] is None) == (item["message"] is None) for item in found["items"])
    return [item["code"] for item in found["items"]]


def test_each_run_has_its_result_in_the_order_that_was_asked(
    bob: User, client_for: Clients, make_run: Any, charlie: User
) -> None:
    elsewhere = make_run(project=Project.objects.get(slug="elsewhere"), state="succeeded")
    ended, active, draft = make_run(state="succeeded"), make_run(state="running"), make_run(state="draft")
    asked = [uuid.uuid4(), ended, active, elsewhere, draft]
    answer = _send(client_for(bob), "archive", asked)
    assert _codes(answer) == ["not_found", None, "conflict", "not_found", None]
    items = answer.json()["items"]
    assert [item["id"] for item in items] == [str(getattr(run, "pk", run)) for run in asked]
    assert (items[0]["message"], items[2]["message"]) == (GONE, "A run that has not ended cannot be archived.")
    assert set(Run.objects.exclude(archived_at=None)) == {ended, draft}
    assert set(AuditEntry.objects.values_list("action", "object_id")) == {
        ("run_archived", str(ended.pk)),
        ("run_archived", str(draft.pk)),
    }
    assert _codes(_send(client_for(bob), "restore", [ended, draft, active])) == [None, None, None]
    assert not Run.objects.exclude(archived_at=None).exists()


def test_what_is_archived_already_is_fine(bob: User, client_for: Clients, make_run: Any) -> None:
    run, open_run = make_run(state="succeeded"), make_run(state="running", archived_at=timezone.now())
    for _each in range(2):
        assert _codes(_send(client_for(bob), "archive", [run, open_run])) == [None, None]
    assert AuditEntry.objects.count() == 1


def test_tags_are_added_and_removed(bob: User, client_for: Clients, make_run: Any) -> None:
    one, two = make_run(tags=["draft", "good"]), make_run(tags=[f"t{n}" for n in range(10)])
    answer = _send(client_for(bob), "tag", [one, two], add=["Best"], remove=["draft"])
    assert _codes(answer) == [None, "invalid"]
    assert answer.json()["items"][1]["message"] == f"{two.name}: A run has at most 10 tags."
    assert list(Run.objects.order_by("created_at").values_list("tags", flat=True)) == [
        ["good", "best"],
        [f"t{n}" for n in range(10)],
    ]


def test_owners_delete(alice: User, bob: User, client_for: Clients, make_run: Any) -> None:
    ended, active, used = (make_run(state=state) for state in ("succeeded", "running", "failed"))
    saved = Checkpoint.objects.create(
        project=used.project, run=used, attempt=1, step=1, path="1/c", bytes=1, seq=1, created_at=used.created_at
    )
    RegisteredModel.objects.create(project=used.project, name="small", kind="run", checkpoint=saved)
    assert _send(client_for(bob), "delete", [ended]).status_code == 403
    answer = _send(client_for(alice), "delete", [ended, active, used])
    assert _codes(answer) == [None, "conflict", "conflict"]
    assert "small" in answer.json()["items"][2]["message"]
    assert set(Run.objects.all()) == {active, used} and Removal.objects.get().object_id == ended.pk
    assert _codes(_send(client_for(alice), "delete", [ended])) == ["not_found"]


def test_deleting_asks_who_is_there(alice: User, client_for: Clients, make_run: Any) -> None:
    run = make_run(state="succeeded")
    answer = _send(client_for(alice, old=True), "delete", [run])
    assert (answer.status_code, answer.json()["code"]) == (403, "confirm_first") and Run.objects.exists()
    assert _codes(_send(client_for(alice, old=True), "archive", [run])) == [None]


@pytest.mark.parametrize(("many", "status"), [(0, 422), (1, 200), (200, 200), (201, 422)])
def test_how_many_it_takes(many: int, status: int, project: Project, bob: User, client_for: Clients) -> None:
    answer = _send(client_for(bob), "archive", [uuid.uuid4() for _each in range(many)])
    assert answer.status_code == status
    if status == 200:
        assert _codes(answer) == ["not_found"] * many


def test_an_id_that_is_named_twice_counts_once(bob: User, client_for: Clients, make_run: Any) -> None:
    run = make_run(state="succeeded")
    assert _codes(_send(client_for(bob), "archive", [run, run])) == [None] and AuditEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("act", "more", "path"),
    [
        ("tag", {}, "add"),
        ("tag", {"add": [" "]}, "add"),
        ("tag", {"add": ["no tag"]}, "tags"),
        ("archive", {"add": ["best"]}, "act"),
        ("delete", {"remove": ["best"]}, "act"),
        ("stop", {}, "body.body.act"),
        ("archive", {"runs": ["x"]}, "body.body.runs.0"),
    ],
)
def test_what_cannot_mean_anything_is_refused_as_a_whole(
    act: str, more: dict[str, Any], path: str, alice: User, client_for: Clients, make_run: Any
) -> None:
    run = make_run(state="succeeded")
    body = {"act": act, "runs": [str(run.pk)]} | more
    answer = client_for(alice).post(PATH, json.dumps(body), content_type="application/json")
    assert (answer.status_code, answer.json()["detail"][0]["path"]) == (422, path), answer.content
    assert Run.objects.get().archived_at is None


def test_who_may(project: Project, rita: User, charlie: User, bob: User, client_for: Clients, make_run: Any) -> None:
    run = make_run(state="succeeded")
    statuses = [_send(client_for(person), "archive", [run]).status_code for person in (None, charlie, rita, bob)]
    assert statuses == [401, 404, 403, 200]


def test_one_call_over_the_whole_is_done_once(alice: User, client_for: Clients, make_run: Any) -> None:
    """Sent again it does not say that what it has deleted was never there."""
    body = json.dumps({"act": "delete", "runs": [str(make_run(state="succeeded").pk) for _each in range(3)]})
    sent = [
        client_for(alice).post(PATH, body, content_type="application/json", headers={"Idempotency-Key": "k"})
        for _each in range(2)
    ]
    assert sent[0].content == sent[1].content and _codes(sent[1]) == [None] * 3
    assert Removal.objects.count() == 3 and not Run.objects.exists()
