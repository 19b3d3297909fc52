"""Pages of operations and of files to download."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from training.data import FilterOptions
from training.data.making import matching
from webapp.common.pages import add_errors
from webapp.datasets.models import Dataset, DatasetExport, DatasetState, ExportState
from webapp.datasets.operations.exports import OPEN, ExportOptions, export_order
from webapp.datasets.operations.forms import FORMS, ExportForm, FilterForm
from webapp.datasets.operations.services import operation_order
from webapp.datasets.selectors import datasets_of
from webapp.people.teams.access import own
from webapp.people.teams.models import Role, User

COUNT_LIMIT_S = 0.4


@login_required
@require_http_methods(["GET", "POST"])
def operation_new(request: HttpRequest, slug: str, pk: UUID, operation: str) -> HttpResponse:
    """Ask for a split, a subset, a filter, a mix or a cut; it is made in the background."""
    project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    if operation not in FORMS:
        raise Http404
    form = FORMS[operation](dataset, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            made = operation_order(
                parents=form.parents(),
                user=cast(User, request.user),
                operation=form.chosen_operation(),
                options=form.options(),
                names=form.names(),
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-detail", slug=slug, pk=made[0].pk)
    context = {"project": project, "dataset": dataset, "form": form, "operation": operation}
    return render(request, "datasets/operations/new.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def filter_count(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How many rows a filter would keep, of the first rows that can be read in an instant."""
    _project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    form = FilterForm(dataset, request.GET)
    context: dict[str, Any] = {"dataset": dataset}
    form.full_clean()
    faults = [name for name in form.errors if name != "name"]
    if not faults and dataset.state == DatasetState.READY and dataset.rows_path.is_file():
        options = FilterOptions.model_validate(form.options())
        found, seen, whole = matching(dataset.rows_path, options, COUNT_LIMIT_S)
        context |= {"found": found, "seen": seen, "whole": whole, "counted": True}
        context["percent"] = round(100 * found / seen) if seen else 0
    return render(request, "datasets/operations/_count.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def export_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Ask for a file in another format, and see those that were asked for."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    form = ExportForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            export_order(dataset=dataset, user=cast(User, request.user), options=ExportOptions(**form.cleaned_data))
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-export", slug=slug, pk=pk)
    context = {"project": project, "dataset": dataset, "form": form, **_exports_context(dataset)}
    return render(request, "datasets/operations/export.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def export_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The files; the part polls while one is being written."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    return render(request, "components/exports.html", {"project": project, **_exports_context(dataset)})


def _exports_context(dataset: Dataset) -> dict[str, Any]:
    exports = list(DatasetExport.objects.filter(dataset=dataset)[:20])
    for export in exports:
        rows = int(export.progress.get("rows") or 0)
        export.percent = min(99, round(100 * rows / dataset.rows)) if dataset.rows else 0  # type: ignore[attr-defined]
    busy = any(export.state in OPEN for export in exports)
    url = reverse("dataset-exports", args=[dataset.project.slug, dataset.pk])
    return {"exports": exports, "busy": busy, "exports_url": url}


@login_required
@require_GET
def export_file(request: HttpRequest, slug: str, pk: UUID, export_id: UUID) -> HttpResponseBase:
    """The file itself."""
    _project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    export = DatasetExport.objects.filter(pk=export_id, dataset=dataset, state=ExportState.DONE).first()
    if export is None or not export.path.is_file():
        raise Http404
    return FileResponse(export.path.open("rb"), as_attachment=True, filename=export.file_name)
