"""Pages of environments."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.environments.forms import EnvironmentForm
from webapp.environments.models import Environment
from webapp.environments.selectors import environments_of, health_view
from webapp.environments.services import environment_check, environment_delete, environment_register
from webapp.pages import add_errors, can_edit, probe_allowed
from webapp.teams.access import object_for, project_for
from webapp.teams.models import Project, Role, User


def _own(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.EDITOR) -> tuple[Project, Environment]:
    project = project_for(request.user, slug, need=need)
    within = Environment.objects.filter(project=project).select_related("project")
    return project, object_for(request.user, Environment, pk, need=need, within=within)


@login_required
@require_GET
def environment_list(request: HttpRequest, slug: str) -> HttpResponse:
    """All servers of the project; the table asks for itself again every few seconds."""
    project = project_for(request.user, slug)
    rows = [(item, health_view(item)) for item in environments_of(project)]
    context = {"project": project, "rows": rows, "can_edit": can_edit(project)}
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "environments/_table.html" if fragment else "environments/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def environment_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Register a server by its address."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form = EnvironmentForm(request.POST or None)
    if request.method == "GET":
        return render(request, "environments/new.html", {"project": project, "form": EnvironmentForm()})
    if form.is_valid() and not probe_allowed(request.user):
        form.add_error(None, _("That was many checks in one minute; wait a little."))
        return render(request, "environments/new.html", {"project": project, "form": form}, status=429)
    if form.is_valid():
        try:
            made = environment_register(project=project, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s answers and is registered.") % {"name": made.name})
            return redirect("environment-list", slug=slug)
    return render(request, "environments/new.html", {"project": project, "form": form}, status=422)


@login_required
@require_POST
def environment_recheck(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Check one server now."""
    project, environment = _own(request, slug, pk)
    if not probe_allowed(request.user):
        return HttpResponse(_("That was many checks in one minute; wait a little."), status=429)
    environment = environment_check(environment=environment)
    if request.headers.get("HX-Request") == "true":
        context = {"project": project, "item": environment, "health": health_view(environment), "can_edit": True}
        return render(request, "environments/_row.html", context)
    return redirect("environment-list", slug=slug)


@login_required
@require_POST
def environment_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Forget one server."""
    _project, environment = _own(request, slug, pk)
    try:
        environment_delete(environment=environment)
        messages.success(request, _("%(name)s was removed.") % {"name": environment.name})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("environment-list", slug=slug)
