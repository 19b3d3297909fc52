"""One-time login links."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from webapp.teams.login_links import login_link_create, login_link_use, token_hash
from webapp.teams.models import LoginLink, User


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


def test_the_command_prints_a_link(alice: User) -> None:
    output = StringIO()
    call_command("login_link", "alice", stdout=output)
    token = output.getvalue().strip().rstrip("/").rsplit("/", 1)[1]
    assert login_link_use(token) == alice
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("login_link", "nobody")
