"""Ending a rollout in flight, or marking it as failed, from a page."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.engine.orders import Act, rollout_order
from webapp.people.teams.models import Role, User
from webapp.reading.access import own_rollout


@login_required
@require_POST
def rollout_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End it: it is excluded."""
    return _order_and_redirect(request, slug, pk, "end", _("The rollout is being ended; it is excluded."))


@login_required
@require_POST
def rollout_fail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End it as one that failed its task."""
    return _order_and_redirect(request, slug, pk, "fail", _("The rollout is being ended; it counts as failed."))


def _order_and_redirect(request: HttpRequest, slug: str, pk: UUID, act: Act, notice: str) -> HttpResponse:
    _project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    try:
        rollout_order(rollout=rollout, act=act, user=cast(User, request.user))
    except ValidationError as exc:
        messages.warning(request, exc.messages[0])
    else:
        messages.success(request, notice)
    if "rollout" in request.POST:  # the button of its own page
        return redirect("rollout-detail", slug=slug, pk=pk)
    return redirect("run-detail", slug=slug, pk=rollout.run_id)
