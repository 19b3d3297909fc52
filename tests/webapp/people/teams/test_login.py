"""Logging in by password and by link, setting a password, language and theme."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.people.teams.logins import PAIR_LIMIT, login_link_create
from webapp.people.teams.models import LoginLink, User

Clients = Callable[..., Client]
PASSWORD = "correct horse battery staple"
pytestmark = pytest.mark.django_db
# The real one, slow on purpose, still reads the hashes of the cast.
HASHERS = "django.contrib.auth.hashers."
CHEAP = [HASHERS + "MD5PasswordHasher", HASHERS + "PBKDF2PasswordHasher"]


@pytest.fixture(autouse=True)
def _cheap_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = CHEAP


def _login(client: Client, name: str, password: str, **headers: str) -> int:
    return client.post("/login/", {"username": name, "password": password}, **headers).status_code  # type: ignore[arg-type]


def test_a_password_logs_in_and_every_failure_reads_the_same(alice: User) -> None:
    client = Client()
    assert client.get("/login/").status_code == 200
    wrong = client.post("/login/", {"username": "alice", "password": "x"})
    unknown = client.post("/login/", {"username": "nobody", "password": "x"})
    assert wrong.status_code == unknown.status_code == 422
    assert wrong.context["form"].non_field_errors() == unknown.context["form"].non_field_errors()
    assert _login(client, "alice", PASSWORD) == 302


def test_ten_failures_close_the_door_for_that_address_only(alice: User) -> None:
    client = Client()
    for _try in range(PAIR_LIMIT):
        assert _login(client, "alice", "x") == 422
    waits = client.post("/login/", {"username": "alice", "password": PASSWORD})
    assert waits.status_code == 429 and 14 * 60 < int(waits["Retry-After"]) <= 15 * 60
    assert "Retry-After" not in client.post("/login/", {"username": "bob", "password": "x"}).headers
    assert _login(client, "ALICE", PASSWORD) == 429
    assert _login(client, "alice", PASSWORD, REMOTE_ADDR="10.0.0.9") == 302


def test_a_success_forgets_earlier_failures(alice: User) -> None:
    client = Client()
    for _round in range(3):
        for _try in range(PAIR_LIMIT - 1):
            assert _login(client, "alice", "x") == 422
        assert _login(client, "alice", PASSWORD) == 302
        client.logout()


def test_next_must_be_ours(alice: User) -> None:
    answer = Client().post("/login/", {"username": "alice", "password": PASSWORD, "next": "https://evil.example/"})
    assert answer.headers["Location"] == "/"


def test_looking_at_a_link_does_not_use_it_up(alice: User) -> None:
    token = login_link_create(user=alice)
    for _preview in range(3):
        assert Client().get(f"/login/{token}/").status_code == 200
    client = Client(enforce_csrf_checks=True)
    assert client.post(f"/login/{token}/").status_code == 403
    assert Client().post(f"/login/{token}/").status_code == 302
    assert Client().get(f"/login/{token}/").status_code == 410
    assert Client().post(f"/login/{token}/").status_code == 410


@pytest.mark.parametrize("spoil", ["old", "blocked", "unknown"])
def test_a_link_that_must_not_work_does_not(spoil: str, alice: User) -> None:
    token = login_link_create(user=alice)
    if spoil == "old":
        LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif spoil == "blocked":
        User.objects.filter(pk=alice.pk).update(is_active=False)
    else:
        token = "x" * 43
    assert Client().get(f"/login/{token}/").status_code == 410
    assert Client().post(f"/login/{token}/").status_code == 410


def test_who_comes_by_link_sets_a_password_without_the_old_one(alice: User) -> None:
    client = Client()
    client.post(f"/login/{login_link_create(user=alice)}/")
    new = {"new_password1": "a much better phrase 7", "new_password2": "a much better phrase 7"}
    assert client.post(reverse("set-password"), {**new, "new_password2": "other"}).status_code == 422
    assert client.post(reverse("set-password"), new).status_code == 302
    assert client.get("/?all=1").status_code == 200  # still logged in
    assert client.post(reverse("set-password"), new).status_code == 422  # from now on the old one is asked for
    assert _login(Client(), "alice", "a much better phrase 7") == 302


def test_what_a_password_must_be_is_shown_in_sentences(bob: User) -> None:
    """As a list it had an empty item: one validator asks nothing, and learns what was set."""
    client = Client()
    client.force_login(bob)
    page = client.get(reverse("set-password")).content.decode()
    help_text = page.split('id="id_new_password1_helptext">')[1].split("</p>")[0]
    assert "Your password must contain at least 8 characters. " in help_text and "<" not in help_text


def test_the_password_page_needs_a_login() -> None:
    assert Client().get(reverse("set-password")).status_code == 302
    assert Client().delete(reverse("set-password")).status_code in {302, 405}


def test_the_theme_is_a_cookie_and_goes_back_only_to_us() -> None:
    client = Client()
    answer = client.post(reverse("set-theme"), {"theme": "dark", "next": "/login/?next=/"})
    assert answer.cookies["tiltyard-theme"].value == "dark"
    assert answer.headers["Location"] == "/login/?next=/"
    assert 'data-theme="dark"' in client.get("/login/").content.decode()
    assert client.post(reverse("set-theme"), {"theme": "dark", "next": "//evil.example"}).headers["Location"] == "/"
    assert "tiltyard-theme" not in client.post(reverse("set-theme"), {"theme": "pink"}).cookies
    assert client.get(reverse("set-theme")).status_code == 405


def test_the_density_is_a_cookie_of_its_own() -> None:
    client = Client()
    assert 'data-density="comfortable"' in client.get("/login/").content.decode()
    answer = client.post(reverse("set-theme"), {"density": "compact", "next": "/login/"})
    assert list(answer.cookies) == ["tiltyard-density"] and answer.cookies["tiltyard-density"].value == "compact"
    assert 'data-density="compact"' in client.get("/login/").content.decode()
    assert not client.post(reverse("set-theme"), {"density": "tiny"}).cookies
    client.cookies["tiltyard-density"] = "tiny"
    assert 'data-density="comfortable"' in client.get("/login/").content.decode()


def test_the_interface_speaks_chinese() -> None:
    client = Client()
    client.post(reverse("set-language"), {"language": "zh-hans", "next": "/login/"})
    page = client.get("/login/").content.decode()
    assert 'lang="zh-hans"' in page and "登录" in page


def test_error_pages_are_ours(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    page = client.get("/p/nowhere/")
    assert page.status_code == 404 and "There is nothing here" in page.content.decode()
