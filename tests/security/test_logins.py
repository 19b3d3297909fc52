"""Fifty failures from one address refused the right password too, counts died with the web process, no one could
reset a forgotten password or keep a person out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tests.logins import aged
from tests.webapp.people.teams.test_login import CHEAP, PASSWORD
from webapp.people.teams import logins
from webapp.people.teams.models import AuditEntry, LoginThrottle, Membership, Project, User

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]
OFFICE, HOME, EVIL = "192.0.2.7", "198.51.100.3", "203.0.113."


@pytest.fixture(autouse=True)
def _cheap(settings: Any) -> None:
    settings.PASSWORD_HASHERS = CHEAP


def login(name: str, password: str, address: str) -> int:
    data = {"username": name, "password": password}
    return Client().post("/login/", data, REMOTE_ADDR=address).status_code


def test_failures_behind_one_address_refuse_no_other_password(alice: User, bob: User) -> None:
    """A team behind one proxy or router was locked out by fifty failures of anybody in it."""
    for number in range(60):
        assert login(f"guess{number}", "x", OFFICE) == 422
    for _ in range(logins.PAIR_LIMIT):
        assert login("bob", "x", OFFICE) == 422
    assert login("bob", PASSWORD, OFFICE) == 429
    assert login("alice", PASSWORD, OFFICE) == 302


def test_counts_survive_a_restart(alice: User) -> None:
    for _ in range(logins.PAIR_LIMIT):
        login("alice", "x", OFFICE)
    cache.clear()  # all that a web process keeps
    assert login("alice", PASSWORD, OFFICE) == 429
    names = "".join(LoginThrottle.objects.values_list("key", flat=True))
    assert "alice" not in names and OFFICE not in names


def test_many_addresses_slow_an_account_down_and_never_lock_it(alice: User) -> None:
    assert login("alice", PASSWORD, OFFICE) == 302
    with time_machine.travel(time.time(), tick=False):  # however slow the machine is, no try falls after its wait
        tries = [login("alice", "x", f"{EVIL}{number}") for number in range(logins.ACCOUNT_FREE + 30)]
        assert tries == [422] * logins.ACCOUNT_FREE + [429] * 30
        assert login("alice", PASSWORD, OFFICE) == 302  # where she works she is not made to wait
        assert login("alice", PASSWORD, HOME) == 429
    with time_machine.travel(time.time() + logins.ACCOUNT_WAIT_MAX_S + 1):
        assert login("alice", PASSWORD, HOME) == 302


def test_the_page_says_how_long_to_wait(alice: User) -> None:
    for _ in range(logins.PAIR_LIMIT):
        login("alice", "x", OFFICE)
    answer = Client().post("/login/", {"username": "alice", "password": "x"}, REMOTE_ADDR=OFFICE)
    assert re.search(r"Try again in 1[45] min", answer.content.decode())
    assert LoginThrottle.objects.order_by("-failures")[0].failures == logins.PAIR_LIMIT  # a refused try is not counted


def test_an_address_that_tries_everything_meets_a_ceiling(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "ADDRESS_LIMIT", 15)
    assert login("alice", PASSWORD, OFFICE) == 302
    tries = [login(f"guess{number}", "x", OFFICE) for number in range(20)]
    assert tries == [422] * 15 + [429] * 5
    assert login("alice", PASSWORD, OFFICE) == 302


# --- Links ---------------------------------------------------------------------------------------------------------
def member_url(name: str, project: Project, user: User) -> str:
    return reverse(name, args=[project.slug, Membership.objects.get(team=project.team, user=user).pk])


def test_an_owner_gives_a_member_who_forgot_the_password_a_link(
    client_for: Clients, project: Project, alice: User, bob: User
) -> None:
    assert login("bob", PASSWORD, HOME) == 302
    answer = client_for(alice).post(member_url("member-link", project, bob))
    token = re.search(r"/login/([\w-]{20,})/", answer.content.decode())
    assert answer.status_code == 200 and token is not None
    browser, new = Client(), "another horse battery staple"
    assert browser.post(f"/login/{token[1]}/").status_code == 302
    answer = browser.post("/password/", {"new_password1": new, "new_password2": new})
    assert answer.status_code == 302 and login("bob", new, HOME) == 302 and login("bob", PASSWORD, HOME) == 422
    assert Client().post(f"/login/{token[1]}/").status_code == 410  # it worked once
    rows = set(AuditEntry.objects.values_list("username", "action", "subject"))
    assert rows >= {("alice", "link_made", "bob"), ("bob", "link_used", "bob"), ("bob", "password_set", "bob")}


def test_a_link_by_mail_where_a_mail_server_is_set(alice: User, bob: User, settings: Any) -> None:
    assert b'name="username"' not in Client().get("/password/forgotten/").content  # none is set
    settings.EMAIL_HOST, settings.EMAIL_BACKEND = "mail.example", "django.core.mail.backends.locmem.EmailBackend"
    settings.TRUSTED_ORIGINS = ["https://tiltyard.example"]
    User.objects.filter(pk=alice.pk).update(email="")
    answers = [Client().post("/password/forgotten/", {"username": name}) for name in ("bob", "alice", "nobody")]
    assert {answer.status_code for answer in answers} == {200}
    pages = {re.sub(r'value="[^"]{20,}"|"X-CSRFToken": "[^"]+"', "", answer.content.decode()) for answer in answers}
    assert len(pages) == 1  # the page does not show who has an account
    deadline = time.monotonic() + 5
    while not mail.outbox and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [message.to for message in mail.outbox] == [["bob@example.org"]]
    link = re.search(r"https://tiltyard\.example(/login/\S+)", mail.outbox[0].body)
    assert link is not None and Client().post(link[1]).status_code == 302
    for _ in range(5):
        Client().post("/password/forgotten/", {"username": "bob"})
    time.sleep(0.1)
    assert len(mail.outbox) <= logins.MAIL_PER_ACCOUNT
    assert set(audited("link_mailed")) == {("bob", "bob")}  # asked for without a login: the account is named


def test_administrators_get_no_link_by_mail(settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"
    User.objects.create_superuser("ada", "ada@example.org", PASSWORD)
    Client().post("/password/forgotten/", {"username": "ada"})
    assert not AuditEntry.objects.filter(action="link_mailed").exists()


def test_a_mail_address_is_changed_only_by_who_has_just_proved_who_they_are(
    client_for: Clients, bob: User, settings: Any
) -> None:
    settings.EMAIL_HOST = "mail.example"
    client = client_for(bob, old=True)
    answer = client.post("/password/mail/", {"email": "evil@example.org"})
    assert answer.headers["Location"].startswith("/confirm/")
    assert client.post("/confirm/", {"password": PASSWORD}).status_code == 302
    saved = client.post("/password/mail/", {"email": "new@example.org"}, follow=True)
    assert saved.redirect_chain == [(reverse("set-password"), 302)]
    assert "Your mail address is saved." in saved.content.decode(), "the next page said it, if one was opened"
    wrong = client.post("/password/mail/", {"email": "x"}, follow=True)
    assert "That is not a mail address." in wrong.content.decode()
    bob.refresh_from_db()
    assert bob.email == "new@example.org"
    assert audited("mail_set") == [("bob", "bob")]


# --- Keeping people out --------------------------------------------------------------------------------------------
def test_a_deactivated_person_is_out_at_once_and_for_good(
    client_for: Clients, project: Project, alice: User, bob: User
) -> None:
    browser = Client()
    assert browser.post("/login/", {"username": "bob", "password": PASSWORD}).status_code == 302
    assert browser.get(f"/p/{project.slug}/").status_code == 200
    owner, url = client_for(alice), member_url("member-active", project, bob)
    assert owner.post(url, {"active": "no"}).status_code == 302
    assert browser.get(f"/p/{project.slug}/").status_code == 302 and login("bob", PASSWORD, HOME) == 422
    assert not any(bob.pk.hex in str(row.get_decoded()) or str(bob.pk) in str(row.get_decoded()) for row in sessions())
    assert owner.post(member_url("member-link", project, bob)).status_code == 403
    assert owner.post(url, {"active": "yes"}).status_code == 302
    assert browser.get(f"/p/{project.slug}/").status_code == 302  # the old session does not wake
    assert login("bob", PASSWORD, HOME) == 302
    acts = AuditEntry.objects.filter(subject="bob").values_list("action", flat=True)
    assert set(acts) >= {"deactivated", "reactivated"}


def audited(action: str) -> list[tuple[str, str]]:
    """Who did this to whom, as the audit has it."""
    return list(AuditEntry.objects.filter(action=action).values_list("username", "subject"))


def sessions() -> list[Session]:
    return list(Session.objects.all())


def test_an_owner_keeps_out_only_who_is_in_their_teams_alone(
    client_for: Clients, project: Project, alice: User, charlie: User, bob: User
) -> None:
    Membership.objects.create(team=project.team, user=charlie, role="viewer")  # charlie owns another team
    owner = client_for(alice)
    assert owner.post(member_url("member-active", project, charlie), {"active": "no"}).status_code == 403
    assert owner.post(member_url("member-active", project, alice), {"active": "no"}).status_code == 403
    User.objects.filter(pk=bob.pk).update(is_superuser=True)
    assert owner.post(member_url("member-active", project, bob), {"active": "no"}).status_code == 403
    assert not User.objects.filter(is_active=False).exists()


def test_an_administrator_manages_all_people_but_administrators(client_for: Clients, charlie: User) -> None:
    ada = User.objects.create_superuser("ada", "", PASSWORD)
    eve = User.objects.create_superuser("eve", "", PASSWORD)
    client = client_for(ada)
    assert client.post(reverse("person-active", args=[charlie.pk]), {"active": "no"}).status_code == 302
    charlie.refresh_from_db()
    assert not charlie.is_active
    client.post(reverse("person-active", args=[charlie.pk]), {"active": "yes"})
    aged(client)
    answer = client.post(reverse("person-link", args=[charlie.pk]))
    assert answer.status_code == 302 and answer.headers["Location"].startswith("/confirm/")
    client.post("/confirm/", {"password": PASSWORD})
    assert b"/login/" in client.post(reverse("person-link", args=[charlie.pk])).content
    for action in ("deactivated", "reactivated", "link_made"):
        assert audited(action) == [("ada", "charlie")], action
    for other in (eve, ada):
        assert client.post(reverse("person-active", args=[other.pk]), {"active": "no"}).status_code == 403
    assert client.post(reverse("person-link", args=["00000000-0000-4000-8000-000000000000"])).status_code == 404
