"""Every dangerous act asks again who is there, in the browser and over the API; a token is its own proof."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from tests.logins import aged
from tests.security.acts import ACTS, DELETES
from tests.security.routes import API, OWN_PK, PROJECT, TABLE
from tests.security.test_audit import _address, _prepare, config, objects, places, trainer
from tests.working import at_once
from webapp.people.teams.logins import login_link_create
from webapp.people.teams.models import AuditEntry, Membership, Project, Role, User
from webapp.people.teams.sudo import MAX_KEPT_CHARS, WAITING, Act
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

__all__ = ["config", "objects", "places", "trainer"]
pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
PASSWORD = "correct horse battery staple"
SECURITY = Path(__file__).resolve().parents[2] / "SECURITY.md"
# Which rows of the audit record a dangerous act: each act that leaves one asks first.
ROWS: dict[Act, set[str]] = {
    Act.TOKEN: {"token_made"},
    Act.MACHINE: {"machine_added"},
    Act.MAIL: {"mail_set"},
    Act.FIRST_PASSWORD: set(),  # tests/webapp/people/teams/test_site.py
    Act.CUSTOM_REWARDS: {"custom_on"},
    Act.MEMBER: {"member_added", "member_role", "member_removed"},
    Act.LOGIN_LINK: {"link_made"},
    Act.ACTIVE: {"deactivated", "reactivated"},
    Act.HUB_TOKEN: {"hub_token_set"},
    Act.ENDPOINT_KEY: {"endpoint_key"},
    Act.CHANNEL: {"channel_added", "channel_changed"},
    Act.SHARE: {"comparison_shared"},
    Act.PUSH: {"model_pushed"},
    Act.RETENTION: {"retention_changed"},
    Act.DELETE_PERSON: {"person_deleted"},
    Act.DELETE_TEAM: {"team_deleted"},
    Act.DELETE_PROJECT: {"project_deleted"},
    Act.DELETE_RUN: {"run_deleted"},
    Act.DELETE_CHECKPOINT: {"checkpoint_deleted"},
    Act.DELETE_DATASET: {"dataset_deleted"},
    Act.DELETE_MODEL: {"model_deleted"},
}
DANGEROUS = set[str]().union(*ROWS.values())
SENT = sorted(route for route, act in ACTS.items() if act.action in DANGEROUS)
DELETED = sorted(route for route, action in DELETES.items() if action in DANGEROUS)
KEYED = {"url": "https://93.184.216.34/v1", "model": "m", "key": "sk-canary"}
FORM = KEYED | {"tool_format": "native", "concurrency": 4, "timeout_s": 60}
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", PROJECT + "endpoints/new/", FORM | {"name": "e"}),
    ("POST", PROJECT + "endpoints/" + OWN_PK + "edit/", FORM),
    ("POST", API + "projects/<slug:slug>/endpoints", KEYED | {"name": "e"}),
    ("PATCH", API + "endpoints/<uuidstr:endpoint_id>", {"key": ""}),
    ("PATCH", API + "channels/<uuidstr:channel_id>", {"url": "http://8.8.8.8/hook"}),
    ("PATCH", API + "channels/<uuidstr:channel_id>", {"secret": ""}),
    ("POST", API + "projects/<slug:slug>/runs/batch", {"act": "delete", "runs": ["0" * 32]}),
    ("POST", "tokens/", {"name": "night", "role": "editor", "project": "", "days": "30"}),
    ("POST", "password/mail/", {"email": "a@example.org"}),
    ("POST", "site/custom-rewards/", {"on": "yes"}),
    ("POST", "site/people/<uuid:pk>/link/", {}),
    ("POST", "site/people/<uuid:pk>/active/", {"active": "no"}),
    ("POST", PROJECT + "settings/members/<int:pk>/active/", {"active": "yes"}),
]


def test_the_list_of_security_md_is_the_list_of_the_code() -> None:
    listed = SECURITY.read_text().split("<!-- the acts of webapp/people/teams/sudo.py -->\n")[1].split("\n\n")[0]
    assert listed.splitlines() == [f"- {act.label}" for act in Act]
    assert set(ROWS) == set(Act) and len(SENT) == 28 and len(DELETED) == 6


def _refused(answer: Any, is_api: bool) -> None:
    if is_api:
        assert (answer.status_code, answer.json()["code"]) == (403, "confirm_first"), answer.content
        assert answer.json()["message"].startswith("Confirm that it is you, to ")
    else:
        assert answer.status_code == 302 and answer["Location"].startswith("/confirm/?next="), answer.content[:2000]


def _send(client: Client, method: str, route: str, address: str, body: Any) -> Any:
    if route.startswith(API):
        return client.generic(method, address, json.dumps(body), content_type="application/json")
    return client.post(address, body)


@pytest.mark.parametrize("route", SENT + DELETED)
def test_an_old_session_is_asked_and_changes_nothing(
    route: str, places: dict[str, Any], alice: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    client = client_for(alice, old=True)
    _prepare(route, places, alice, client)
    before = AuditEntry.objects.count()
    deletes = route in DELETED
    body = {} if deletes else ACTS[route].body
    body = body(places) if callable(body) else body
    method = "DELETE" if deletes else "POST" if "POST" in TABLE[route] else "PATCH"
    _refused(_send(client, method, route, _address(route, places), body), route.startswith(API))
    assert AuditEntry.objects.count() == before


def test_what_is_not_in_the_table_of_rows_is_asked_too(
    places: dict[str, Any], alice: User, client_for: Clients, settings: Any
) -> None:
    settings.EMAIL_HOST = "mail.example"
    User.objects.filter(pk=alice.pk).update(is_superuser=True)
    client, before = client_for(alice, old=True), AuditEntry.objects.count()
    for method, route, body in MORE:
        _refused(_send(client, method, route, _address(route, places), body), route.startswith(API))
    assert AuditEntry.objects.count() == before


def test_what_changes_nothing_dangerous_is_not_asked(places: dict[str, Any], alice: User, client_for: Clients) -> None:
    client, at = client_for(alice, old=True), lambda route: _address(route, places)
    plain = {"name": "e", "url": "https://93.184.216.34/v1", "model": "m"}
    for method, route, body, status in (
        ("POST", API + "projects/<slug:slug>/endpoints", plain, 201),
        ("PATCH", API + "endpoints/<uuidstr:endpoint_id>", {"timeout_s": 61}, 200),
        ("PATCH", API + "channels/<uuidstr:channel_id>", {"name": "hall"}, 200),
        ("POST", PROJECT + "settings/hub-token/remove/", {}, 302),
        ("DELETE", API + "projects/<slug:slug>/tokens/<uuidstr:token_id>", {}, 200),
        ("DELETE", API + "shared-links/<uuidstr:link_id>", {}, 200),
    ):
        answer = _send(client, method, route, at(route), body)
        assert answer.status_code == status and "/confirm/" not in answer.get("Location", ""), (route, answer.content)


# --- When -------------------------------------------------------------------------------------------------------------
def _role(project: Project, user: User) -> str:
    return f"/p/{project.slug}/settings/members/{Membership.objects.get(user=user, team=project.team).pk}/role/"


@pytest.mark.parametrize("by", ["password", "link", "confirmation"])
def test_a_proof_lasts_fifteen_minutes(alice: User, bob: User, project: Project, client_for: Clients, by: str) -> None:
    client = client_for(alice, old=True) if by == "confirmation" else Client()
    with time_machine.travel(timezone.now(), tick=False) as clock:
        if by == "password":
            client.post("/login/", {"username": "alice", "password": PASSWORD})
        elif by == "link":
            client.post(f"/login/{login_link_create(user=alice)}/")
        else:
            client.post("/confirm/", {"password": PASSWORD})
        clock.shift(15 * 60 - 1)
        assert client.post(_role(project, bob), {"role": "viewer"})["Location"] == "/p/joust/settings/"
        clock.shift(1)
        assert client.post(_role(project, bob), {"role": "owner"})["Location"].startswith("/confirm/")
    assert Membership.objects.get(user=bob).role == Role.VIEWER


def test_who_may_not_is_refused_before_anybody_is_asked(
    bob: User, charlie: User, alice: User, project: Project, make_run: Any, client_for: Clients
) -> None:
    run = make_run(state="succeeded")
    for user, status in ((bob, 403), (charlie, 404), (None, 401)):
        answer = client_for(user, old=True).delete(f"/api/v1/runs/{run.pk}")
        assert answer.status_code == status and answer.json()["code"] != "confirm_first"
    assert client_for(bob, old=True).post(_role(project, alice), {"role": "viewer"}).status_code == 403


def test_a_token_is_its_own_proof_within_its_scope(alice: User, project: Project, make_run: Any) -> None:
    run = make_run(state="succeeded")
    weak, strong = (token_create(user=alice, name=role, role=role)[1] for role in (Role.EDITOR, Role.OWNER))
    refused, done = (
        Client().delete(f"/api/v1/runs/{run.pk}", headers={"Authorization": f"Bearer {text}"})
        for text in (weak, strong)
    )
    assert (refused.status_code, refused.json()["code"], done.status_code) == (403, "forbidden", 200)


# --- How the browser comes back ---------------------------------------------------------------------------------------
def _fields(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in found if "csrf" not in name}


def test_after_the_password_the_act_continues_with_what_was_typed(
    alice: User, make_run: Any, project: Project, client_for: Clients
) -> None:
    run = make_run(state="succeeded", name="lance (1)")
    client, address = client_for(alice, old=True), f"/p/joust/runs/{run.pk}/delete/"
    asked = client.post(address, {"name": "lance (1)"}, follow=True)
    assert "Confirm that it is you, to delete a run." in html.unescape(asked.content.decode())
    assert client.post("/confirm/", {"password": "wrong", "next": address}).status_code == 422
    page = client.post("/confirm/", {"password": PASSWORD, "next": address}).content.decode()
    assert "You were about to delete a run." in page and f'action="{address}"' in page
    assert "<li><code>name</code>: lance (1)</li>" in page, "a person continues only with what they see"
    assert _fields(page) == {"name": "lance (1)"} and Run.objects.filter(pk=run.pk).exists()
    assert client.post(address, _fields(page)).status_code == 302 and not Run.objects.filter(pk=run.pk).exists()
    assert client.post("/confirm/", {"password": PASSWORD, "next": address})["Location"] == address, "it waits no more"


def test_who_goes_elsewhere_is_not_asked_to_go_on(
    alice: User, bob: User, project: Project, client_for: Clients
) -> None:
    client = client_for(alice, old=True)
    client.post(_role(project, bob), {"role": "owner"})
    assert client.post("/confirm/", {"password": PASSWORD, "next": "/tokens/"})["Location"] == "/tokens/"
    assert WAITING not in client.session


@pytest.mark.parametrize(("seconds", "status"), [(-1, 302), (0, 200), (15 * 60 - 1, 200), (15 * 60, 302)])
def test_what_was_begun_long_ago_waits_no_more(
    alice: User, bob: User, project: Project, client_for: Clients, seconds: int, status: int
) -> None:
    client = client_for(alice, old=True)
    with time_machine.travel(timezone.now(), tick=False) as clock:
        client.post(_role(project, bob), {"role": "owner"})
        clock.shift(seconds)
        done = client.post("/confirm/", {"password": PASSWORD, "next": "/p/joust/settings/"})
    assert done.status_code == status


def test_a_file_is_chosen_again(alice: User, bob: User, project: Project, client_for: Clients) -> None:
    client = client_for(alice, old=True)
    fields = {"role": "owner", "list": SimpleUploadedFile("list.csv", b"bob")}
    assert "Do it again after that" in client.post(_role(project, bob), fields, follow=True).content.decode()
    assert WAITING not in client.session


@pytest.mark.parametrize("too_long", [False, True])
def test_what_is_long_is_typed_again(
    alice: User, bob: User, project: Project, client_for: Clients, too_long: bool
) -> None:
    client = client_for(alice, old=True)
    rest = MAX_KEPT_CHARS - len(json.dumps([("role", "owner"), ("pad", "")]))
    fields = {"role": "owner", "pad": "x" * (rest + too_long)}
    asked = client.post(_role(project, bob), fields, follow=True).content.decode()
    assert ("Do it again after that" in asked) == too_long
    done = client.post("/confirm/", {"password": PASSWORD, "next": "/p/joust/settings/"})
    assert done.status_code == (302 if too_long else 200)


def test_secrets_are_kept_nowhere_meanwhile(alice: User, project: Project, client_for: Clients) -> None:
    client = client_for(alice, old=True)
    asked = client.post("/p/joust/settings/hub-token/", {"token": "hf_canary-secret"}, follow=True)
    assert "Do it again after that; what you entered is not kept." in asked.content.decode()
    assert "hf_canary" not in json.dumps(dict(client.session)) and "hf_canary" not in asked.content.decode()
    done = client.post("/confirm/", {"password": PASSWORD, "next": "/p/joust/settings/"})
    assert done["Location"] == "/p/joust/settings/"
    assert client.post("/p/joust/settings/hub-token/", {"token": "hf_canary-secret"}).status_code == 302


def test_htmx_and_scripts_of_pages_get_an_answer_that_they_can_use(
    alice: User, bob: User, project: Project, client_for: Clients
) -> None:
    client, address = client_for(alice, old=True), _role(project, bob)
    moved = client.post(address, {"role": "owner"}, headers={"HX-Request": "true"})
    assert (moved.status_code, moved["HX-Redirect"]) == (200, "/confirm/?next=%2Fp%2Fjoust%2Fsettings%2F")
    refused = client.post(address, {"role": "owner"}, headers={"Accept": "application/json"})
    assert (refused.status_code, refused.json()["code"]) == (403, "confirm_first") and refused.json()["request_id"]
    assert Membership.objects.get(user=bob).role == Role.EDITOR


def test_another_person_in_the_same_browser_continues_with_nothing(
    alice: User, bob: User, project: Project, client_for: Clients
) -> None:
    client = client_for(alice, old=True)
    client.post(_role(project, bob), {"role": "owner"})
    client.post("/logout/")
    client.force_login(bob)
    aged(client)
    answer = client.post("/confirm/", {"password": PASSWORD, "next": "/p/joust/settings/"})
    assert answer["Location"] == "/p/joust/settings/"


def test_without_a_password_there_is_a_way_on(bob: User, client_for: Clients) -> None:
    User.objects.filter(pk=bob.pk).update(password="!")
    page = client_for(User.objects.get(pk=bob.pk), old=True).get("/confirm/").content.decode()
    assert 'href="/password/"' in page and "manage.py" not in page


def test_a_session_that_was_confirmed_tomorrow_is_not_confirmed(
    alice: User, bob: User, project: Project, client_for: Clients
) -> None:
    with time_machine.travel(timezone.now() + timedelta(days=1)):
        client = client_for(alice)
    assert client.post(_role(project, bob), {"role": "owner"})["Location"].startswith("/confirm/")
