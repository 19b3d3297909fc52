"""Pages that act on an environment. Each writes what is wanted; the keeper does it."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from webapp.common.pages import probe_allowed
from webapp.environments.models import MAX_REPLICAS, Environment
from webapp.environments.selectors import health_view
from webapp.environments.services import (
    environment_check,
    environment_delete,
    environment_restart,
    environment_scale,
)
from webapp.environments.views import live_context, own_environment
from webapp.people.teams.models import Project, Role

TOO_MANY = 99


def _live_response(
    request: HttpRequest, project: Project, environment: Environment, notice: str, *, ok: bool
) -> HttpResponse:
    """The part of the page that asked, or the environment's page."""
    if request.headers.get("HX-Request") != "true":
        (messages.success if ok else messages.error)(request, notice)
        return redirect("environment-detail", slug=project.slug, pk=environment.pk)
    if request.GET.get("part") == "preflight":
        return render(request, "environments/_offered.html", {"notice": notice, "ok": ok})
    return render(
        request, "environments/_live.html", live_context(project, environment) | {"notice": "" if ok else notice}
    )


@login_required
@require_POST
def environment_recheck(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Check one environment now, and have it validate itself."""
    project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    if not probe_allowed(request.user):
        return HttpResponse(_("Too many checks in one minute; wait a moment."), status=429)
    environment_check(environment=environment)
    _project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    if request.GET.get("part") == "row":
        context = {"project": project, "item": environment, "health": health_view(environment), "can_edit": True}
        return render(request, "environments/_row.html", context)
    return _live_response(
        request, project, environment, _("%(name)s was checked.") % {"name": environment.name}, ok=True
    )


@login_required
@require_POST
def environment_scale_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Set how many replicas are wanted (``wanted``), or how many more (``add``, also negative)."""
    project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    wanted, more = _parse_count(request.POST.get("wanted", "")), _parse_count(request.POST.get("add", ""))
    if more is not None:
        wanted = min(MAX_REPLICAS, max(0, environment.wanted + more))
    try:
        if wanted is None:
            raise ValidationError(_("Enter the number of replicas."))
        environment = environment_scale(environment=environment, wanted=wanted)
    except ValidationError as exc:
        return _live_response(request, project, environment, " ".join(exc.messages), ok=False)
    notice = ngettext("%(count)d replica is wanted now.", "%(count)d replicas are wanted now.", wanted)
    return _live_response(request, project, environment, notice % {"count": wanted}, ok=True)


@login_required
@require_POST
def environment_restart_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Restart one replica (``number``), or all."""
    project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    try:
        count = environment_restart(environment=environment, number=_parse_count(request.POST.get("number", "")))
    except ValidationError as exc:
        return _live_response(request, project, environment, " ".join(exc.messages), ok=False)
    notice = ngettext("%(count)d replica restarts.", "%(count)d replicas restart.", count) % {"count": count}
    return _live_response(request, project, environment, notice, ok=True)


@login_required
@require_POST
def environment_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one environment."""
    _project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    try:
        environment_delete(environment=environment)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("environment-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was removed.") % {"name": environment.name})
    return redirect("environment-list", slug=slug)


def _parse_count(text: str) -> int | None:
    """A small whole number, or ``None`` for anything else."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 4):
        return None
    return max(-TOO_MANY, min(TOO_MANY, int(text)))
