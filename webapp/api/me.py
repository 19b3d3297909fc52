"""Who calls, over the API."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from webapp.api.answers import people as people_answers
from webapp.api.base import caller, open_to
from webapp.people.teams.access import token_of
from webapp.people.teams.models import ApiToken, TokenScope

router = Router(tags=["me"])


@router.get("/me", response=people_answers.Me, auth=open_to(TokenScope.METRICS, TokenScope.INGEST))
def me(request: HttpRequest) -> dict[str, Any]:
    """Who you are, and the rights of your token (`null` in a browser)."""
    user = caller(request)
    token = token_of(user)
    return {"username": user.username, "token": None if token is None else token_out(token)}


def token_out(token: ApiToken) -> dict[str, Any]:
    """The rights of a token."""
    return {
        "name": token.name,
        "role": token.role,
        "scope": token.scope or None,
        "project": token.project.slug if token.project else None,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
    }


def token_line(token: ApiToken) -> dict[str, Any]:
    """A token as lists show it, without its text."""
    return token_out(token) | {
        "id": str(token.pk),
        "hint": token.hint,
        "created_at": token.created_at.isoformat(),
        "used_at": token.used_at.isoformat() if token.used_at else None,
        "used_from": token.used_from,
    }
