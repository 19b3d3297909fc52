"""Dangerous acts need a confirmation: a password, or a fresh one-time link, within the last fifteen minutes.

A session that was stolen or left open can do what its person does every day, but none of the acts of ``Act``, which is
the whole list. Views and operations call ``ask`` once they know that the person may; a person who has to
confirm first is sent to the page that asks, and comes back to the act. A token is its own proof: it was made after a
confirmation, and its scope says what it may do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.db import models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webapp.common.errors import error_body
from webapp.common.pages import own_address
from webapp.people.teams.access import token_of

CONFIRMED_AT, WINDOW_S = "confirmed_at", 15 * 60
WAITING, MAX_KEPT_CHARS = "confirm_for", 4_000


class Act(models.TextChoices):
    """The acts that need a confirmation. SECURITY.md has the same list."""

    TOKEN = "token", gettext_lazy("make an API token")
    MACHINE = "machine", gettext_lazy("make a machine account")
    MAIL = "mail", gettext_lazy("change where login links are mailed")
    FIRST_PASSWORD = "first_password", gettext_lazy("set an administrator's first password")
    CUSTOM_REWARDS = "custom_rewards", gettext_lazy("switch custom rewards on")
    MEMBER = "member", gettext_lazy("add or remove a member, or change a role")
    LOGIN_LINK = "login_link", gettext_lazy("make a login link for another person")
    ACTIVE = "active", gettext_lazy("deactivate a person, or let them in again")
    DELETE_PERSON = "delete_person", gettext_lazy("delete a person")
    HUB_TOKEN = "hub_token", gettext_lazy("set a project's Hugging Face token")
    ENDPOINT_KEY = "endpoint_key", gettext_lazy("set or remove an endpoint's key")
    CHANNEL = "channel", gettext_lazy("set a channel's address or secret")
    SHARE = "share", gettext_lazy("share a comparison by a link")
    PUSH = "push", gettext_lazy("push a model's weights to a hub")
    RETENTION = "retention", gettext_lazy("set rules that remove what old runs left")
    DELETE_TEAM = "delete_team", gettext_lazy("delete a team")
    DELETE_PROJECT = "delete_project", gettext_lazy("delete a project")
    DELETE_RUN = "delete_run", gettext_lazy("delete a run")
    DELETE_CHECKPOINT = "delete_checkpoint", gettext_lazy("delete a checkpoint")
    DELETE_DATASET = "delete_dataset", gettext_lazy("delete a dataset")
    DELETE_MODEL = "delete_model", gettext_lazy("delete a model")


NOT_KEPT = {Act.FIRST_PASSWORD, Act.HUB_TOKEN, Act.ENDPOINT_KEY, Act.CHANNEL, Act.CUSTOM_REWARDS}
"""Acts that a person must repeat after the confirmation: forms that hold secrets, which are kept nowhere meanwhile, and
the switch, whose page says what it lets people do."""


class ConfirmFirst(Exception):
    """The person has to confirm first; ``back`` is the page from which the act is done."""

    def __init__(self, act: Act, back: str) -> None:
        super().__init__(act.value)
        self.act, self.back = act, back

    @property
    def sentence(self) -> str:
        """Why nothing was done, and what to do."""
        return _("Confirm that it is you, to %(act)s.") % {"act": self.act.label}


def logged_in(request: HttpRequest | None = None, **_signal: Any) -> None:
    """Note the proof: a person who has just logged in, by a password or by a link, has proved who they are."""
    if request is not None:
        confirm(request)


def confirm(request: HttpRequest) -> None:
    """The person has just proved who they are."""
    request.session[CONFIRMED_AT] = time.time()


def unconfirm(request: HttpRequest) -> None:
    """The person has logged in without proving who they are: another site did so for them, some time ago."""
    request.session.pop(CONFIRMED_AT, None)


def confirmed(request: HttpRequest) -> bool:
    """Whether they did so within the last fifteen minutes."""
    at = request.session.get(CONFIRMED_AT)
    return isinstance(at, (int, float)) and 0 <= time.time() - at < WINDOW_S


def ask(request: HttpRequest, act: Act, back: str = "") -> None:
    """Return if the person has just proved who they are, or uses a token; else raise ``ConfirmFirst``.

    ``back`` is the page with the form of the act, where that is not the address itself.
    """
    if token_of(request.user) is None and not confirmed(request):
        raise ConfirmFirst(act, back or request.path)


class ConfirmMiddleware:
    """Answer ``ConfirmFirst``; the API has a handler of its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        """Lead to the page that asks: browsers by a redirect, htmx by its header; scripts get the error shape."""
        if not isinstance(exc, ConfirmFirst):
            return None
        if request.headers.get("Accept", "").startswith("application/json"):
            return JsonResponse(error_body(request, "confirm_first", exc.sentence), status=403)
        kept = _keep_request(request, exc)
        again = "" if kept else _("Do it again after that; what you entered is not kept.")
        messages.info(request, f"{exc.sentence} {again}".strip())
        there = to_confirmation(request, exc.back)
        if request.headers.get("HX-Request") == "true":
            return HttpResponse(headers={"HX-Redirect": there["Location"]})
        return there


class Waiting(NamedTuple):
    """An act that waits for a confirmation: where it is sent, what was typed, and the page that it was typed on.

    It waits for fifteen minutes. The confirmation page shows all of it: a person must not be made to confirm what
    another person began in their browser.
    """

    at: float
    act: str
    address: str
    back: str
    fields: list[tuple[str, str]]

    @property
    def label(self) -> str:
        """The title of the act."""
        return str(Act(self.act).label)


def _keep_request(request: HttpRequest, exc: ConfirmFirst) -> bool:
    """Keep the sent form in the session, unless it is secret, long or a file. Returns whether it is kept."""
    fields = [(name, value) for name, all in request.POST.lists() if "csrf" not in name for value in all]
    request.session.pop(WAITING, None)
    if request.method != "POST" or exc.act in NOT_KEPT or request.FILES or len(json.dumps(fields)) > MAX_KEPT_CHARS:
        return False
    request.session[WAITING] = Waiting(time.time(), exc.act.value, request.get_full_path(), exc.back, fields)
    return True


def waiting(request: HttpRequest) -> Waiting | None:
    """The kept act, returned once; ``None`` where nothing was kept, or the person went elsewhere."""
    kept = request.session.pop(WAITING, None)
    found = Waiting(*kept) if kept else None
    fresh = found is not None and 0 <= time.time() - found.at < WINDOW_S and found.back == way_back(request)
    return found if fresh else None


def to_confirmation(request: HttpRequest, back: str = "") -> HttpResponse:
    """To the page that asks, and from there back."""
    return redirect(f"{reverse('confirm')}?{urlencode({'next': back or request.get_full_path()})}")


def way_back(request: HttpRequest) -> str:
    """The address after a confirmation: only one of ours."""
    target = request.POST.get("next") or request.GET.get("next") or ""
    return own_address(request, target, reverse("home"))
