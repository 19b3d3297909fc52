"""Pages and answers of a person stayed in the disk cache and behind the back button of a shared browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.security.routes import TABLE, Who
from tests.security.test_authorisation_matrix import ROUTES, _address, cast, objects  # noqa: F401 - fixtures
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create

PRIVATE = {"private, no-store", "max-age=0, no-cache, no-store, must-revalidate, private"}


def test_no_cache_keeps_what_a_person_was_shown(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    kept, downloads = [], set()
    for route in (found for found in ROUTES if TABLE[found].get("GET") not in (None, Who.ANYONE, Who.ABSENT)):
        answer = cast["alice"].get(_address(route, objects))
        if answer.get("Content-Disposition", "").startswith("attachment"):
            downloads.add(answer["Cache-Control"])
        elif answer["Cache-Control"] not in PRIVATE:
            kept.append((route, answer["Cache-Control"]))
    assert kept == [] and downloads == {"private"}


@pytest.mark.parametrize("address", ["/api/v1/me", "/api/v1/runs/not-there", "/api/v1/projects/joust/runs"])
def test_answers_to_a_token_are_kept_nowhere(
    address: str, project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    text = token_create(user=bob, name="t", role="viewer")[1]
    answer = client_for(None).get(address, headers={"Authorization": f"Bearer {text}"})
    assert answer["Cache-Control"] == "private, no-store"


def test_public_answers_may_be_cached(client_for: Callable[..., Client]) -> None:
    assert client_for(None).get("/api/v1/openapi.json")["Cache-Control"] == "public, max-age=300"
    assert "no-store" not in client_for(None).get("/static/css/tokens.css").get("Cache-Control", "")


def test_a_refused_page_is_kept_nowhere(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:  # noqa: F811
    answer = cast["charlie"].get(f"/p/{objects['slug']}/")
    assert (answer.status_code, answer["Cache-Control"]) == (404, "private, no-store")
