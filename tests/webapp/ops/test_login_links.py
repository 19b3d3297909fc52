"""One-time login links."""

from __future__ import annotations

import fcntl
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from webapp.ops.console import LOCK_NAME, running_address
from webapp.people.teams.logins import login_link_create, login_link_use, token_hash
from webapp.people.teams.models import LoginLink, User


def test_a_link_works_once(alice: User) -> None:
    token = login_link_create(user=alice)
    assert login_link_use(token) == alice
    assert login_link_use(token) is None


def test_only_the_hash_is_stored(alice: User) -> None:
    token = login_link_create(user=alice)
    assert len(token) >= 43  # 256 bits
    stored = LoginLink.objects.values_list("token_hash", flat=True)
    assert list(stored) == [token_hash(token)]
    assert token not in stored[0]


def test_a_link_expires(alice: User) -> None:
    token = login_link_create(user=alice)
    link = LoginLink.objects.filter(token_hash=token_hash(token))
    assert timedelta(hours=23) < link[0].expires_at - timezone.now() <= timedelta(hours=24)
    link.update(expires_at=timezone.now())
    assert login_link_use(token) is None


def test_a_link_of_someone_who_left_does_not_work(alice: User) -> None:
    token = login_link_create(user=alice)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert login_link_use(token) is None


@pytest.mark.parametrize("token", ["", "x", "ä" * 5000, "\x00"])
def test_an_unknown_token_does_not_work(db: None, token: str) -> None:
    assert login_link_use(token) is None


@pytest.mark.parametrize(
    ("written", "origins", "printed"),
    [
        ("http://127.0.0.1:8960 (process 5)", "", "http://127.0.0.1:8960/"),
        ("http://[::1]:8961 (进程 5)", "", "http://[::1]:8961/"),
        ("", "", "http://127.0.0.1:8000/"),
        ("http://127.0.0.1:8960 (process 5)", "https://site.example", "https://site.example/"),
    ],
)
def test_the_link_is_that_of_the_site_that_runs(
    alice: User,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    written: str,
    origins: str,
    printed: str,
) -> None:
    """It once named port 8000, whatever port `up` got."""
    settings.DATA_DIR, settings.TRUSTED_ORIGINS = tmp_path, [origins or "http://127.0.0.1:8000"]
    monkeypatch.setenv("TILTYARD_ORIGINS", origins)
    (tmp_path / LOCK_NAME).write_text(written, encoding="utf-8")
    output = StringIO()
    with open(tmp_path / LOCK_NAME, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        call_command("login_link", "alice", stdout=output)
    assert output.getvalue().startswith(f"{printed}login/")
    if written and not origins:  # its lock is free now: it has ended, and its address is free
        assert running_address(tmp_path) is None


def test_the_command_prints_a_link(alice: User) -> None:
    output = StringIO()
    call_command("login_link", "alice", stdout=output)
    token = output.getvalue().strip().rstrip("/").rsplit("/", 1)[1]
    assert login_link_use(token) == alice
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("login_link", "nobody")
