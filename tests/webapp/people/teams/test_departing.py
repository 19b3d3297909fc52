"""Deleting a person: what goes, what stays under which name, who may, and who cannot leave yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group, Permission
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone

from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.evaluation.votes.models import Ballot, RoundContestant, RoundVoter, Vote, VoteRound
from webapp.people.notifications.models import Watch
from webapp.people.teams.logins import login_link_create
from webapp.people.teams.models import (
    ApiToken,
    AuditEntry,
    Identity,
    LoginLink,
    Membership,
    Project,
    Role,
    Team,
    User,
)
from webapp.people.teams.oidc import person_of
from webapp.people.teams.services import _of_a_person, manages, member_add, name_after, obstacles, person_delete
from webapp.people.teams.tokens import machine_create, token_create
from webapp.runs.models import RunStar

pytestmark = pytest.mark.django_db(transaction=True)
Clients = Callable[..., Client]


@pytest.fixture
def boss(db: None) -> User:
    """An administrator who is in no team."""
    return User.objects.create_superuser("boss")


def test_what_belongs_to_a_person_is_known_by_value() -> None:
    """A new model that names a person is looked at here: does it go, or stay?"""
    assert {(model._meta.label, field) for model, field in _of_a_person()} == {
        ("api.KeptAnswer", "user"),
        ("notifications.Delivery", "user"),
        ("notifications.Notification", "user"),
        ("notifications.Reader", "user"),
        ("notifications.Visit", "user"),
        ("notifications.Watch", "user"),
        ("runs.RunColumns", "user"),
        ("runs.RunStar", "user"),
        ("sharing.SharedLink", "created_by"),
        ("teams.ApiToken", "user"),
        ("teams.Identity", "user"),
        ("teams.LoginLink", "user"),
        ("teams.Machine", "user"),
        ("teams.Membership", "user"),
        ("teams.User_groups", "user"),
        ("teams.User_user_permissions", "user"),
    }


def _filled(bob: User, project: Project, make_run: Any) -> None:
    """Something of every kind that bob has or made."""
    run = make_run(name="his", created_by=bob)
    token_create(user=bob, name="t", role=Role.EDITOR)
    login_link_create(user=bob)
    Identity.objects.create(user=bob, issuer="https://id.example", subject="b")
    RunStar.objects.create(run=run, user=bob)
    Watch.objects.create(user=bob, project=project)
    saved = SavedComparison.objects.create(project=project, name="c", contestants=[], created_by=bob)
    Comment.objects.create(comparison=saved, text="well done", created_by=bob)
    SharedLink.objects.create(comparison=saved, secret_hash="x", hint="x", created_by=bob, expires_at=timezone.now())
    round_ = VoteRound.objects.create(project=project, name="r", seed=1, created_by=bob)
    first, second = (RoundContestant.objects.create(round=round_, number=n, run=run, name=run.name) for n in (1, 2))
    voter = RoundVoter.objects.create(round=round_, user=bob)
    ballot = Ballot.objects.create(
        round=round_, number=1, task=0, attempt=0, kind="both", first=first, second=second,
        first_rollout=run.pk, second_rollout=run.pk,
    )  # fmt: skip
    Vote.objects.create(ballot=ballot, voter=bob, answer="first", first_left=True, cast_at=timezone.now())
    assert voter.user == bob


def test_a_person_goes_and_what_they_made_stays(
    alice: User, bob: User, boss: User, project: Project, make_run: Any, client_for: Clients
) -> None:
    User.objects.filter(pk=bob.pk).update(email="bob@example.org", first_name="Bob", last_name="B.")
    _filled(bob, project, make_run)
    his, hers = client_for(bob), client_for(alice)
    assert his.get(f"/p/{project.slug}/").status_code == 200
    client = client_for(boss)
    address = f"/site/people/{bob.pk}/delete/"
    page = client.get(address).content.decode()
    assert "their place in 1 team<" in page and "1 API token<" in page
    assert f"under the name {name_after(bob)}" in page and "The audit keeps the name" in page
    assert client.post(address, {"name": "bo"}).status_code == 422 and User.objects.filter(username="bob").exists()
    assert client.post(address, {"name": "bob"})["Location"] == "/site/"
    row = User.objects.get(pk=bob.pk)
    assert (row.username, row.email, row.first_name, row.last_name, row.last_login) == (
        name_after(bob),
        "",
        "",
        "",
        None,
    )
    assert row.deleted_at is not None and not row.is_active and not row.has_usable_password()
    assert str(bob.pk) not in {session.get_decoded().get(SESSION_KEY) for session in Session.objects.all()}
    assert his.get(f"/p/{project.slug}/")["Location"].startswith("/login/")
    for model in (ApiToken, LoginLink, Identity, RunStar, SharedLink, Watch):
        assert not model._base_manager.exists(), model
    assert not Membership.objects.filter(user=bob).exists()
    assert (Comment.objects.get().created_by, Vote.objects.get().voter) == (row, row)
    runs = hers.get(f"/p/{project.slug}/runs/").content.decode()
    assert name_after(bob) in runs and ">bob<" not in runs
    assert "bob" not in {one.username for one in User.objects.all()}
    assert "bob was deleted." in client.get("/site/").content.decode()
    assert "bob" not in client.get("/site/").content.decode().split("Audit")[0]
    entry = AuditEntry.objects.get(action="person_deleted")
    assert (entry.username, entry.subject, entry.object_id) == ("boss", "bob", str(bob.pk))
    assert client.get(address).status_code == 404


def test_a_person_deletes_themself_after_a_confirmation(bob: User, project: Project, client_for: Clients) -> None:
    old = client_for(bob, old=True)
    assert old.post("/account/delete/", {"name": "bob"})["Location"].startswith("/confirm/")
    assert User.objects.filter(username="bob").exists()
    client = client_for(bob)
    assert client.post("/account/delete/", {"name": "bob"})["Location"] == "/login/"
    assert "Your account was deleted." in client.get("/login/").content.decode()
    assert User.objects.get(pk=bob.pk).deleted_at is not None
    assert AuditEntry.objects.get(action="person_deleted").username == "bob"


def test_the_last_owner_names_another_one_first(alice: User, bob: User, project: Project, client_for: Clients) -> None:
    words = "These teams would have no owner: Jousters. Make another person an owner first, or delete the team."
    words = words.replace("Jousters", project.team.name)
    assert obstacles(alice) == [words]
    client = client_for(alice)
    page = client.get("/account/delete/").content.decode()
    assert words in page and "id_name" not in page
    answer = client.post("/account/delete/", {"name": "alice"})
    assert answer.status_code == 422 and User.objects.filter(username="alice").exists()
    Membership.objects.filter(user=bob).update(role=Role.OWNER)
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert obstacles(alice) == [words]  # who cannot log in is no owner
    User.objects.filter(pk=bob.pk).update(is_active=True)
    assert obstacles(alice) == []
    person_delete(user=alice, by=alice)
    assert list(Membership.objects.filter(role=Role.OWNER).values_list("user", flat=True)) == [bob.pk]


def test_of_two_owners_who_leave_at_once_one_stays(alice: User, bob: User, project: Project) -> None:
    Membership.objects.filter(user=bob).update(role=Role.OWNER)
    start, left = threading.Barrier(2), []

    def leave(user: User) -> None:
        try:
            start.wait(10)
            person_delete(user=user, by=user)
            left.append(user.username)
        except ValidationError:
            left.append("")
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=[user]) for user in (alice, bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(bool, left)) == [False, True]
    assert Membership.objects.filter(team=project.team, role=Role.OWNER).count() == 1


def test_the_last_administrator_stays(boss: User) -> None:
    assert obstacles(boss) == ["There would be no administrator: make another person one first."]
    second = User.objects.create_superuser("second", is_active=False)
    User.objects.create_user("plain")
    assert obstacles(boss) != []
    User.objects.filter(pk=second.pk).update(is_active=True)
    person_delete(user=boss, by=boss)
    row = User.objects.get(pk=boss.pk)
    assert not row.is_superuser and not row.is_staff


def test_who_may_delete_whom(alice: User, bob: User, boss: User, project: Project, client_for: Clients) -> None:
    second = User.objects.create_superuser("second")
    machine = machine_create(project=project, by=alice, name="ci", may="editor", everywhere=False, days=1)[0].user
    for by, user in ((alice, bob), (boss, second), (boss, machine), (bob, alice)):
        with pytest.raises(PermissionDenied):
            person_delete(user=user, by=by)
    client = client_for(boss)
    assert client.get(f"/site/people/{second.pk}/delete/").status_code == 403
    assert client.get(f"/site/people/{machine.pk}/delete/").status_code == 404
    assert client.get(f"/site/people/{boss.pk}/delete/")["Location"] == "/account/delete/"
    assert User.objects.filter(deleted_at=None).count() == 5


def test_a_deleted_person_cannot_come_back(alice: User, bob: User, boss: User, project: Project) -> None:
    Identity.objects.create(user=bob, issuer="https://id.example", subject="b")
    person_delete(user=bob, by=boss)
    gone = User.objects.get(pk=bob.pk)
    assert not manages(by=boss, user=gone)
    with pytest.raises(ValidationError, match="was deleted; choose another name"):
        member_add(team=project.team, username=gone.username, role=Role.EDITOR, by=alice)
    with pytest.raises(PermissionDenied):
        person_delete(user=gone, by=boss)
    fresh = person_of("https://id.example", {"sub": "b", "preferred_username": "bob"})
    assert fresh.pk != bob.pk and fresh.username == "bob"  # the name is free, and opens nothing of before
    assert not fresh.memberships.exists()


def test_machine_accounts_outlive_who_made_them(alice: User, bob: User, project: Project) -> None:
    Membership.objects.filter(user=bob).update(role=Role.OWNER)
    machine, _token, text = machine_create(project=project, by=alice, name="ci", may="editor", everywhere=False, days=1)
    person_delete(user=alice, by=alice)
    machine.refresh_from_db()
    assert machine.created_by is not None and machine.created_by.username == name_after(alice)
    headers = {"Authorization": f"Bearer {text}"}
    assert Client().get(f"/api/v1/projects/{project.slug}/runs", headers=headers).status_code == 200


def test_an_administrator_does_so_over_the_api(
    alice: User, bob: User, boss: User, project: Project, client_for: Clients
) -> None:
    client = client_for(boss)
    listed = client.get("/api/v1/people?q=BO").json()["items"]
    assert [(one["username"], one["is_superuser"]) for one in listed] == [("bob", False), ("boss", True)]
    refused = client.delete(f"/api/v1/people/{alice.pk}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert client.delete(f"/api/v1/people/{boss.pk}").status_code == 403
    assert client.delete(f"/api/v1/people/{bob.pk}").json() == {"deleted": "bob"}
    assert client.delete(f"/api/v1/people/{bob.pk}").status_code == 404
    old = client_for(boss, old=True).delete(f"/api/v1/people/{alice.pk}")
    assert (old.status_code, old.json()["code"]) == (403, "confirm_first")
    text = token_create(user=boss, name="narrow", role=Role.EDITOR)[1]
    narrow = Client().delete(f"/api/v1/people/{alice.pk}", headers={"Authorization": f"Bearer {text}"})
    assert narrow.status_code == 403 and User.objects.filter(username="alice").exists()


def test_the_first_five_teams_that_would_have_no_owner_are_named(alice: User) -> None:
    for letter in "fbdcea":
        Membership.objects.create(team=Team.objects.create(name=letter), user=alice, role=Role.OWNER)
    Membership.objects.filter(team__name="Knights").delete()
    (why,) = obstacles(alice)
    assert why.startswith("These teams would have no owner: a, b, c, d, e. Make another person")


def test_groups_and_permissions_of_a_person_go(alice: User, bob: User, boss: User) -> None:
    bob.groups.add(Group.objects.create(name="g"))
    bob.user_permissions.add(Permission.objects.all()[0])
    person_delete(user=bob, by=boss)
    assert not bob.groups.exists() and not bob.user_permissions.exists()
