"""Pages of a run's metrics as files."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from webapp.datasets.models import ExportState
from webapp.foreign.figure_files import has_ended, metrics_order
from webapp.foreign.models import MetricsFormat, RunExport
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run


def _format_choices() -> list[dict[str, str]]:
    """Each format with its use."""
    what = {
        MetricsFormat.CSV: _("Step, time, attempt, name and value: for pandas, R and any spreadsheet."),
        MetricsFormat.CSV_WIDE: _("A column for each metric: to look at, or to plot in a spreadsheet."),
        MetricsFormat.PARQUET: _("The same columns as the first, small and typed: for pandas, Polars and DuckDB."),
        MetricsFormat.TENSORBOARD: _(
            "An event file in a zip, with the times of the steps: unpack it into your log folder."
        ),
    }
    return [{"to": str(item), "title": str(item.label), "what": text} for item, text in what.items()]


def _exports_context(run: Run) -> dict[str, Any]:
    exports = list(RunExport.objects.filter(run=run)[:20])
    busy = any(item.state in RunExport.OPEN for item in exports)
    url = reverse("run-exports", args=[run.project.slug, run.pk])
    return {"run": run, "exports": exports, "busy": busy, "exports_url": url}


@login_required
@require_http_methods(["GET", "POST"])
def metrics_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Ask for a file, and see those that were asked for."""
    project, run = own_run(request, slug, pk)
    problems: list[str] = []
    if request.method == "POST":
        try:
            metrics_order(run=run, user=cast(User, request.user), to=request.POST.get("to", ""))
        except ValidationError as exc:
            problems = exc.messages
        else:
            return redirect("run-export", slug=slug, pk=pk)
    context = {"project": project, "formats": _format_choices(), "ended": has_ended(run), "problems": problems}
    return render(request, "runs/export.html", context | _exports_context(run), status=422 if problems else 200)


@login_required
@require_GET
def metrics_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The files; the part polls while one is being written."""
    project, run = own_run(request, slug, pk)
    return render(request, "components/exports.html", {"project": project, **_exports_context(run)})


@login_required
@require_GET
def metrics_file(request: HttpRequest, slug: str, pk: UUID, file_id: UUID) -> HttpResponseBase:
    """The file itself."""
    _project, run = own_run(request, slug, pk)
    return file_response(run, file_id)


def file_response(run: Run, file_id: UUID) -> FileResponse:
    """A file of the run that is written. Raises ``Http404``."""
    export = RunExport.objects.filter(pk=file_id, run=run, state=ExportState.DONE).first()
    if export is None or not export.path.is_file():
        raise Http404
    response = FileResponse(export.path.open("rb"), as_attachment=True, filename=export.file_name)
    response["X-Content-Type-Options"] = "nosniff"
    return response
