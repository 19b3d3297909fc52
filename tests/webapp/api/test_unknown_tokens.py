"""Sixty wrong tokens in a row were answered like the first one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from webapp.api.urls import api
from webapp.people.teams import logins
from webapp.people.teams.models import ApiToken, Project, User
from webapp.people.teams.tokens import token_create, token_revoke

pytestmark = pytest.mark.django_db


def ask(text: str, address: str = "192.0.2.7", path: str = "/api/v1/me") -> tuple[int, str, int]:
    answer = Client(REMOTE_ADDR=address).get(path, headers={"Authorization": f"Bearer {text}"})
    code = "" if answer.status_code == 200 else answer.json()["code"]
    return answer.status_code, code, int(answer.get("Retry-After", 0))


@pytest.mark.parametrize("path", ["/api/v1/me", "/api/v1/no-such-address"])
def test_unknown_tokens_wait_and_real_ones_do_not(
    path: str, project: Project, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "TOKENS_PER_ADDRESS", 3)
    text = token_create(user=bob, name="t", role="viewer")[1]
    assert [ask(f"tiltyard_wrong{n}", path=path)[:2] for n in range(3)] == [(401, "login_required")] * 3
    status, code, wait_s = ask("tiltyard_wrong3", path=path)
    assert (status, code) == (429, "rate_limited") and 0 < wait_s <= logins.WINDOW_S
    assert ask(text)[0] == 200, "a token that exists works from wherever"
    assert ask("tiltyard_wrong4", "192.0.2.8", path)[0] == 401, "another address has counts of its own"


def test_who_shows_no_token_is_not_counted(monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    monkeypatch.setattr(logins, "TOKENS_PER_ADDRESS", 1)
    assert [Client().get("/api/v1/me").status_code for _ in range(4)] == [401] * 4


@pytest.mark.parametrize("ends", ["revoked", "expired"])
def test_a_token_that_was_there_is_no_guess(
    ends: str, monkeypatch: pytest.MonkeyPatch, project: Project, bob: User
) -> None:
    """Its script keeps asking, and shall hear what happened however often."""
    monkeypatch.setattr(logins, "TOKENS_PER_ADDRESS", 1)
    made, text = token_create(user=bob, name="t", role="viewer", days=1)
    if ends == "revoked":
        token_revoke(made, by=bob)
    else:
        ApiToken.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(days=1))
    assert [ask(text)[0] for _ in range(3)] == [401] * 3


def test_every_operation_names_429() -> None:
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    found = [operation for methods in paths.values() for operation in methods.values()]
    assert len(found) > 100 and not [
        operation["operationId"] for operation in found if 429 not in operation["responses"]
    ]
