"""Pages of options and datasets: changing what servers are started with, asking for tasks."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from webapp.common.pages import add_errors
from webapp.environments.changes import environment_change
from webapp.environments.forms import EnvironmentEditForm
from webapp.environments.order_form import OrderForm
from webapp.environments.orders import order_create
from webapp.environments.selectors import order_rows
from webapp.environments.views import own_environment
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Role, User


@login_required
@require_http_methods(["GET", "POST"])
def environment_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change limits and options; the replicas restart with them."""
    project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    if not environment.launched:
        messages.error(request, _("This server was started elsewhere, so it cannot be started or stopped here."))
        return redirect("environment-detail", slug=slug, pk=pk)
    form = EnvironmentEditForm(environment, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            changed = environment_change(environment=environment, **form.chosen(environment))
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            notice = _("%(name)s restarts with the new settings.") if changed else _("Nothing was changed.")
            messages.success(request, notice % {"name": environment.name} if changed else notice)
            return redirect("environment-detail", slug=slug, pk=pk)
    context = {"project": project, "item": environment, "form": form}
    return render(request, "environments/edit.html", context, status=422 if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def order_new(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Ask a built-in environment for a dataset; it is written in the background."""
    project, environment = own_environment(request, slug, pk, need=Role.EDITOR)
    program = environment.built_in
    if program is None or not program.datasets:
        messages.error(request, _("Only environments that come with Tiltyard can generate datasets."))
        return redirect("environment-detail", slug=slug, pk=pk)
    form = OrderForm(environment, program, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            order_create(environment=environment, user=cast(User, request.user), **form.chosen())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            response = redirect("environment-detail", slug=slug, pk=pk)
            response["Location"] += "#orders"
            return response
    context = {"project": project, "item": environment, "form": form, "shared": form.shared_texts()}
    return render(request, "environments/order.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def order_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The datasets that were asked for; the part polls while one is under way."""
    project, environment = own_environment(request, slug, pk)
    context: dict[str, Any] = {"project": project, "item": environment, "can_edit": can_edit(project)}
    return render(request, "environments/_orders.html", context | order_rows(environment))
