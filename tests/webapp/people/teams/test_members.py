"""Members, people and their throttles: what an act reaches, what it says, and what it asks first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.people.teams.test_login import CHEAP, PASSWORD, _login
from webapp.people.teams import logins
from webapp.people.teams.logins import (
    GUESSES_PER_ADDRESS,
    guess_wait_s,
    login_link_create,
    login_succeeded,
    login_wait_s,
    mail_allowed,
)
from webapp.people.teams.models import ApiToken, LoginLink, LoginThrottle, Membership, Project, Role, Team, User
from webapp.people.teams.oidc import person_of
from webapp.people.teams.selectors import member_rows, teams_owned
from webapp.people.teams.services import (
    hub_token_set,
    hub_token_since,
    member_add,
    member_remove,
    member_set_role,
    person_set_active,
)
from webapp.people.teams.sudo import CONFIRMED_AT
from webapp.people.teams.tokens import machine_create, machine_end, token_create, tokens_ended

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]


@pytest.fixture(autouse=True)
def _cheap(settings: Any) -> None:
    settings.PASSWORD_HASHERS = CHEAP


@pytest.fixture
def admin(db: None) -> User:
    """An administrator who is in no team."""
    return User.objects.create_superuser("ada", "ada@example.org", PASSWORD)


def place_of(user: User, project: Project) -> Membership:
    return Membership.objects.get(team=project.team, user=user)


def test_owners_of_other_teams_keep_no_team_with_an_owner(project: Project, alice: User, charlie: User) -> None:
    mine = place_of(alice, project)
    for act in (
        lambda: member_set_role(membership=mine, role="editor", by=alice),
        lambda: member_remove(membership=mine, by=alice),
    ):
        with pytest.raises(ValidationError, match="A team needs an owner"):
            act()
    mine.refresh_from_db()
    assert mine.role == "owner"
    assert member_set_role(membership=mine, role="owner", by=alice).role == "owner"


def test_a_member_who_is_not_the_owner_may_go(project: Project, alice: User, bob: User) -> None:
    member_set_role(membership=place_of(bob, project), role="viewer", by=alice)
    assert place_of(bob, project).role == "viewer"
    member_remove(membership=place_of(bob, project), by=alice)
    assert not Membership.objects.filter(user=bob).exists()


def test_members_are_listed_owners_first_then_by_name(project: Project, alice: User, bob: User, rita: User) -> None:
    for name, role in (("Zoe", "owner"), ("ann", "editor"), ("Carl", "editor")):
        member_add(team=project.team, username=name, role=role, by=alice)
    machine_create(project=project, name="robot", may="viewer", everywhere=False, days=1, by=alice)
    project.role = Role.OWNER  # type: ignore[attr-defined]
    rows = member_rows(project, alice)
    assert [row.membership.user.username for row in rows] == ["alice", "Zoe", "ann", "bob", "Carl", "rita"]
    assert [row.is_you for row in rows] == [True, *[False] * 5]
    assert [row.can_manage for row in rows] == [False, *[True] * 5]
    del project.role  # type: ignore[attr-defined]
    assert not any(row.can_manage for row in member_rows(project, alice))


def test_teams_that_a_person_owns_are_listed_by_name(project: Project, alice: User, bob: User, charlie: User) -> None:
    first = Team.objects.create(name="Archers")
    Membership.objects.create(team=first, user=alice, role="owner")
    assert list(teams_owned(alice)) == [first, project.team] and list(teams_owned(bob)) == []


def test_what_was_done_to_a_member_is_said(
    client_for: Clients, project: Project, alice: User, bob: User, charlie: User
) -> None:
    client = client_for(alice)

    def said(name: str, *of: Any, **data: str) -> str:
        answer = client.post(reverse(name, args=[project.slug, *of]), data, follow=True)
        return str(answer.content.decode())

    his, hers = place_of(bob, project).pk, place_of(alice, project).pk
    assert "charlie joined the team." in said("member-new", username="charlie", role="viewer")
    assert "There is no such role." in said("member-role", his, role="king")
    assert "bob is now owner." in said("member-role", his, role="owner")
    assert "bob is now editor." in said("member-role", his, role="editor")
    assert "A team needs an owner" in said("member-role", hers, role="viewer")
    assert "A team needs an owner" in said("member-remove", hers)
    assert "bob is logged out and can no longer log in." in said("member-active", his, active="no")
    assert not User.objects.get(pk=bob.pk).is_active
    assert "bob can log in again." in said("member-active", his, active="yes")
    assert User.objects.get(pk=bob.pk).is_active
    assert "bob left the team." in said("member-remove", his)


def test_only_an_administrator_reaches_people_of_the_site(
    client_for: Clients, admin: User, alice: User, bob: User
) -> None:
    link, active = (reverse(name, args=[bob.pk]) for name in ("person-link", "person-active"))
    for address in (link, active):
        assert client_for(alice).post(address, {"active": "no"}).status_code == 403
        assert client_for(admin, old=True).post(address, {"active": "no"})["Location"] == "/confirm/?next=%2Fsite%2F"
    assert User.objects.get(pk=bob.pk).is_active and not LoginLink.objects.exists()
    client = client_for(admin)
    assert "bob is logged out" in client.post(active, {"active": "no"}, follow=True).content.decode()
    assert not User.objects.get(pk=bob.pk).is_active
    client.post(active, {"active": "yes"})
    assert User.objects.get(pk=bob.pk).is_active
    assert "http://testserver/login/" in client.post(link).content.decode() and LoginLink.objects.get().user == bob


def test_letting_a_person_in_again_ends_nothing(alice: User, bob: User, rita: User) -> None:
    token_create(user=bob, name="t", role="editor")
    login_link_create(user=bob)
    login_link_create(user=rita)
    person_set_active(user=bob, active=True, by=alice)
    assert ApiToken.objects.get().revoked_at is None and LoginLink.objects.count() == 2
    person_set_active(user=bob, active=False, by=alice)
    assert ApiToken.objects.get().ended_by == "deactivated"
    assert [link.user for link in LoginLink.objects.all()] == [rita]


def test_a_session_without_a_proof_is_asked_for_one(
    client_for: Clients, project: Project, alice: User, bob: User
) -> None:
    client = client_for(alice)
    session = client.session
    del session[CONFIRMED_AT]
    session.save()
    address = reverse("member-role", args=[project.slug, place_of(bob, project).pk])
    assert client.post(address, {"role": "owner"})["Location"].startswith("/confirm/")
    shown = client.get("/confirm/").content.decode()
    assert "Confirm that it is you, to add or remove a member, or change a role." in shown
    assert place_of(bob, project).role == "editor"


def test_tokens_of_machines_are_made_and_replaced_after_a_confirmation(
    client_for: Clients, project: Project, alice: User
) -> None:
    machine, token, _text = machine_create(
        project=project, name="robot", may="viewer", everywhere=False, days=7, by=alice
    )
    place = [project.slug, machine.pk]
    new, replace = (
        reverse("team-machine-token", args=place),
        reverse("team-machine-token-replace", args=[*place, token.pk]),
    )
    old = client_for(alice, old=True)
    for address in (new, replace, reverse("team-machines", args=[project.slug])):
        answer = old.post(address, {"days": "7", "name": "x", "may": "viewer", "everywhere": "no"})
        assert answer["Location"].startswith("/confirm/"), address
    assert ApiToken.objects.count() == 1
    client = client_for(alice)
    for _number in range(9):
        assert client.post(new, {"days": "7"}).status_code == 201
    assert "It has 10 tokens; revoke one first." in client.post(new, {"days": "7"}, follow=True).content.decode()
    assert client.post(replace).status_code == 201
    machine_end(machine=machine, by=alice, project=project)
    assert not Membership.objects.filter(user=machine.user).exists()


def test_a_person_sees_what_ended_their_own_tokens_the_newest_end_first(alice: User, bob: User) -> None:
    now = timezone.now()
    for name, user, days, by in (
        ("old", bob, 91, "owner"),
        ("a", bob, 89, "owner"),
        ("b", bob, 2, "password"),
        ("own", bob, 1, "revoked"),
        ("hers", alice, 1, "owner"),
    ):
        token, _text = token_create(user=user, name=name, role="viewer")
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=now - timedelta(days=days), ended_by=by)
    token_create(user=bob, name="valid", role="viewer")
    assert [token.name for token in tokens_ended(bob)] == ["b", "a"]


# --- How often an attempt may fail ------------------------------------------------------------------------------------
def test_a_person_who_works_there_waits_for_their_own_failures(alice: User) -> None:
    login_succeeded("alice", "10.0.0.1")
    for _try in range(10):
        assert login_wait_s("alice", "10.0.0.1") == 0
    assert 890 < login_wait_s("alice", "10.0.0.1") <= 900
    assert login_wait_s("alice", "10.0.0.2") == 0


def test_many_addresses_make_an_account_wait_longer_and_longer_up_to_half_a_minute(alice: User) -> None:
    login_succeeded("alice", "10.0.9.9")
    with time_machine.travel("2030-01-01 12:00", tick=False):
        LoginThrottle.objects.create(
            key=logins.Keys("alice", "").account,
            failures=19,
            last_at=timezone.now(),
            until=timezone.now() + timedelta(minutes=9),
        )
        waits = []
        for failures in (19, 20, 21, 24, 25, 40):
            LoginThrottle.objects.filter(key=logins.Keys("alice", "").account).update(failures=failures)
            waits.append(logins._wait_s(logins.Keys("Alice ", "10.0.0.3")))
        assert waits == [0, 1, 2, 16, 30, 30]


def test_a_window_that_is_over_counts_for_nothing(alice: User) -> None:
    over = {"last_at": timezone.now() - timedelta(hours=1), "until": timezone.now() - timedelta(seconds=1)}
    for key in (logins._hashed_key("guesses", "10.0.0.1"), logins.Keys("alice", "10.0.0.1").pair):
        LoginThrottle.objects.create(key=key, failures=999, **over)
    assert guess_wait_s("10.0.0.1") == 0 and login_wait_s("alice", "10.0.0.1") == 0
    assert LoginThrottle.objects.get(key=logins._hashed_key("guesses", "10.0.0.1")).failures == 1


def test_guesses_and_mails_are_counted_by_address_and_account(db: None) -> None:
    assert GUESSES_PER_ADDRESS == 30
    for _guess in range(30):
        assert guess_wait_s("10.0.0.1") == 0
    assert 890 < guess_wait_s("10.0.0.1") <= 900 and guess_wait_s("10.0.0.2") == 0
    assert [mail_allowed("alice", "10.0.0.1") for _mail in range(4)] == [True, True, True, False]
    assert not mail_allowed(" ALICE ", "10.0.0.2") and mail_allowed("bob", "10.0.0.2")


@pytest.mark.parametrize("length", [0, 1, 255, 256])
def test_a_subject_of_single_sign_on_has_a_length(length: int, db: None) -> None:
    claims = {"sub": "s" * length, "preferred_username": "eve"}
    if 1 <= length <= 255:
        assert person_of("https://id.example", claims).username == "eve"
        return
    with pytest.raises(SuspiciousOperation):
        person_of("https://id.example", claims)
    assert not User.objects.filter(username="eve").exists()


def test_a_name_without_any_word_is_a_person(db: None) -> None:
    assert person_of("https://id.example", {"sub": "1"}).username == "person"
    assert person_of("https://id.example", {"sub": "2", "preferred_username": "@!"}).username == "person-2"


def test_the_form_of_a_project_hides_the_only_team(client_for: Clients, project: Project, alice: User) -> None:
    client = client_for(alice)
    assert 'type="hidden" name="team"' in client.get(reverse("project-new")).content.decode()
    Membership.objects.create(team=Team.objects.create(name="Archers"), user=alice, role="owner")
    page = client.get(reverse("project-new")).content.decode()
    assert 'type="hidden" name="team"' not in page and "Archers" in page
    assert _login(Client(), "alice", "x") == 422


def test_the_token_that_is_named_is_revoked(client_for: Clients, bob: User) -> None:
    tokens = [token_create(user=bob, name=name, role="viewer")[0] for name in ("a", "b", "c")]
    said = client_for(bob).post(reverse("token-revoke", args=[tokens[1].pk]), follow=True).content.decode()
    assert "b is revoked; programs that use it are refused from now on." in said
    assert list(ApiToken.objects.filter(revoked_at=None).order_by("name").values_list("name", flat=True)) == ["a", "c"]


@pytest.mark.parametrize(("length", "good"), [(7, False), (8, True), (500, True), (501, False)])
def test_a_token_of_a_hub_has_a_least_and_a_largest_length(length: int, good: bool, project: Project) -> None:
    if good:
        hub_token_set(project=project, token=f" {'t' * length} ")
        assert hub_token_since(project) is not None
        return
    with pytest.raises(ValidationError, match="That is no token"):
        hub_token_set(project=project, token="t" * length)
