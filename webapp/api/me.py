"""The caller, over the API."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from webapp.api.answers import people as people_answers
from webapp.api.base import caller, open_to
from webapp.people.teams.access import token_of
from webapp.people.teams.models import TokenScope

router = Router(tags=["me"])


@router.get("/me", response=people_answers.Me, auth=open_to(TokenScope.METRICS, TokenScope.INGEST))
def me(request: HttpRequest) -> dict[str, Any]:
    """Who you are, and the rights of your token (`null` in a browser)."""
    user = caller(request)
    return {"username": user.username, "token": token_of(user)}
