"""The page *Rendered*: what a model would see of a dataset, and what a run would learn of it."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_POST

from webapp.launch.forms import reference_choices
from webapp.launch.rendered import SHOWN, rendered
from webapp.people.teams.access import project_for


@login_required
@require_GET
def run_rendered(request: HttpRequest, slug: str) -> HttpResponse:
    """A dataset and a model to choose; the page asks for their rows by itself once both are chosen."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    choices = reference_choices(project)
    query: dict[str, str | int] = {"dataset": dataset, "model": model, "first": first}
    context = {
        "project": project,
        "datasets": choices["data.train"],
        "models": [choice for choice in choices["model.source"] if not choice[0].startswith("endpoint:")],
        "dataset": dataset,
        "model": model,
        "query": urlencode(query),
    }
    return render(request, "runs/rendered.html", context)


@login_required
@require_GET
def run_rendered_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """The rows themselves, which takes some seconds."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    view = rendered(project, dataset, model, first)
    shown = {"view": view, "first": first, "last": first + SHOWN - 1, "next": first + SHOWN}
    before = max(1, first - SHOWN) if first > 1 else None
    context = {"project": project, "dataset": dataset, "model": model, "before": before, **shown}
    return render(request, "runs/_rendered.html", context)


@login_required
@require_POST
def run_rendered_of_form(request: HttpRequest, slug: str) -> HttpResponse:
    """From the form of a new run to the page of its dataset and model."""
    project = project_for(request.user, slug)
    chosen = {"dataset": request.POST.get("data.train", ""), "model": request.POST.get("model.source", "")}
    return redirect(f"{reverse('run-rendered', args=[project.slug])}?{urlencode(chosen)}")


def _query_of(request: HttpRequest) -> tuple[str, str, int]:
    """The dataset, the model, and the number of the first row."""
    first = request.GET.get("first", "")
    number = int(first) if first.isascii() and first.isdigit() and len(first) < 9 else 1
    return request.GET.get("dataset", ""), request.GET.get("model", ""), max(1, number)
