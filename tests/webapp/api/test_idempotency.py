"""A call that is sent twice under one key is done once, whatever it does and whatever dies in between."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.utils import timezone

from tests.security.acts import ACTS
from tests.security.routes import API, FILES
from tests.security.test_audit import _prepare, config, objects, places, trainer
from tests.security.test_authorisation_matrix import _address
from tests.webapp.api.answers import operations
from tests.working import at_once
from webapp.api import idempotency
from webapp.api.models import KeptAnswer
from webapp.chat.models import Answer, Turn
from webapp.datasets.models import Dataset
from webapp.evaluation.sharing.models import Comment
from webapp.ops.management.commands.run_clockwork import ANSWERS_KEPT, tidy
from webapp.people.teams.models import AuditEntry, Membership, Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

__all__ = ["config", "objects", "places", "trainer"]
Clients = Callable[..., Client]
V1 = "/api/v1"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
TAKES = {
    "/projects/{slug}/runs",
    "/projects/{slug}/runs/batch",
    "/projects/{slug}/runs/import",
    "/projects/{slug}/datasets",
    "/projects/{slug}/datasets/fetch",
    "/projects/{slug}/rollouts/save",
    "/projects/{slug}/compare/rescore",
    "/projects/{slug}/chats",
    "/projects/{slug}/sweeps",
    "/runs/{run_id}/clone",
    "/runs/{run_id}/launch",
    "/runs/{run_id}/resume",
    "/runs/{run_id}/exports",
    "/runs/{run_id}/pairs",
    "/runs/{run_id}/rollouts/save",
    "/rollouts/{rollout_id}/continue",
    "/branches/{branch_id}/save",
    "/suites/{suite_id}/evaluations",
    "/datasets/{dataset_id}/read",
    "/datasets/{dataset_id}/make",
    "/datasets/{dataset_id}/exports",
    "/environments/{environment_id}/dataset-orders",
    "/models/{model_id}/pushes",
    "/chats/{chat_id}/messages",
    "/chats/{chat_id}/again",
    "/chats/{chat_id}/save",
    "/comparisons/{comparison_id}/comments",
}
NAMED_ONCE = "a name is taken once: a second call is refused and makes nothing"
SAME = "done twice it is as done once"
SECRET = "its answer holds a secret, which no row may hold"
ASKS = "asks and keeps nothing that is there twice; at most 20 times a minute"
LEAVES = {
    "/projects": "costs nothing; two of one name are seen, and one is deleted",
    "/projects/{slug}/rewards": "unchanged content gives the newest version back",
    "/projects/{slug}/suites": "unchanged parts give the newest version back",
    "/projects/{slug}/memory": "the same question has the same answer, and your next one takes its place",
    "/projects/{slug}/preflight": ASKS,
    "/projects/{slug}/sweeps/plan": "computes, and keeps nothing",
    "/projects/{slug}/environments": NAMED_ONCE,
    "/projects/{slug}/endpoints": NAMED_ONCE,
    "/projects/{slug}/models": NAMED_ONCE,
    "/projects/{slug}/channels": NAMED_ONCE,
    "/projects/{slug}/comparisons": NAMED_ONCE,
    "/projects/{slug}/vote-rounds": NAMED_ONCE,
    "/projects/{slug}/hub-token": SAME,
    "/projects/{slug}/machines": NAMED_ONCE,
    "/projects/{slug}/machines/{machine_id}/tokens": SECRET,
    "/projects/{slug}/machines/{machine_id}/tokens/{machine_token}/replace": SECRET,
    "/rollouts/{rollout_id}/case": NAMED_ONCE,
    "/comparisons/{comparison_id}/links": SECRET,
    "/runs/{run_id}/pins": SAME,
    "/runs/{run_id}/star": SAME,
    "/runs/{run_id}/stop": SAME,
    "/runs/{run_id}/pause": SAME,
    "/rollouts/{rollout_id}/end": "the second one learns that another person was faster",
    "/rollouts/{rollout_id}/fail": "the second one learns that another person was faster",
    "/rollouts/{rollout_id}/rewind": "plays for up to a minute and keeps nothing",
    "/rollouts/{rollout_id}/branches": "plays too long for a transaction; its policies cost nothing",
    "/rescorings/{rescoring_id}/cancel": SAME,
    "/datasets/{dataset_id}/keep": SAME,
    "/rewards/{spec_id}/try": "computes, and keeps nothing",
    "/environments/{environment_id}/check": ASKS,
    "/environments/{environment_id}/scale": SAME,
    "/environments/{environment_id}/restart": SAME,
    "/endpoints/{endpoint_id}/test": ASKS,
    "/channels/{channel_id}/test": ASKS,
    "/channels/{channel_id}/resume": SAME,
    "/chats/{chat_id}/stop": SAME,
    "/notifications/read": SAME,
    "/limits": SAME,
    "/workers/drain": SAME,
    "/vote-rounds/{round_id}/close": SAME,
    "/vote-rounds/{round_id}/reopen": SAME,
    "/vote-rounds/{round_id}/undo": "a vote is cast again at once",
    "/vote-rounds/{round_id}/ballots/{ballot_id}/vote": SAME,
}


def _post(client: Client, path: str, body: Any, key: str | None = "k", **headers: str) -> Any:
    sent = headers if key is None else {"Idempotency-Key": key} | headers
    return client.post(V1 + path, json.dumps(body), content_type="application/json", headers=sent)


def _code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


# --- Which operations -----------------------------------------------------------------------------------------------
def test_every_operation_takes_a_key_or_is_listed_with_the_reason() -> None:
    posts = {path.removeprefix(V1): operation for (method, path), operation in operations().items() if method == "POST"}
    takes = set()
    for path, operation in posts.items():
        for item in operation.get("parameters", ()):
            if item["name"] == "Idempotency-Key":
                assert item["in"] == "header" and not item["required"], path
                takes.add(path)
    assert takes == TAKES
    assert set(posts) - TAKES == set(LEAVES) and all(LEAVES.values())


def test_the_page_lists_them() -> None:
    part = PAGE.read_text(encoding="utf-8").split("## Sending a call again")[1].split("\n## ")[0]
    assert set(re.findall(r"`POST (/[^`…]+)`", part)) == TAKES


ACTED = sorted(
    route
    for route in ACTS
    if route.startswith(API) and re.sub(r"<\w+:(\w+)>", r"{\1}", "/" + route.removeprefix(API)) in TAKES
)


@pytest.mark.django_db
@pytest.mark.parametrize("route", ACTED)
def test_what_is_sent_twice_is_done_once(
    route: str, places: dict[str, Any], alice: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = at_once(monkeypatch)
    client, act = client_for(alice), ACTS[route]
    _prepare(route, places, alice, client)
    address, body = _address(route, places), act.body(places) if callable(act.body) else act.body

    def send(key: str) -> Any:
        headers = {"Idempotency-Key": key}
        if route in FILES:
            for file in (item for value in body.values() if not isinstance(value, str) for item in _listed(value)):
                file.seek(0)
            return client.post(address, body, headers=headers)
        return client.post(address, json.dumps(body), content_type="application/json", headers=headers)

    first = send("k")
    rows, works = AuditEntry.objects.count(), len(sent)
    second = send("k")
    assert first.status_code < 300 and (second.status_code, second.content) == (first.status_code, first.content)
    assert (first.get("Idempotency-Replayed"), second["Idempotency-Replayed"]) == (None, "true")
    assert second["Content-Type"] == first["Content-Type"]
    assert (AuditEntry.objects.count(), len(sent)) == (rows, works) and rows
    assert "Idempotency-Replayed" not in send("other"), "under another key it is another call"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_those_that_leave_no_audit_are_done_once_too(objects: dict[str, Any], alice: User, client_for: Clients) -> None:
    client, chat = client_for(alice), objects["chat_id"]
    sent = [_post(client, f"/chats/{chat}/messages", {"text": "Hello"}) for _each in range(2)]
    assert [answer.status_code for answer in sent] == [202, 202] and sent[0].content == sent[1].content
    assert Turn.objects.filter(chat=chat).count() == Answer.objects.count() == 1
    Answer.objects.update(state="done", messages=[{"role": "assistant", "content": "Good day."}])
    before = {"answer": str(Answer.objects.get().pk)}
    drawn = [_post(client, f"/chats/{chat}/again", before) for _each in range(2)]
    assert [answer.status_code for answer in drawn] == [202, 202] and drawn[0].content == drawn[1].content
    assert Answer.objects.count() == 2
    Answer.objects.update(state="done", messages=[{"role": "assistant", "content": "Good day."}])
    kept = [_post(client, f"/chats/{chat}/save", {"kind": "row", "name": "talks"}) for _each in range(2)]
    assert [answer.status_code for answer in kept] == [201, 201] and kept[0].content == kept[1].content
    assert Dataset.objects.filter(name="talks").count() == 1
    place = f"/comparisons/{objects['comparison_id']}/comments"
    commented = [_post(client, place, {"text": "Well."}) for _each in range(2)]
    assert [answer.status_code for answer in commented] == [201, 201] and commented[0].content == commented[1].content
    assert Comment.objects.filter(text="Well.").count() == 1


# --- Keys -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def run(make_run: Any) -> Run:
    """A run that may be cloned."""
    found: Run = make_run(name="lance")
    return found


def _clone(client: Client, run: Run, key: str | None = "k", **body: Any) -> Any:
    return _post(client, f"/runs/{run.pk}/clone", {"name": "second", "launch": False} | body, key)


def test_the_same_key_with_something_else_in_it_is_refused(run: Run, bob: User, client_for: Clients) -> None:
    client = client_for(bob)
    assert _clone(client, run).status_code == 201
    assert _code(_clone(client, run, name="third")) == (422, "key_reused")
    assert _code(_clone(client, run, config={"run": {"max_steps": 9}})) == (422, "key_reused")
    assert set(Run.objects.values_list("name", flat=True)) == {"lance", "second"}


def test_what_is_written_otherwise_and_means_the_same_is_the_same(run: Run, bob: User, client_for: Clients) -> None:
    client = client_for(bob)
    first = _clone(client, run)
    text = '{"launch" : false,\n "config": {}, "name": "second"}'
    headers = {"Idempotency-Key": "k"}
    again = client.post(f"{V1}/runs/{run.pk}/clone", text, content_type="application/json", headers=headers)
    assert (again.status_code, again.content) == (201, first.content)


def test_another_run_is_something_else(run: Run, bob: User, client_for: Clients, make_run: Any) -> None:
    client = client_for(bob)
    assert _clone(client, run).status_code == 201
    assert _code(_clone(client, make_run())) == (422, "key_reused")


def test_other_people_and_other_operations_have_keys_of_their_own(
    run: Run, alice: User, bob: User, client_for: Clients
) -> None:
    assert _clone(client_for(bob), run).status_code == 201
    assert _clone(client_for(alice), run, name="third").status_code == 201
    Run.objects.filter(pk=run.pk).update(state="succeeded")
    refused = _post(client_for(bob), f"/runs/{run.pk}/exports", {"to": "csv"})
    assert refused.status_code != 422 or refused.json()["code"] != "key_reused"
    assert KeptAnswer.objects.filter(operation="run_clone").count() == 2


def test_a_refusal_is_not_kept(run: Run, bob: User, client_for: Clients) -> None:
    client = client_for(bob)
    assert _code(_clone(client, run, name="lance"))[0] == 422  # taken
    assert not KeptAnswer.objects.exists()
    made = _clone(client, run)
    assert made.status_code == 201 and "Idempotency-Replayed" not in made


@pytest.mark.parametrize(("key", "status"), [("", 422), ("a", 201), ("a" * 64, 201), ("a" * 65, 422)])
def test_how_long_a_key_may_be(key: str, status: int, run: Run, bob: User, client_for: Clients) -> None:
    assert _clone(client_for(bob), run, key).status_code == status


def test_without_a_key_nothing_is_kept(run: Run, bob: User, client_for: Clients) -> None:
    assert _clone(client_for(bob), run, None).status_code == 201 and not KeptAnswer.objects.exists()


def test_strangers_and_viewers_hear_what_they_always_hear(
    run: Run, rita: User, charlie: User, client_for: Clients
) -> None:
    assert [_clone(client_for(person), run).status_code for person in (None, charlie, rita)] == [401, 404, 403]
    assert not KeptAnswer.objects.exists()


def test_who_lost_the_project_gets_no_answer_of_it(run: Run, bob: User, charlie: User, client_for: Clients) -> None:
    client = client_for(bob)
    assert _clone(client, run).status_code == 201
    other = Project.objects.get(slug="elsewhere")
    Membership.objects.create(team=other.team, user=bob, role="editor")
    _token, text = token_create(user=bob, name="elsewhere", role="editor", project=other)
    assert _post(Client(), f"/runs/{run.pk}/clone", {}, Authorization=f"Bearer {text}").status_code == 404
    Membership.objects.filter(user=bob, team=run.project.team).delete()
    assert _clone(client, run).status_code == 404


# --- Files ----------------------------------------------------------------------------------------------------------
def _upload(client: Client, project: Project, text: bytes, answers: bytes = b"") -> Any:
    files = {"file": SimpleUploadedFile("rows.jsonl", text)}
    files |= {"answers": SimpleUploadedFile("answers.jsonl", answers)} if answers else {}
    headers = {"Idempotency-Key": "k"}
    return client.post(f"{V1}/projects/{project.slug}/datasets", {"name": "rows"} | files, headers=headers)


def test_files_are_known_by_what_is_in_them(
    project: Project, bob: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    client = client_for(bob)
    first = _upload(client, project, b'{"question": "a", "answer": "b"}\n')
    again = _upload(client, project, b'{"question": "a", "answer": "b"}\n')
    assert (first.status_code, again.content) == (201, first.content), first.content
    stored = Dataset.objects.get()
    assert stored.upload_path.read_bytes() == b'{"question": "a", "answer": "b"}\n'
    assert _code(_upload(client, project, b'{"question": "a", "answer": "c"}\n')) == (422, "key_reused")
    assert _code(_upload(client, project, b'{"question": "a", "answer": "b"}\n', b"{}\n")) == (422, "key_reused")
    assert Dataset.objects.count() == 1


# --- Two at once, and what dies in between --------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_while_the_first_is_being_answered_the_second_learns_so(run: Run, bob: User, client_for: Clients) -> None:
    taken, leave = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            idempotency._lock_key(idempotency.Call(bob, run.project, "run_clone", "k", ""))
            taken.set()
            leave.wait(30)
        connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert taken.wait(30)
        refused = _clone(client_for(bob), run)
        assert (*_code(refused), refused["Retry-After"]) == (409, "in_progress", "1")
        assert _clone(client_for(bob), run, "other").status_code == 201
    finally:
        leave.set()
        thread.join()
    assert _code(_clone(client_for(bob), run)) == (422, "config_invalid")  # its name is taken now: it was let through


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_done(run: Run, bob: User, client_for: Clients) -> None:
    gate, answers = threading.Barrier(6), []

    def send() -> None:
        client = client_for(bob)
        gate.wait(30)
        answers.append(_clone(client, run))
        connection.close()

    threads = [threading.Thread(target=send) for _each in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [answer for answer in answers if answer.status_code == 201]
    assert made and {_code(answer) for answer in answers if answer not in made} <= {(409, "in_progress")}
    (second,) = Run.objects.filter(name="second")
    assert {answer.json()["id"] for answer in [*made, _clone(client_for(bob), run)]} == {str(second.pk)}


@pytest.mark.django_db(transaction=True)
def test_what_dies_before_its_answer_is_kept_was_not_done(
    run: Run, bob: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(**_values: Any) -> None:
        raise OperationalError("the server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(KeptAnswer.objects, "create", die)
        assert _clone(client_for(bob), run).status_code == 503
    assert Run.objects.count() == 1 and not KeptAnswer.objects.exists()
    assert _clone(client_for(bob), run).status_code == 201 and Run.objects.count() == 2


# --- Runs, whose key is older ---------------------------------------------------------------------------------------
DRAFT = {"name": "one", "yaml": "run:\n  max_steps: 7\n", "launch": False}


def test_the_key_of_a_run_may_be_in_its_body(project: Project, bob: User, client_for: Clients) -> None:
    client, place = client_for(bob), f"/projects/{project.slug}/runs"
    made = _post(client, place, DRAFT | {"idempotency_key": "k"}, None)
    again = _post(client, place, DRAFT, "k")
    assert (made.status_code, again.content, again["Idempotency-Replayed"]) == (201, made.content, "true")
    both = _post(client, place, DRAFT | {"idempotency_key": "k"}, "other")
    assert both.content == made.content, "that of the body counts"


def test_the_key_of_a_run_gives_it_back_to_all_and_for_as_long_as_it_is_there(
    project: Project, alice: User, bob: User, client_for: Clients
) -> None:
    place = f"/projects/{project.slug}/runs"
    made = _post(client_for(bob), place, DRAFT).json()["id"]
    assert _post(client_for(alice), place, DRAFT | {"name": "other"}).json()["id"] == made
    KeptAnswer.objects.all().delete()
    Run.objects.update(state="cancelled")
    later = _post(client_for(bob), place, DRAFT).json()
    assert (later["id"], later["state"]) == (made, "cancelled") and Run.objects.count() == 1


# --- For how long ---------------------------------------------------------------------------------------------------
def test_answers_go_after_their_time(run: Run, bob: User, client_for: Clients) -> None:
    assert timedelta(hours=48) == ANSWERS_KEPT, "docs/api.md says so"
    client, minute = client_for(bob), timedelta(minutes=1)
    for key, age in (("old", ANSWERS_KEPT + minute), ("young", ANSWERS_KEPT - minute)):
        assert _clone(client, run, key, name=key).status_code == 201
        KeptAnswer.objects.filter(key=key).update(created_at=timezone.now() - age)
    tidy()
    assert list(KeptAnswer.objects.values_list("key", flat=True)) == ["young"]
