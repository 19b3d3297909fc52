"""Pages of environments: the list, registering, one environment, its history and logs."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from training.errors import TiltyardError
from webapp.common.pages import add_errors, probe_allowed
from webapp.environments.builtin import builtins
from webapp.environments.forms import EnvironmentForm
from webapp.environments.launchers import launchers
from webapp.environments.models import MAX_REPLICAS, Environment, Kind
from webapp.environments.selectors import (
    argument_texts,
    environments_of,
    health_view,
    history,
    order_rows,
    replica_rows,
    runs_on,
    validation_view,
)
from webapp.environments.services import RegistrationRefused, environment_launch, environment_register
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User


def own_environment(
    request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER
) -> tuple[Project, Environment]:
    """The environment of an address, for a person whose role reaches ``need``."""
    project = project_for(request.user, slug, need=need)
    return project, object_for(
        request.user, Environment, pk, need=need, within=environments_of(project), project=project
    )


@login_required
@require_GET
def environment_list(request: HttpRequest, slug: str) -> HttpResponse:
    """All environments of the project; the table polls every few seconds."""
    project = project_for(request.user, slug)
    rows = [(item, health_view(item)) for item in environments_of(project)]
    context = {
        "project": project,
        "rows": rows,
        "can_edit": can_edit(project),
        "builtins": builtins(),
        "most": MAX_REPLICAS,
    }
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "environments/_table.html" if fragment else "environments/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def environment_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Register an environment in one of three ways; a server at an address is checked first."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        program = request.GET.get("program", "")
        first = {"kind": Kind.PROCESS, "program": program, "name": program} if program in builtins() else None
        return _render_form(request, project, EnvironmentForm(initial=first))
    form = EnvironmentForm(request.POST)
    findings: list[Any] = []
    if form.is_valid() and not probe_allowed(request.user):
        form.add_error(None, _("Too many checks in one minute; wait a moment."))
        return _render_form(request, project, form, status=429)
    if form.is_valid():
        values, user = form.chosen(), cast(User, request.user)
        make = environment_register if form.cleaned_data["kind"] == Kind.URL else environment_launch
        try:
            made = make(project=project, user=user, **values)
        except ValidationError as exc:
            if isinstance(exc, RegistrationRefused):
                findings = exc.findings  # they say all of it
            else:
                add_errors(form, exc)
        else:
            notice = _("%(name)s starts now.") if made.launched else _("%(name)s answers and is registered.")
            messages.success(request, notice % {"name": made.name})
            return redirect("environment-detail", slug=slug, pk=made.pk)
    return _render_form(request, project, form, findings=findings, status=422)


def _render_form(
    request: HttpRequest,
    project: Project,
    form: EnvironmentForm,
    *,
    findings: list[Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    found = findings or []
    resources = {item.name: {"memory_mb": item.memory_mb, "cpus": item.cpus} for item in builtins().values()}
    context = {
        "project": project,
        "form": form,
        "findings": found,
        "resources": resources,
        "doubtful": any(not item.ok for item in found) and all(item.ok or item.may_pass for item in found),
    }
    return render(request, "environments/new.html", context, status=status)


def live_context(project: Project, environment: Environment) -> dict[str, Any]:
    """The context of the live part of an environment's page."""
    return {
        "project": project,
        "item": environment,
        "health": health_view(environment),
        "replicas": replica_rows(environment),
        "validation": validation_view(environment),
        "can_edit": can_edit(project),
        "most": MAX_REPLICAS,
        "arguments": argument_texts(environment),
    }


@login_required
@require_GET
def environment_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One environment; its live part polls every few seconds."""
    project, environment = own_environment(request, slug, pk)
    context = live_context(project, environment)
    if request.headers.get("HX-Request") == "true":
        return render(request, "environments/_live.html", context)
    urls = {"history": reverse("environment-history", args=[slug, pk])}
    program = environment.built_in
    context |= {"runs": runs_on(environment), "data": urls, "writes": bool(program and program.datasets)}
    return render(request, "environments/detail.html", context | order_rows(environment))


@login_required
@require_GET
def environment_history(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """The load of the last day, for the charts."""
    _project, environment = own_environment(request, slug, pk)
    return JsonResponse(history(environment))


@login_required
@require_GET
def replica_log_page(request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
    """The last lines that one replica printed; what it prints is escaped as text."""
    project, environment = own_environment(request, slug, pk)
    replica = next((item for item in environment.replicas.all() if item.number == number), None)
    if replica is None:
        raise Http404
    lines, problem = [], ""
    try:
        if environment.launched:
            lines = launchers()[environment.kind].logs(replica)
        else:
            problem = _("This server runs outside Tiltyard; see its own log.")
    except TiltyardError as exc:
        problem = " ".join(part for part in (exc.message, exc.hint) if part)
    context = {"project": project, "item": environment, "replica": replica, "lines": lines, "problem": problem}
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "environments/_log.html" if fragment else "environments/log.html", context)
