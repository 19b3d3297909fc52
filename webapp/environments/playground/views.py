"""The page of the playground."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from webapp.common.errors import error_body
from webapp.datasets.models import Dataset
from webapp.datasets.selectors import latest_datasets, ready_datasets
from webapp.environments.models import Environment
from webapp.environments.playground.strings import playground_strings
from webapp.environments.playground.tasks import start_of_row
from webapp.environments.selectors import health_view
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role
from webapp.rewards.selectors import component_titles

MAX_DATASETS = 200
MAX_ROW_DIGITS = 9


def _own_environment(request: HttpRequest, slug: str, pk: UUID) -> tuple[Project, Environment]:
    """Playing takes a slot, so it needs the role that may launch runs."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    within = Environment.objects.filter(project=project).select_related("project")
    return project, object_for(request.user, Environment, pk, need=Role.EDITOR, within=within)


@login_required
@require_GET
def playground(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page to play an environment by hand; the episode's frames come over the socket."""
    project, environment = _own_environment(request, slug, pk)
    page = {
        "socket": f"/ws/environments/{environment.pk}/play/?language={get_language() or ''}",
        "row": reverse("environment-play-row", args=[slug, pk]),
    }
    context = {
        "project": project,
        "environment": environment,
        "health": health_view(environment),
        "page": page,
        "datasets": list(ready_datasets(project)[:MAX_DATASETS]),
        "strings": playground_strings(),
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_DATASETS]),
        "components": list(component_titles(project).items()),
    }
    return render(request, "environments/playground.html", context)


@login_required
@require_GET
def playground_row(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """One row of a dataset, as an episode would begin with it."""
    project, _environment = _own_environment(request, slug, pk)
    number = request.GET.get("row", "1")
    if not (number.isascii() and number.isdigit() and len(number) <= MAX_ROW_DIGITS):
        return JsonResponse(error_body(request, "invalid", _("A row's number is a whole number from 1.")), status=422)
    try:
        wanted = UUID(request.GET.get("dataset", ""))
    except ValueError:
        return JsonResponse(error_body(request, "invalid", _("Choose a dataset first.")), status=422)
    dataset = object_for(request.user, Dataset, wanted, within=ready_datasets(project))
    try:
        start = start_of_row(dataset, int(number))
    except ValidationError as exc:
        return JsonResponse(error_body(request, "invalid", " ".join(exc.messages)), status=422)
    messages = [message.model_dump(mode="json", exclude_none=True) for message in start.messages]
    return JsonResponse({"ok": True, "messages": messages, "rows": dataset.rows, "name": str(dataset)})
