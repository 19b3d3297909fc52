"""Every operation × every scope of a token, against a list that is only here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.security.routes import API, TABLE, Who
from tests.security.test_authorisation_matrix import _address, _send, objects
from webapp.datasets.models import Dataset
from webapp.foreign.models import RunImport
from webapp.people.teams.models import ApiToken, Project, User
from webapp.people.teams.tokens import token_create

__all__ = ["objects"]
RUN = "runs/<uuidstr:run_id>"
METRICS = {
    ("GET", "me"),
    ("GET", "projects"),
    ("GET", "projects/<slug:slug>"),
    ("GET", "projects/<slug:slug>/runs"),
    ("GET", "projects/<slug:slug>/pins"),
    ("GET", RUN),
    ("GET", RUN + "/advisories"),
    ("GET", RUN + "/axes"),
    ("GET", RUN + "/devices"),
    ("GET", RUN + "/events"),
    ("GET", RUN + "/metrics"),
    ("GET", RUN + "/summary"),
    ("GET", RUN + "/exports"),
    ("POST", RUN + "/exports"),
    ("GET", RUN + "/exports/<uuidstr:file_id>"),
    ("GET", RUN + "/exports/<uuidstr:file_id>/file"),
}
INGEST = {
    ("GET", "me"),
    ("GET", "projects"),
    ("POST", "projects/<slug:slug>/datasets"),
    ("POST", "projects/<slug:slug>/runs/import"),
    ("GET", "run-imports/<uuidstr:import_id>"),
}
OPERATIONS = sorted(
    (method, route.removeprefix(API))
    for route, methods in TABLE.items()
    if route.startswith(API) and route.removeprefix(API) not in ("openapi.json", "docs", "^")
    for method in methods
)
# What no token does, whatever its role: a leaked one would outlive its own end.
MAKING = "projects/<slug:slug>/machines"
NO_TOKEN = {
    ("POST", MAKING),
    ("POST", MAKING + "/<uuidstr:machine_id>/tokens"),
    ("POST", MAKING + "/<uuidstr:machine_id>/tokens/<uuidstr:machine_token>/replace"),
}
# What belongs to the person who made it: the token's person made these, so a token that writes may change them.
OWN_THINGS = {
    ("PATCH", "comparisons/<uuidstr:comparison_id>"),
    ("DELETE", "comparisons/<uuidstr:comparison_id>"),
    ("PATCH", "comments/<uuidstr:comment_id>"),
    ("DELETE", "comments/<uuidstr:comment_id>"),
    ("DELETE", "shared-links/<uuidstr:link_id>"),
}
# What the roles of tokens reach, by what the pages ask for; the token is an owner's.
READS = {Who.LOGIN, Who.READ}
ROLES = {
    "viewer": READS,
    "editor": READS | {Who.WRITE},
    "owner": READS | {Who.WRITE, Who.OWN, Who.ANY_OWNER, Who.HOLDER},
}


def _asked(text: str, method: str, route: str, objects: dict[str, Any]) -> Any:
    """One request with a token, whose changes are undone."""
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {text}"})
    return _send(client, method, _address(API + route, objects), API + route)


@pytest.mark.parametrize(
    ("scope", "open_to", "sentence"),
    [
        ("metrics", METRICS, "This token may only read runs and their metrics."),
        ("ingest", INGEST, "This token may only send in datasets and runs."),
    ],
)
def test_a_narrow_token_does_what_it_is_for_and_nothing_else(
    scope: str, open_to: set[tuple[str, str]], sentence: str, objects: dict[str, Any], alice: User
) -> None:
    assert len(OPERATIONS) > 150 and open_to | NO_TOKEN <= set(OPERATIONS)
    text, wrong = token_create(user=alice, name=scope, role=scope)[1], []
    for method, route in OPERATIONS:
        answer = _asked(text, method, route, objects)
        if (method, route) in open_to:
            if answer.status_code in (401, 403, 404, 405) or answer.status_code >= 500:
                wrong.append(f"{method} {route}: {answer.status_code}, should be allowed")
        elif (answer.status_code, answer.json()["code"], answer.json()["message"]) != (403, "forbidden", sentence):
            wrong.append(f"{method} {route}: {answer.status_code} {answer.content[:200]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", ROLES)
def test_a_token_does_what_its_role_may(role: str, objects: dict[str, Any], alice: User) -> None:
    text, wrong = token_create(user=alice, name=role, role=role)[1], []
    for method, route in OPERATIONS:
        who, status = TABLE[API + route][method], _asked(text, method, route, objects).status_code
        may = who in ROLES[role] or (role == "editor" and (method, route) in OWN_THINGS)
        may = may and (method, route) not in NO_TOKEN
        right = status not in (401, 403, 404, 405) if may else status in (403, 404)
        if not right or status >= 500:
            wrong.append(f"{method} {route}: {status}, asks for {who.value}")
    assert not wrong, "\n".join(wrong)


def test_a_narrow_token_opens_no_page_and_no_other_project(
    alice: User, bob: User, project: Project, make_run: Any, client_for: Callable[..., Client]
) -> None:
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    text = token_create(user=bob, name="m", role="metrics", project=other)[1]
    client, headers = Client(), {"Authorization": f"Bearer {text}"}
    assert client.get("/p/other/", headers=headers).status_code == 302  # to the login
    assert client.get("/api/v1/projects/other/runs", headers=headers).status_code == 200
    assert client.get("/api/v1/projects/joust/runs", headers=headers).status_code == 404
    assert client.get(f"/api/v1/runs/{make_run().pk}/metrics", headers=headers).status_code == 404
    assert client.get("/api/v1/nonexistent", headers=headers).status_code == 404
    shown = client.get("/api/v1/me", headers=headers).json()["token"]
    assert (shown["role"], shown["scope"], shown["project"]) == ("viewer", "metrics", "other")


def test_what_is_sent_in_arrives_and_is_not_read(alice: User, rita: User, project: Project) -> None:
    headers = {"Authorization": f"Bearer {token_create(user=alice, name='i', role='ingest')[1]}"}
    file = SimpleUploadedFile("rows.jsonl", b'{"prompt": "2 + 3"}\n')
    made = Client().post("/api/v1/projects/joust/datasets", {"name": "in", "file": file}, headers=headers)
    assert made.status_code == 201 and Dataset.objects.get().created_by == alice
    assert Client().get(f"/api/v1/datasets/{made.json()['id']}", headers=headers).status_code == 403
    log = json.dumps({"log_history": [{"loss": 1.0, "step": 1}], "global_step": 1}).encode()
    sent = {"uploads": SimpleUploadedFile("trainer_state.json", log)}
    run = Client().post("/api/v1/projects/joust/runs/import", sent, headers=headers)
    assert run.status_code == 201 and RunImport.objects.count() == 1
    assert Client().get(f"/api/v1/run-imports/{run.json()['id']}", headers=headers).status_code == 200
    # of a person who only reads it sends nothing
    weak = {"Authorization": f"Bearer {token_create(user=rita, name='i', role='ingest')[1]}"}
    again = Client().post("/api/v1/projects/joust/datasets", {"name": "in", "file": file}, headers=weak)
    assert again.status_code == 403 and "Your role in this team is viewer" in again.json()["message"]


@pytest.mark.parametrize(
    ("chosen", "role", "scope", "words"),
    [
        ("metrics", "viewer", "metrics", "read runs and their metrics"),
        ("ingest", "editor", "ingest", "send in datasets and runs"),
        ("viewer", "viewer", "", "viewer"),
    ],
)
def test_the_page_offers_each_with_a_sentence(
    chosen: str, role: str, scope: str, words: str, bob: User, client_for: Callable[..., Client]
) -> None:
    client = client_for(bob)
    page = client.get("/tokens/").content.decode()
    assert "read runs and their metrics: no transcripts, datasets or chats" in page
    assert "send in datasets and runs of other trainers, and read nothing" in page
    made = client.post("/tokens/", {"name": "n", "role": chosen, "project": "", "days": "30"})
    token = ApiToken.objects.get()
    assert made.status_code == 201 and (token.role, token.scope, token.may) == (role, scope, words)
    assert words in client.get("/tokens/").content.decode()
