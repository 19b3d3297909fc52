"""Pages of endpoints: the list, one endpoint with its test and spending, adding, changing, deleting."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors, probe_allowed
from webapp.endpoints import selectors
from webapp.endpoints.forms import EndpointForm
from webapp.endpoints.keys import has_key
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import endpoint_change, endpoint_create, endpoint_delete
from webapp.endpoints.testing import endpoint_test, findings_of
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask


def _own_endpoint(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Endpoint]:
    """The endpoint of an address, for a person whose role reaches ``need``."""
    project = project_for(request.user, slug, need=need)
    return project, object_for(request.user, Endpoint, pk, need=need, within=selectors.endpoints_of(project))


@login_required
@require_GET
def endpoint_list(request: HttpRequest, slug: str) -> HttpResponse:
    """All endpoints of the project, with their spending."""
    project = project_for(request.user, slug)
    found = [selectors.row_of(item) for item in selectors.with_use(selectors.endpoints_of(project))]
    rows = [(row, selectors.cost_text(row.item, row.today), selectors.cost_text(row.item, row.total)) for row in found]
    return render(request, "endpoints/list.html", {"project": project, "rows": rows, "can_edit": can_edit(project)})


@login_required
@require_GET
def endpoint_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One endpoint: its last test, its limits, its spending by day, the runs that ask it."""
    project, endpoint = _own_endpoint(request, slug, pk)
    return render(request, "endpoints/detail.html", _page_context(project, endpoint))


def _page_context(project: Project, endpoint: Endpoint) -> dict[str, Any]:
    days = selectors.days_of(endpoint)
    runs, count = selectors.uses_of(endpoint)
    lines = [
        (
            day,
            selectors.cost_text(endpoint, day.used),
            [(row, selectors.money(row.cost, endpoint.currency)) for row in day.users[: selectors.RUNS_SHOWN]],
        )
        for day in days
    ]
    return {
        "project": project,
        "item": endpoint,
        "state": selectors.endpoint_state(endpoint),
        "findings": findings_of(endpoint),
        "has_key": has_key(endpoint.pk),
        "price": selectors.price_text(endpoint),
        "limit": selectors.limit_text(endpoint),
        "bars": selectors.day_bars(endpoint),
        "days": lines,
        "there": selectors.runs_there(project, days),
        "runs": runs,
        "run_count": count,
        "can_edit": can_edit(project),
    }


@login_required
@require_http_methods(["GET", "POST"])
def endpoint_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Add an endpoint. It is not asked yet: the test is a button of its page."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form = EndpointForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        values = form.values()
        if values["key"]:
            ask(request, Act.ENDPOINT_KEY)
        try:
            made = endpoint_create(
                project=project, user=cast(User, request.user), **values | {"key": values["key"] or ""}
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is added; test it now.") % {"name": made.name})
            return redirect("endpoint-detail", slug=slug, pk=made.pk)
    context = {"project": project, "form": form}
    return render(request, "endpoints/edit.html", context, status=422 if form.is_bound else 200)


@login_required
@require_http_methods(["GET", "POST"])
def endpoint_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change an endpoint, replace its key or remove it."""
    project, endpoint = _own_endpoint(request, slug, pk, need=Role.EDITOR)
    posted = request.POST if request.method == "POST" else None
    form = EndpointForm(posted, endpoint=endpoint, keyed=has_key(endpoint.pk))
    if request.method == "POST" and form.is_valid():
        values = form.values()
        if values["key"] is not None:
            ask(request, Act.ENDPOINT_KEY)
        try:
            endpoint_change(endpoint=endpoint, **values)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(
                request,
                _("%(name)s is changed; active runs keep the values that they began with.") % {"name": endpoint},
            )
            return redirect("endpoint-detail", slug=slug, pk=pk)
    context = {"project": project, "form": form, "item": _reloaded(endpoint)}
    return render(request, "endpoints/edit.html", context, status=422 if form.is_bound else 200)


def _reloaded(endpoint: Endpoint) -> Endpoint:
    """The endpoint as it is stored, without the values of a refused form."""
    endpoint.refresh_from_db()
    return endpoint


@login_required
@require_POST
def endpoint_try(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Test an endpoint: one tiny chat with a tool."""
    project, endpoint = _own_endpoint(request, slug, pk, need=Role.EDITOR)
    if not probe_allowed(request.user):
        messages.error(request, _("Too many checks in one minute; wait a moment."))
        return redirect("endpoint-detail", slug=slug, pk=pk)
    endpoint = endpoint_test(endpoint)
    if request.headers.get("HX-Request") == "true":
        return render(request, "endpoints/_test.html", _page_context(project, endpoint))
    return redirect("endpoint-detail", slug=slug, pk=pk)


@login_required
@require_POST
def endpoint_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete an endpoint with its key; runs keep their records."""
    _project, endpoint = _own_endpoint(request, slug, pk, need=Role.EDITOR)
    try:
        endpoint_delete(endpoint=endpoint)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("endpoint-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s is deleted, and its key with it.") % {"name": endpoint.name})
    return redirect("endpoint-list", slug=slug)
