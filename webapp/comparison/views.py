"""Pages that compare."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET

from webapp.comparison.boards import boards
from webapp.comparison.contestants import LEAST, contestants_of
from webapp.comparison.page import compare
from webapp.comparison.transcripts import MOST_TRIES, aligned, played
from webapp.pages import page_number
from webapp.records.selectors import run_list
from webapp.teams.access import project_for

OFFERED = 50


@login_required
@require_GET
def compare_page(request: HttpRequest, slug: str) -> HttpResponse:
    """The runs that the address names (``c``), side by side; with fewer than two of them, the list to choose from."""
    project = project_for(request.user, slug)
    contestants, notes = contestants_of(project, request.GET.getlist("c"))
    offered = [row.run for row in run_list(project, per_page=OFFERED).rows]
    chosen = {item.run.pk for item in contestants}
    context = {
        "project": project,
        "contestants": contestants,
        "notes": notes,
        "offered": [(run, run.pk in chosen) for run in offered],
        "address": request.GET.urlencode(),
    }
    if len(contestants) < LEAST:
        context["boards"] = boards(project)
        return render(request, "comparison/choose.html", context)
    return render(
        request, "comparison/page.html", context | {"found": compare(project, contestants, notes, request.GET)}
    )


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
