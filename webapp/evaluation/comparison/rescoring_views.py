"""Scoring the recorded rollouts of a comparison: the button, the progress, and cancelling it."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from webapp.common.pages import errors_by_field
from webapp.evaluation.comparison.rescoring import rescore
from webapp.evaluation.rescoring.models import Rescoring
from webapp.evaluation.rescoring.selectors import percent_of, rescorings_of
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role, User


@login_required
@require_POST
def compare_rescore(request: HttpRequest, slug: str) -> HttpResponse:
    """Have the rollouts of the evaluations ``c`` scored by ``spec``: how far that is for htmx, else the comparison."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    runs, spec = request.POST.getlist("c"), request.POST.get("spec", "")
    problems: list[str] = []
    rescoring: Rescoring | None = None
    try:
        rescoring = rescore(
            project=project,
            user=cast(User, request.user),
            runs=runs[:100],
            spec=spec,
            confirmed=request.POST.get("confirmed") == "yes",
        )
    except ValidationError as exc:
        problems = [text for texts in errors_by_field(exc).values() for text in texts]
    if getattr(request, "htmx", False):
        if rescoring is not None:
            return render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        answer = render(request, "comparison/_rescoring_problem.html", {"problems": problems}, status=422)
        answer["HX-Retarget"] = "#rescoring-problem"  # the form stays
        return answer
    if problems:
        messages.error(request, " ".join(problems))
    return redirect(_compare_address(slug, runs, spec))


def _compare_address(slug: str, runs: list[str], spec: str) -> str:
    return f"{reverse('compare', args=[slug])}?{urlencode({'c': runs, 'spec': spec}, doseq=True)}"


def _state_context(project: Project, rescoring: Rescoring) -> dict[str, Any]:
    """What the changing part of the page shows."""
    return {
        "project": project,
        "rescoring": rescoring,
        "percent": percent_of(rescoring),
        "open": rescoring.state in Rescoring.OPEN,
    }


def _rescoring_of(request: HttpRequest, slug: str, pk: UUID, need: Role = Role.VIEWER) -> tuple[Project, Rescoring]:
    project = project_for(request.user, slug, need=need)
    within = rescorings_of(project)
    return project, object_for(request.user, Rescoring, pk, need=need, within=within, project=project)


@login_required
@require_GET
def rescoring_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How far it is, as a fragment; makes htmx load the page again once it has ended."""
    project, rescoring = _rescoring_of(request, slug, pk)
    response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
    if rescoring.state not in Rescoring.OPEN:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def rescoring_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Cancel it; what was scored until then is kept."""
    project, rescoring = _rescoring_of(request, slug, pk, need=Role.EDITOR)
    rescoring_cancel(rescoring=rescoring, user=cast(User, request.user))
    if getattr(request, "htmx", False):
        response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        response["HX-Refresh"] = "true"
        return response
    return redirect(_compare_address(slug, rescoring.runs, ""))
