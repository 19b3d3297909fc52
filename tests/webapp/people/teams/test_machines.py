"""Machine accounts: made and ended by owners, calling by tokens alone, staying when people go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth import authenticate
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from tests.working import done
from webapp.evaluation.votes.selectors import members_of
from webapp.people.notifications.models import Event, Notification
from webapp.people.teams import tokens
from webapp.people.teams.logins import login_link_create, login_link_use
from webapp.people.teams.models import ApiToken, AuditEntry, Machine, Membership, Project, Team, User
from webapp.people.teams.selectors import member_rows, people
from webapp.people.teams.services import member_add, member_remove, person_login_link, person_set_active
from webapp.people.teams.tokens import machine_create, machine_end, machine_token, machine_token_rotate, token_create
from webapp.runs.models import Run
from webapp.runs.removal.services import remove

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
FORM = {"name": "robot-7", "may": "editor", "everywhere": "no", "days": "30"}
PAGE = "/p/joust/settings/machines/"


def _made(project: Project, by: User, name: str = "ci", may: str = "editor", **more: Any) -> tuple[Machine, str]:
    options = {"everywhere": False, "days": 30} | more
    machine, _token, text = machine_create(project=project, name=name, may=may, by=by, **options)
    return machine, text


def _ask(text: str, path: str = "projects", method: str = "get", **more: Any) -> Any:
    client = Client(headers={"Authorization": f"Bearer {text}"})
    return getattr(client, method)(f"/api/v1/{path}", **more)


# --- What it is -----------------------------------------------------------------------------------------------------
def test_it_acts_under_its_own_name(project: Project, alice: User) -> None:
    machine, text = _made(project, alice)
    me = _ask(text, "me").json()
    assert me["username"] == "ci" and (me["token"]["role"], me["token"]["project"]) == ("editor", "joust")
    body = {"name": "night", "launch": False}
    made = _ask(text, "projects/joust/runs", "post", data=body, content_type="application/json")
    assert made.status_code == 201 and Run.objects.get().created_by == machine.user
    row = AuditEntry.objects.filter(action="run_added").get()
    assert (row.username, row.user_id, row.project_name) == ("ci", machine.user_id, "Joust")
    rows = AuditEntry.objects.filter(username="alice").order_by("pk").values_list("action", "subject", "project_name")
    assert list(rows) == [("machine_added", "ci · editor", "Joust"), ("token_made", "ci · 1", "Joust")]


@pytest.mark.parametrize(
    ("may", "reads", "writes"),
    [("viewer", 200, 403), ("editor", 200, 201), ("metrics", 200, 403), ("ingest", 403, 403)],
)
def test_it_does_what_it_was_made_for(may: str, reads: int, writes: int, project: Project, alice: User) -> None:
    _machine, text = _made(project, alice, may=may)
    assert _ask(text, "projects/joust/runs").status_code == reads
    body = {"name": "night", "launch": False}
    made = _ask(text, "projects/joust/runs", "post", data=body, content_type="application/json")
    assert made.status_code == writes
    assert _ask(text, "projects/joust", "delete").status_code == 403
    assert _ask(text, "projects/joust/tokens").status_code == 403


def test_it_is_in_one_project_or_in_all_of_the_team(project: Project, alice: User, charlie: User) -> None:
    Project.objects.create(team=project.team, name="Second", slug="second")
    one, all_ = _made(project, alice)[1], _made(project, alice, name="all", everywhere=True)[1]
    for text, second in ((one, 404), (all_, 200)):
        assert _ask(text, "projects/joust").status_code == 200
        assert _ask(text, "projects/second").status_code == second
        assert _ask(text, "projects/elsewhere").status_code == 404
    assert [row["slug"] for row in _ask(one).json()["items"]] == ["joust"]
    assert [row["slug"] for row in _ask(all_).json()["items"]] == ["joust", "second"]


def test_its_name_is_kept_in_one_form(project: Project, alice: User) -> None:
    machine, _text = _made(project, alice, name="ﬁle")
    assert (machine.name, machine.user.username) == ("file", "file")
    with pytest.raises(ValidationError, match="choose another"):
        _made(project, alice, name="ﬁle")


# --- No way in ------------------------------------------------------------------------------------------------------
def test_no_person_logs_in_as_one(project: Project, alice: User, client_for: Clients) -> None:
    machine, text = _made(project, alice)
    user = machine.user
    assert not user.has_usable_password() and user.email == "" and authenticate(username="ci", password="") is None
    for password in ("", "x", user.password):
        assert client_for(None).post("/login/", {"username": "ci", "password": password}).status_code == 422
    root = User.objects.create_superuser("root")
    for by in (alice, root):
        with pytest.raises(PermissionDenied):
            person_login_link(user=user, by=by)
        with pytest.raises(PermissionDenied):
            person_set_active(user=user, active=False, by=by)
    assert login_link_use(login_link_create(user=user)) is None
    with pytest.raises(CommandError):
        call_command("login_link", "ci")
    boss = client_for(root)
    assert boss.post(f"/site/people/{user.pk}/link/").status_code == 404
    assert boss.post(f"/site/people/{user.pk}/active/", {"active": "no"}).status_code == 404
    place = Membership.objects.get(user=user)
    for act, body in (("link", {}), ("active", {"active": "no"}), ("remove", {}), ("role", {"role": "owner"})):
        answer = client_for(alice).post(f"/p/joust/settings/members/{place.pk}/{act}/", body)
        assert answer.status_code == 404, act
    assert _ask(text).status_code == 200
    page = Client(headers={"Authorization": f"Bearer {text}"}).get("/p/joust/")
    assert page.status_code == 302 and page["Location"].startswith("/login/")


@pytest.mark.parametrize(
    "change", [{"password": "pbkdf2$x"}, {"email": "ci@example.org"}, {"is_staff": True}, {"is_superuser": True}]
)
def test_the_database_keeps_it_without_a_way_in(change: dict[str, Any], project: Project, alice: User) -> None:
    machine, _text = _made(project, alice)
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.filter(pk=machine.user_id).update(**change)


def test_it_is_no_member_no_voter_and_hears_nothing(project: Project, alice: User, bob: User, make_run: Any) -> None:
    machine, _text = _made(project, alice)
    assert [row.membership.user.username for row in member_rows(project, alice)] == ["alice", "bob"]
    assert machine.user not in people() and machine.user not in members_of(project)
    assert [row["username"] for row in _ask(token_create(user=bob, name="t", role="viewer")[1],
            "projects/joust/members").json()["items"]] == ["alice", "bob"]  # fmt: skip
    run = make_run(created_by=machine.user)
    event = Event.objects.create(
        project=project, kind="run_failed", key="k", object_kind="runs.run", object_id=str(run.pk), subject="r"
    )
    done(event)
    assert not Notification.objects.filter(user=machine.user).exists()
    for team in (project.team, Team.objects.create(name="Others")):
        with pytest.raises(ValidationError, match="machine account"):
            member_add(team=team, username="CI", role="viewer", by=alice)


# --- Who may --------------------------------------------------------------------------------------------------------
def test_owners_alone_make_and_see_them(
    project: Project, alice: User, bob: User, rita: User, charlie: User, client_for: Clients
) -> None:
    for user, status in ((bob, 403), (rita, 403), (charlie, 404)):
        assert client_for(user).get(PAGE).status_code == status
        assert client_for(user).post(PAGE, FORM).status_code == status
    assert client_for(None).get(PAGE).status_code == 302 and not Machine.objects.exists()
    client = client_for(alice)
    made = client.post(PAGE, FORM)
    assert made.status_code == 201 and "no-store" in made["Cache-Control"]
    text = made.context["text"]
    assert text in made.content.decode() and _ask(text, "me").json()["username"] == "robot-7"
    again = client.get(PAGE).content.decode()
    assert text not in again and "robot-7" in again and text[:12] in again and "Joust" in again
    assert "robot-7" in client.get("/p/joust/settings/tokens/").content.decode()
    assert client.post(PAGE, FORM).status_code == 422  # the name is taken
    assert 'href="/p/joust/settings/machines/"' in client.get("/p/joust/settings/").content.decode()
    assert 'href="/p/joust/settings/machines/"' not in client_for(bob).get("/p/joust/settings/").content.decode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 81},
        {"name": "Alice"},
        {"may": "owner"},
        {"may": ""},
        {"days": "8"},
        {"everywhere": "x"},
    ],
)
def test_what_cannot_be_makes_nothing(
    wrong: dict[str, str], project: Project, alice: User, client_for: Clients
) -> None:
    assert client_for(alice).post(PAGE, FORM | wrong).status_code == 422
    assert not Machine.objects.exists() and User.objects.count() == 1


def test_another_token_is_valid_for_a_time_that_is_offered(project: Project, alice: User, client_for: Clients) -> None:
    machine, _text = _made(project, alice)
    answer = client_for(alice).post(f"{PAGE}{machine.pk}/tokens/", {"days": "8"}, follow=True)
    assert "Choose for how long the token is valid." in answer.content.decode() and ApiToken.objects.count() == 1


def test_no_role_beyond_an_editors_comes_by_the_service(project: Project, alice: User) -> None:
    for may in ("owner", "", "king"):
        with pytest.raises(ValidationError):
            _made(project, alice, may=may)
    assert not Machine.objects.exists()


def test_another_teams_owner_reaches_none_of_them(
    project: Project, alice: User, charlie: User, client_for: Clients
) -> None:
    machine, text = _made(project, alice)
    token = ApiToken.objects.get()
    client = client_for(charlie)
    for where in ("/p/elsewhere/settings/machines/", "/p/joust/settings/machines/"):
        for tail in ("end/", "tokens/", f"tokens/{token.pk}/replace/", f"tokens/{token.pk}/revoke/"):
            assert client.post(f"{where}{machine.pk}/{tail}", {"days": "30"}).status_code == 404
    for where in ("elsewhere", "joust"):
        assert client.delete(f"/api/v1/projects/{where}/machines/{machine.pk}").status_code == 404
    assert _ask(text).status_code == 200


def test_a_token_of_a_person_is_not_reached_as_one_of_a_machine(
    project: Project, alice: User, bob: User, client_for: Clients
) -> None:
    machine, _text = _made(project, alice)
    token, text = token_create(user=bob, name="own", role="editor")
    for act in ("replace", "revoke"):
        answer = client_for(alice).post(f"{PAGE}{machine.pk}/tokens/{token.pk}/{act}/")
        assert answer.status_code == 404
    assert _ask(text).status_code == 200


# --- Its tokens -----------------------------------------------------------------------------------------------------
def test_a_token_is_replaced_by_another_for_as_long(project: Project, alice: User, client_for: Clients) -> None:
    machine, text = _made(project, alice, days=30)
    old = ApiToken.objects.get()
    with time_machine.travel(timezone.now() + timedelta(days=40)):  # it has expired meanwhile
        made = client_for(alice).post(f"{PAGE}{machine.pk}/tokens/{old.pk}/replace/")
        assert made.status_code == 201
        new = ApiToken.objects.exclude(pk=old.pk).get()
        assert (new.name, new.role, new.project) == ("1", "editor", project)
        assert timedelta(days=30) - (new.expires_at - timezone.now()) < timedelta(minutes=1)
        assert _ask(made.context["text"]).status_code == 200
    refused = _ask(text)
    assert refused.status_code == 401 and "another one took its place" in refused.json()["message"]
    again = client_for(alice).post(f"{PAGE}{machine.pk}/tokens/{old.pk}/replace/")
    assert again.status_code == 404


def test_a_token_without_an_end_is_replaced_by_one_without(project: Project, alice: User) -> None:
    machine, _text = _made(project, alice, days=0)
    old = ApiToken.objects.get()
    new, _fresh = machine_token_rotate(machine=machine, token=old, by=alice, project=project)
    assert old.expires_at is None and new.expires_at is None
    with pytest.raises(ValidationError, match="has ended"):
        machine_token_rotate(machine=machine, token=old, by=alice, project=project)


def test_two_tokens_hold_side_by_side_until_one_is_revoked(project: Project, alice: User, client_for: Clients) -> None:
    machine, first = _made(project, alice)
    client = client_for(alice)
    made = client.post(f"{PAGE}{machine.pk}/tokens/", {"days": "7"})
    second = made.context["text"]
    assert made.status_code == 201 and made.context["token"].name == "2"
    assert _ask(first).status_code == _ask(second).status_code == 200
    token = ApiToken.objects.get(name="1")
    assert client.post(f"{PAGE}{machine.pk}/tokens/{token.pk}/revoke/")["Location"] == PAGE
    assert (_ask(first).status_code, _ask(second).status_code) == (401, 200)
    assert "revoked by an owner" in _ask(first).json()["message"]
    assert client.post(f"{PAGE}{machine.pk}/tokens/", {"days": "7"}).context["token"].name == "3"
    assert client.post(f"{PAGE}{machine.pk}/tokens/", {"days": "8"})["Location"] == PAGE  # no such choice


def test_there_is_an_end_to_them(project: Project, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, _text = _made(project, alice)
    monkeypatch.setattr(tokens, "MOST_TOKENS", 2)
    machine_token(machine=machine, days=7, by=alice, project=project)
    with pytest.raises(ValidationError, match="revoke one first"):
        machine_token(machine=machine, days=7, by=alice, project=project)
    monkeypatch.setattr(tokens, "MOST_MACHINES", 2)
    _made(project, alice, name="two")
    with pytest.raises(ValidationError, match="end one first"):
        _made(project, alice, name="three")
    machine_end(machine=machine, by=alice, project=project)
    _made(project, alice, name="three")


# --- How it ends ----------------------------------------------------------------------------------------------------
def test_it_stays_when_its_maker_goes(project: Project, alice: User, client_for: Clients) -> None:
    _machine, text = _made(project, alice)
    second = member_add(team=project.team, username="anna", role="owner", by=alice).membership.user
    member_remove(membership=Membership.objects.get(user=alice), by=second)
    assert _ask(text).status_code == 200
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert _ask(text).status_code == 200
    alice.set_password("another long word")
    alice.save()
    assert _ask(text).status_code == 200
    alice.delete()
    assert _ask(text).status_code == 200
    assert "a former member" in client_for(second).get(PAGE).content.decode()


def test_an_owner_ends_it_for_good(project: Project, alice: User, client_for: Clients) -> None:
    machine, text = _made(project, alice)
    body = {"name": "night", "launch": False}
    _ask(text, "projects/joust/runs", "post", data=body, content_type="application/json")
    client = client_for(alice)
    assert client.post(f"{PAGE}{machine.pk}/end/")["Location"] == PAGE
    refused = _ask(text)
    assert refused.status_code == 401 and "its machine account was ended" in refused.json()["message"]
    assert Run.objects.get().created_by == machine.user
    assert client.post(f"{PAGE}{machine.pk}/end/").status_code == 404
    assert "No machine accounts yet" in client.get(PAGE).content.decode()
    with pytest.raises(ValidationError, match="has ended"):
        machine_token(machine=machine, days=7, by=alice, project=project)
    with pytest.raises(ValidationError, match="choose another"):
        _made(project, alice)  # its name stays its own in the audit
    row = AuditEntry.objects.filter(action="machine_ended").get()
    assert (row.username, row.subject, row.project_name) == ("alice", "ci", "Joust")


def test_one_of_a_deleted_project_ends_and_does_not_come_to_reach_all(project: Project, alice: User) -> None:
    second = Project.objects.create(team=project.team, name="Second", slug="second")
    machine, text = _made(project, alice)
    other = _made(second, alice, name="other")[1]
    remove(project)
    assert _ask(text).status_code == 401 and _ask(other).status_code == 200
    machine.refresh_from_db()
    assert machine.ended_at is not None and not ApiToken.objects.filter(user=machine.user, revoked_at=None).exists()


# --- The API --------------------------------------------------------------------------------------------------------
def _post(client: Client, path: str, body: dict[str, Any]) -> Any:
    return client.post(f"/api/v1/projects/joust/machines{path}", body, content_type="application/json")


def test_the_api_makes_lists_replaces_and_ends(project: Project, alice: User, client_for: Clients) -> None:
    client = client_for(alice)
    made = _post(client, "", {"name": "ci", "may": "metrics", "everywhere": True})
    assert made.status_code == 201 and _ask(made.json()["text"], "me").json()["token"]["scope"] == "metrics"
    (row,) = client.get("/api/v1/projects/joust/machines").json()["items"]
    assert (row["name"], row["role"], row["scope"], row["project"]) == ("ci", "viewer", "metrics", None)
    assert row["created_by"] == "alice" and [token["name"] for token in row["tokens"]] == ["1"]
    assert made.json()["text"] not in client.get("/api/v1/projects/joust/machines").content.decode()
    of = f"/{row['id']}"
    second = _post(client, f"{of}/tokens", {"days": None}).json()
    assert second["token"]["expires_at"] is None and second["token"]["name"] == "2"
    third = _post(client, f"{of}/tokens/{second['token']['id']}/replace", {}).json()
    assert (_ask(second["text"]).status_code, _ask(third["text"]).status_code) == (401, 200)
    base = f"/api/v1/projects/joust/machines{of}"
    assert client.delete(f"{base}/tokens/{third['token']['id']}").json() == {"deleted": "2"}
    assert _ask(third["text"]).status_code == 401 and _ask(made.json()["text"]).status_code == 200
    assert client.delete(base).json() == {"deleted": "ci"} and _ask(made.json()["text"]).status_code == 401
    assert client.get("/api/v1/projects/joust/machines").json()["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "ci", "may": "owner"},
        {"name": "ci", "days": 0},
        {"name": "ci", "days": 3651},
        {"name": "ci", "days": 10**30},
        {"name": "ci", "team": "x"},
    ],
)
def test_what_the_api_does_not_understand_is_named(
    body: dict[str, Any], project: Project, alice: User, client_for: Clients
) -> None:
    answer = _post(client_for(alice), "", body)
    assert answer.status_code == 422 and answer.json()["detail"][0]["path"] and not Machine.objects.exists()


def test_a_token_ends_them_but_makes_none(project: Project, alice: User) -> None:
    machine, text = _made(project, alice)
    token, owners = ApiToken.objects.get(), token_create(user=alice, name="all", role="owner")[1]
    for path in ("", f"/{machine.pk}/tokens", f"/{machine.pk}/tokens/{token.pk}/replace"):
        refused = _ask(
            owners, f"projects/joust/machines{path}", "post", data={"name": "x"} if not path else {},
            content_type="application/json",
        )  # fmt: skip
        assert refused.status_code == 403 and "a person does that" in refused.json()["message"], path
    assert _ask(owners, f"projects/joust/machines/{machine.pk}", "delete").status_code == 200
    assert _ask(text).status_code == 401 and Machine.objects.count() == 1
