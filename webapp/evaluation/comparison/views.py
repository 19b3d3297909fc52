"""Pages that compare."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from webapp.common.pages import page_number
from webapp.evaluation.comparison.boards import boards
from webapp.evaluation.comparison.contestants import LEAST, contestants_of
from webapp.evaluation.comparison.curves import overlay
from webapp.evaluation.comparison.exports import figures_csv, tasks_csv
from webapp.evaluation.comparison.page import compare
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.comparison.standalone import as_file
from webapp.evaluation.comparison.transcripts import MOST_TRIES, aligned, played
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project
from webapp.runs.models import Run

OFFERED = 50


@login_required
@require_GET
def compare_page(request: HttpRequest, slug: str) -> HttpResponse:
    """The runs that the address names (``c``), side by side; with fewer than two of them, the list to choose from."""
    project = project_for(request.user, slug)
    contestants, notes = contestants_of(project, request.GET.getlist("c"))
    context = {"project": project, "contestants": contestants, "notes": notes, "address": request.GET.urlencode()}
    if len(contestants) < LEAST:
        chosen = {item.run.pk for item in contestants}
        offered = Run.objects.filter(project=project).order_by("-created_at", "pk")[:OFFERED]
        context |= {"boards": boards(project), "offered": [(run, run.pk in chosen) for run in offered]}
        return render(request, "comparison/choose.html", context)
    context["found"] = compare(project, contestants, notes, request.GET)
    context["overlay"] = overlay(contestants)
    context["rollouts_url"] = _rollouts_url(project, [item.run for item in contestants if item.run.method.plays])
    return render(request, "comparison/page.html", context)


def _rollouts_url(project: Project, runs: Sequence[Run]) -> str:
    """Where the rollouts of all contestants are found; empty where none of them plays any."""
    asked = urlencode([("run", str(run.pk)) for run in runs])
    return f"{reverse('project-rollouts', args=[project.slug])}?{asked}" if runs else ""


@login_required
@require_GET
def compare_report(request: HttpRequest, slug: str) -> HttpResponse:
    """The comparison as one file that needs nothing else: to be sent, printed, kept."""
    project = project_for(request.user, slug)
    contestants, notes = contestants_of(project, request.GET.getlist("c"))
    if len(contestants) < LEAST:
        return redirect("compare", slug)
    context = {
        "project": project,
        "contestants": contestants,
        "found": compare(project, contestants, notes, request.GET),
        "standalone": True,
        "made_at": timezone.localtime(),
        "address": request.build_absolute_uri(reverse("compare", args=[slug]) + "?" + request.GET.urlencode()),
    }
    return as_file(render_to_string("comparison/report.html", context, request), "comparison.html")


@login_required
@require_GET
def compare_csv(request: HttpRequest, slug: str, table: str) -> HttpResponse:
    """The figures or the tasks of a comparison as CSV."""
    project = project_for(request.user, slug)
    contestants, _notes = contestants_of(project, request.GET.getlist("c"))
    read = evaluations(project, contestants, request.GET.get("spec", ""))
    if read is None:
        return redirect("compare", slug)
    lines = tasks_csv(read) if table == "tasks" else figures_csv(read)
    answer = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="comparison-{table}.csv"'
    return answer


@login_required
@require_GET
def compare_task(request: HttpRequest, slug: str, task: int) -> HttpResponse:
    """One task as the contestants played it."""
    project = project_for(request.user, slug)
    contestants, _notes = contestants_of(project, request.GET.getlist("c"))
    number = page_number(request.GET.get("try")) - 1
    if not contestants:
        return redirect("compare", slug)
    if task > 2**31 - 1 or number >= MOST_TRIES:
        raise Http404
    found = played(contestants, task, number)
    if not any(item.tries for item in found):
        raise Http404
    text = next((item.tries[0].task for item in found if item.tries), "")
    context = {
        "project": project,
        "task": task,
        "text": text,
        "found": found,
        "rows": aligned(found),
        "number": number + 1,
        "numbers": range(1, max(len(item.tries) for item in found) + 1),
        "back": request.GET.urlencode(),
    }
    return render(request, "comparison/task.html", context)
