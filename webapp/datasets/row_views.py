"""The page of one row of a dataset."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.datasets.models import Dataset
from webapp.datasets.rows import row_of
from webapp.datasets.selectors import datasets_of, preview_of
from webapp.people.teams.access import can_edit, object_for, project_for


@login_required
@require_GET
def dataset_row(request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
    """Row ``number`` (from 1) with its messages, tools and other columns, and links to the rows before and after."""
    project = project_for(request.user, slug)
    dataset = object_for(request.user, Dataset, pk, within=datasets_of(project), project=project)
    row = row_of(dataset, number)
    if row is None:
        raise Http404
    shown = preview_of({"preview": [row]})[0] | {"number": number}
    context = {
        "project": project,
        "dataset": dataset,
        "row": shown,
        "can_chat": can_edit(project),
        "before": number - 1 if number > 1 else None,
        "after": number + 1 if number < dataset.rows else None,
    }
    return render(request, "datasets/row.html", context)
