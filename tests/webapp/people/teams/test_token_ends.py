"""A token ends for good with what it represents, and owners see and end what reaches their projects."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.webapp.people.teams.test_login import CHEAP, PASSWORD
from webapp.people.teams.logins import login_link_create, login_link_use
from webapp.people.teams.models import ApiToken, AuditEntry, LoginLink, Membership, Project, Role, Team, User
from webapp.people.teams.services import member_remove, person_set_active
from webapp.people.teams.tokens import token_create

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
NEW = "a much better phrase 7"


@pytest.fixture(autouse=True)
def _cheap(settings: Any) -> None:
    settings.PASSWORD_HASHERS = CHEAP


@pytest.fixture
def other(alice: User, bob: User) -> Project:
    """A project of another team, in which bob is as well."""
    team = Team.objects.create(name="Others")
    Membership.objects.create(team=team, user=bob, role=Role.EDITOR)
    Membership.objects.create(team=team, user=alice, role=Role.OWNER)
    return Project.objects.create(team=team, name="Other", slug="other")


def _text(user: User, name: str = "t", role: str = Role.OWNER, **options: Any) -> str:
    return token_create(user=user, name=name, role=role, **options)[1]


def _ask(text: str, path: str = "projects", method: str = "get", **more: Any) -> Any:
    return getattr(Client(), method)(f"/api/v1/{path}", headers={"Authorization": f"Bearer {text}"}, **more)


def _ends() -> dict[str, tuple[str, str]]:
    return {token.name: (token.ended_by, token.ended_who) for token in ApiToken.objects.exclude(revoked_at=None)}


def _revocations() -> set[tuple[str, str]]:
    return set(AuditEntry.objects.filter(action="token_revoked").values_list("username", "subject"))


# --- What ends them ---------------------------------------------------------------------------------------------------
def test_who_is_let_in_again_has_no_token_left(alice: User, bob: User, client_for: Clients) -> None:
    text, own = _text(bob), _text(alice, "hers")
    person_set_active(user=bob, active=False, by=alice)
    person_set_active(user=bob, active=True, by=alice)
    answer = _ask(text)
    assert answer.status_code == 401 and answer.json()["code"] == "login_required"
    assert answer.json()["message"] == "This API token has ended: your account was deactivated."
    assert _ends() == {"t": ("deactivated", "alice")} and _ask(own).status_code == 200
    assert _revocations() == {("alice", "bob · t · deactivated")}
    page = client_for(bob).get("/tokens/").content.decode()
    assert "your account was deactivated" in page and "(alice)" in page


def test_a_changed_password_ends_tokens_and_links(bob: User, alice: User) -> None:
    text, own, link = _text(bob), _text(alice), login_link_create(user=bob)
    browser = Client()
    browser.post("/login/", {"username": "bob", "password": PASSWORD})
    form = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}
    page = browser.get("/password/")
    assert page.status_code == 200 and "Your API token ends with the old password" in page.content.decode()
    assert browser.post("/password/", form).status_code == 422 and _ask(text).status_code == 200
    answer = browser.post("/password/", form | {"old_password": PASSWORD}, follow=True)
    assert "1 API token ended with the old one." in answer.content.decode()
    assert _ask(text).json()["message"] == "This API token has ended: your password was set."
    assert _ask(own).status_code == 200 and login_link_use(link) is None
    assert _revocations() == {("bob", "bob · t · password")}
    assert "your password was set" in browser.get("/tokens/").content.decode()


@pytest.mark.parametrize("by", ["owner", "administrator", "mail or server"])
def test_a_password_set_by_a_link_ends_them_too(bob: User, alice: User, client_for: Clients, by: str) -> None:
    text = _text(bob)
    if by == "mail or server":
        token = login_link_create(user=bob)
    else:
        User.objects.filter(pk=alice.pk).update(is_superuser=by == "administrator")
        pk = Membership.objects.get(user=bob).pk
        address = f"/site/people/{bob.pk}/link/" if by == "administrator" else f"/p/joust/settings/members/{pk}/link/"
        Project.objects.create(team=Team.objects.get(), name="Joust", slug="joust")
        found = re.search(r"/login/([\w-]{20,})/", client_for(alice).post(address).content.decode())
        assert found is not None
        token = found[1]
    browser = Client()
    assert browser.post(f"/login/{token}/").status_code == 302
    assert _ask(text).status_code == 200, "to log in ends nothing"
    assert browser.post("/password/", {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    assert _ask(text).status_code == 401 and _ends() == {"t": ("password", "")}


def test_a_password_set_by_a_command_ends_them_too(bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    text = _text(bob)
    monkeypatch.setattr("getpass.getpass", lambda *_a, **_k: NEW)
    call_command("changepassword", "bob")
    assert _ask(text).status_code == 401 and _ends() == {"t": ("password", "")}


def test_a_hash_that_is_renewed_at_a_login_ends_nothing(bob: User) -> None:
    text, before = _text(bob), bob.password
    Client().post("/login/", {"username": "bob", "password": PASSWORD})
    bob.refresh_from_db()
    assert bob.password != before and _ask(text).status_code == 200


def test_a_person_who_leaves_a_team_loses_what_reached_its_projects(
    alice: User, bob: User, project: Project, other: Project
) -> None:
    everywhere, here = _text(bob, "everywhere"), _text(bob, "here", project=project)
    there = _text(bob, "there", project=other)
    membership = Membership.objects.get(user=bob, team=project.team)
    member_remove(membership=membership, by=alice)
    Membership.objects.create(user=bob, team=project.team, role=Role.EDITOR)  # and comes back
    assert [_ask(text).status_code for text in (everywhere, here, there)] == [401, 401, 200]
    assert _ends() == {"everywhere": ("left", "alice"), "here": ("left", "alice")}
    assert _revocations() == {("alice", "bob · everywhere · left"), ("alice", "bob · here · left")}


def test_no_token_is_made_with_what_has_ended(alice: User, bob: User, project: Project) -> None:
    """A form that was sent before the end and is read after it."""
    stale = User.objects.get(pk=bob.pk)
    bob.set_password(NEW)
    bob.save()
    with pytest.raises(ValidationError, match="just changed"):
        _text(stale)
    person_set_active(user=bob, active=False, by=alice)
    with pytest.raises(ValidationError, match="just changed"):
        _text(User.objects.get(pk=bob.pk))
    assert not ApiToken.objects.exists()


def test_the_upgrade_ends_tokens_that_slept(
    alice: User, bob: User, rita: User, project: Project, other: Project
) -> None:
    for name, user, place in (("a", alice, project), ("b", bob, None), ("c", rita, project), ("d", rita, None)):
        _text(user, name, project=place)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    Membership.objects.filter(user=rita).delete()
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("webapp.people.teams.migrations.0014_token_ends").SLEEPING)
    assert _ends() == {"b": ("deactivated", ""), "c": ("left", "")}


# --- Who sees and ends them -------------------------------------------------------------------------------------------
def test_owners_see_every_token_that_reaches_their_project(
    client_for: Clients, alice: User, bob: User, charlie: User, project: Project, other: Project
) -> None:
    text = _text(bob, "everywhere", Role.EDITOR)
    for user, name, place in ((bob, "here", project), (bob, "there", other), (charlie, "strange", None)):
        _text(user, name, project=place)
    _text(alice, "old", days=1)
    ApiToken.objects.filter(name="old").update(expires_at=timezone.now())
    _ask(text, REMOTE_ADDR="10.1.2.3")
    listed = client_for(alice).get("/api/v1/projects/joust/tokens").json()["items"]
    assert [(item["username"], item["name"], item["role"], item["project"]) for item in listed] == [
        ("bob", "here", "owner", "joust"),
        ("bob", "everywhere", "editor", None),
    ]
    assert [(item["used_from"], item["used_at"] is None) for item in listed] == [("", True), ("10.1.2.3", False)]
    assert text not in str(listed) and listed[1]["hint"] == text[:12]
    page = client_for(alice).get("/p/joust/settings/tokens/").content.decode()
    assert re.findall(r'rail-link" href="([^"]+)"\s+aria-current', page) == ["/p/joust/settings/"]
    shown = ("everywhere", "here", "bob", "10.1.2.3", "all your projects", text[:12], "never")
    assert [word for word in shown if word not in page] == []
    assert "there" not in re.findall(r"<strong>(\w+)</strong>", page) and "strange" not in page
    for user, status in ((bob, 403), (charlie, 404)):
        assert client_for(user).get("/p/joust/settings/tokens/").status_code == status
        assert client_for(user).get("/api/v1/projects/joust/tokens").status_code == status
    assert 'href="/p/joust/settings/tokens/"' in client_for(alice).get("/p/joust/settings/").content.decode()
    assert 'href="/p/joust/settings/tokens/"' not in client_for(bob).get("/p/joust/settings/").content.decode()


def test_owners_end_what_reaches_their_project_and_its_person_reads_it(
    client_for: Clients, alice: User, bob: User, project: Project, other: Project
) -> None:
    texts = {name: _text(bob, name, project=place) for name, place in (("a", project), ("b", None), ("c", other))}
    ids = dict(ApiToken.objects.values_list("name", "pk"))
    owner = client_for(alice)
    assert owner.post(f"/p/joust/settings/tokens/{ids['a']}/revoke/")["Location"] == "/p/joust/settings/tokens/"
    assert owner.delete(f"/api/v1/projects/joust/tokens/{ids['b']}").json() == {"deleted": "b"}
    assert owner.delete(f"/api/v1/projects/joust/tokens/{ids['c']}").status_code == 404, "it reaches another project"
    assert owner.delete(f"/api/v1/projects/joust/tokens/{ids['a']}").status_code == 404, "it has ended"
    assert {name: _ask(text).status_code for name, text in texts.items()} == {"a": 401, "b": 401, "c": 200}
    assert _ask(texts["a"]).json()["message"] == "This API token has ended: revoked by an owner of the team."
    assert _ends() == {"a": ("owner", "alice"), "b": ("owner", "alice")}
    assert _revocations() == {("alice", "bob · a · owner"), ("alice", "bob · b · owner")}
    assert set(AuditEntry.objects.values_list("project_name", flat=True)) >= {"Joust"}
    page = client_for(bob).get("/tokens/").content.decode()
    assert page.count("revoked by an owner of the team") == 2 and "(alice)" in page
    with time_machine.travel(timezone.now() + timedelta(days=91)):
        assert "revoked by an owner of the team" not in client_for(bob).get("/tokens/").content.decode()


def test_a_token_of_an_owner_lists_and_ends_only_within_its_project(
    alice: User, bob: User, project: Project, other: Project
) -> None:
    _text(bob, "target", project=project)
    target, bound = ApiToken.objects.get(), _text(alice, "bound", project=other)
    weak, strong = _text(alice, "weak", Role.EDITOR), _text(alice, "strong")
    path = f"projects/joust/tokens/{target.pk}"
    assert [_ask(text, path, "delete").status_code for text in (bound, weak, strong)] == [404, 403, 200]


def test_administrators_see_and_end_all(client_for: Clients, alice: User, charlie: User) -> None:
    text, ada = _text(charlie, "strange"), User.objects.create_superuser("ada", "", PASSWORD)
    token = ApiToken.objects.get()
    assert client_for(alice).get("/site/tokens/").status_code == 403
    assert (
        client_for(alice).post(f"/site/tokens/{token.pk}/revoke/").status_code == 403 and _ask(text).status_code == 200
    )
    page = client_for(ada).get("/site/tokens/").content.decode()
    assert (
        "strange" in page
        and "charlie" in page
        and 'href="/site/tokens/"' in client_for(ada).get("/site/").content.decode()
    )
    assert client_for(ada).post(f"/site/tokens/{token.pk}/revoke/")["Location"] == "/site/tokens/"
    assert _ask(text).status_code == 401 and _ends() == {"strange": ("administrator", "ada")}
    assert _revocations() == {("ada", "charlie · strange · administrator")}
    assert client_for(ada).post(f"/site/tokens/{token.pk}/revoke/").status_code == 404


def test_a_person_is_not_notified_of_what_they_revoked(client_for: Clients, bob: User) -> None:
    _text(bob, "mine")
    client_for(bob).post(f"/tokens/{ApiToken.objects.get().pk}/revoke/")
    assert _ends() == {"mine": ("revoked", "bob")} and _revocations() == {("bob", "mine")}
    assert "mine" not in re.findall(r"<strong>(\w+)</strong>", client_for(bob).get("/tokens/").content.decode())


def test_the_last_address_is_kept_at_once_and_the_time_to_the_minute(bob: User) -> None:
    text, now, seen = _text(bob), timezone.now(), []
    for seconds, address in ((0, "10.0.0.1"), (30, "10.0.0.1"), (40, "10.0.0.2"), (99, "10.0.0.2"), (101, "10.0.0.2")):
        with time_machine.travel(now + timedelta(seconds=seconds), tick=False):
            assert _ask(text, REMOTE_ADDR=address).status_code == 200
        token = ApiToken.objects.get()
        seen.append((round((token.used_at - now).total_seconds()), token.used_from))
    assert seen == [(0, "10.0.0.1"), (0, "10.0.0.1"), (40, "10.0.0.2"), (40, "10.0.0.2"), (101, "10.0.0.2")]


def test_links_that_were_used_stay_for_the_record(bob: User) -> None:
    link = login_link_create(user=bob)
    login_link_use(link)
    login_link_create(user=bob)
    bob.set_password(NEW)
    bob.save()
    assert LoginLink.objects.count() == 1
