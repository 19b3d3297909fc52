"""The administrator's switch, the confirmation before it, and the audit that no one can change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse

from tests.logins import aged
from tests.webapp.people.teams.test_login import CHEAP
from webapp.people.teams.logins import PAIR_LIMIT, login_link_create
from webapp.people.teams.models import AuditEntry, SiteSwitch, User
from webapp.people.teams.services import custom_rewards_on

PASSWORD = "correct horse battery staple"
SITE, SWITCH, CONFIRM = "/site/", "/site/custom-rewards/", "/confirm/"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh(settings: Any) -> None:
    settings.CUSTOM_REWARDS = True
    settings.PASSWORD_HASHERS = CHEAP


@pytest.fixture
def admin(db: None) -> User:
    return User.objects.create_superuser("ada", "ada@example.org", PASSWORD)


def _on(client: Client) -> Any:
    return client.post(SWITCH, {"on": "yes"})


def test_only_administrators_see_and_switch(
    client_for: Callable[..., Client], admin: User, alice: User, bob: User, rita: User, charlie: User
) -> None:
    for person in (alice, bob, rita, charlie):
        client = client_for(person)
        assert client.get(SITE).status_code == _on(client).status_code == 403
        assert "/site/" not in client.get("/?all=1").content.decode()
    assert client_for(None).get(SITE).status_code == _on(client_for(None)).status_code == 302
    page = client_for(admin).get(SITE)
    assert page.status_code == 200 and "This enables code execution" in page.content.decode()
    assert client_for(admin).post(SITE).status_code == client_for(admin).get(SWITCH).status_code == 405
    assert not SiteSwitch.objects.exists() and not custom_rewards_on()


def test_on_needs_the_password_again_and_leaves_a_row(client_for: Callable[..., Client], admin: User) -> None:
    client = client_for(admin, old=True)
    asked = _on(client)
    assert asked.headers["Location"] == "/confirm/?next=%2Fsite%2F" and not custom_rewards_on()
    assert client.post(CONFIRM, {"password": "x", "next": SITE}).status_code == 422
    assert client.post(CONFIRM, {"password": PASSWORD, "next": SITE}).headers["Location"] == SITE
    agent = {"user-agent": "Browser\x00 7"}
    assert client.post(SWITCH, {"on": "yes"}, REMOTE_ADDR="10.1.2.3", headers=agent).headers["Location"] == SITE
    assert custom_rewards_on()
    aged(client)  # off is done at once
    assert "Custom rewards are off." in client.post(SWITCH, {"on": "no"}, follow=True).content.decode()
    assert not custom_rewards_on()
    rows = [(row.username, row.user_id, row.action) for row in AuditEntry.objects.order_by("id")]
    assert rows == [("ada", admin.pk, action) for action in ("confirm_failed", "custom_on", "custom_off")]
    row = AuditEntry.objects.get(action="custom_on")
    assert (row.address, row.agent) == ("10.1.2.3", "Browser\u2400 7")
    page = client.get(SITE).content.decode()
    assert "custom rewards switched on" in page and "10.1.2.3" in page


def test_a_confirmation_lasts_fifteen_minutes_and_leads_only_home(
    client_for: Callable[..., Client], admin: User
) -> None:
    client = client_for(admin)
    with time_machine.travel("2030-01-01 12:00", tick=False) as clock:
        client.force_login(admin)
        assert client.post(CONFIRM, {"password": PASSWORD, "next": "//evil.example"}).headers["Location"] == "/"
        clock.shift(14 * 60)
        assert _on(client).headers["Location"] == SITE
        client.post(SWITCH, {"on": "no"})
        clock.shift(61)
        assert "/confirm/" in _on(client).headers["Location"]
        clock.shift(-3600)  # a clock that was set back confirms nothing
        assert "/confirm/" in _on(client).headers["Location"]
    assert not custom_rewards_on()


def test_wrong_passwords_wait(client_for: Callable[..., Client], admin: User) -> None:
    client = client_for(admin)
    for _try in range(PAIR_LIMIT):
        assert client.post(CONFIRM, {"password": "x"}).status_code == 422
    waits = client.post(CONFIRM, {"password": PASSWORD})
    assert waits.status_code == 429 and 14 * 60 < int(waits["Retry-After"]) <= 15 * 60
    assert AuditEntry.objects.filter(action="confirm_failed").count() == PAIR_LIMIT


def test_without_a_password_a_fresh_link_confirms(client_for: Callable[..., Client], admin: User) -> None:
    admin.set_unusable_password()
    admin.save(update_fields=["password"])
    stale = client_for(admin, old=True)
    page = stale.get(CONFIRM).content.decode()
    assert "login_link ada" in page and 'type="password"' not in page
    assert stale.post(CONFIRM, {"password": ""}).status_code == 422
    # An old session of an administrator cannot become a password, and with it a confirmation.
    new = {"new_password1": "a much better phrase 7", "new_password2": "a much better phrase 7"}
    assert stale.post(reverse("set-password"), new).headers["Location"].startswith("/confirm/")
    fresh = Client()
    fresh.post(f"/login/{login_link_create(user=admin)}/")
    assert _on(fresh).headers["Location"] == SITE and custom_rewards_on()
    assert fresh.post(reverse("set-password"), new).status_code == 302


def test_without_the_operator_there_is_no_switch(client_for: Callable[..., Client], admin: User, settings: Any) -> None:
    settings.CUSTOM_REWARDS = False
    client = client_for(admin)
    client.post(CONFIRM, {"password": PASSWORD})
    page = client.post(SWITCH, {"on": "yes"}, follow=True).content.decode()
    assert "has not allowed custom rewards" in page and "TILTYARD_CUSTOM_REWARDS" in page
    assert not SiteSwitch.objects.exists()
    SiteSwitch.objects.create(name="custom_rewards", on=True)
    assert not custom_rewards_on()


def test_the_database_refuses_to_change_the_audit(admin: User) -> None:
    row = AuditEntry.objects.create(user_id=admin.pk, username="ada", action="custom_on")
    for act in (lambda: AuditEntry.objects.update(username="bob"), lambda: row.delete(), lambda: row.save()):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            act()
    admin.delete()
    assert AuditEntry.objects.get().username == "ada"
