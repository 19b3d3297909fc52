"""Dangerous acts ask again who is there: a password, or a fresh one-time link, within the last fifteen minutes.

A session that was stolen or left open can do what its person does every day, but not these acts.
"""

from __future__ import annotations

import time
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from webapp.pages import own_address

CONFIRMED_AT, WINDOW_S = "confirmed_at", 15 * 60


def confirm(request: HttpRequest) -> None:
    """The person has just proved who they are."""
    request.session[CONFIRMED_AT] = time.time()


def confirmed(request: HttpRequest) -> bool:
    """Whether they did so within the last fifteen minutes."""
    at = request.session.get(CONFIRMED_AT)
    return isinstance(at, (int, float)) and 0 <= time.time() - at < WINDOW_S


def to_confirmation(request: HttpRequest, back: str = "") -> HttpResponse:
    """To the page that asks, and from there back."""
    return redirect(f"{reverse('confirm')}?{urlencode({'next': back or request.get_full_path()})}")


def way_back(request: HttpRequest) -> str:
    """Where a confirmation leads: only to ourselves."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    return own_address(request, target, reverse("home"))
