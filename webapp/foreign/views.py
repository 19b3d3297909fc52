"""Pages that import runs of other trainers, and export runs: their data, their options, their metrics."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

import pydantic
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_GET, require_http_methods

from training.config import JobConfig
from training.errors import ConfigError, TiltyardError
from training.exports import export_parts, export_stages, export_verl
from webapp.common.errors import error_body
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, upload_accepted, upload_count, upload_refused, upload_strings, wants_json
from webapp.datasets.models import ExportState
from webapp.datasets.services import too_large_sentence
from webapp.engine.resolve import dataset_path
from webapp.foreign import importing as foreign
from webapp.foreign.figure_files import has_ended, metrics_order
from webapp.foreign.importing import import_view
from webapp.foreign.models import ImportState, MetricsFormat, RunExport, RunImport
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run

# The form of an import.


class SeveralFiles(forms.ClearableFileInput):
    """A file input that takes several."""

    allow_multiple_selected = True


class FilesField(forms.FileField):
    """One or more files; each is cleaned as one."""

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:  # type: ignore[override]
        """The files. Raises ``ValidationError``."""
        given = data if isinstance(data, list | tuple) else [data]
        return [super(FilesField, self).clean(item, initial) for item in given or [None]]


class ImportForm(forms.Form):
    """Name and files. The kind of a file is recognised by its content, never by its name."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        required=False,
        validators=[name_validator],
        help_text=gettext_lazy("Name of the run; by default, the name of the first file."),
    )
    source_run = forms.CharField(
        label=gettext_lazy("Run in the file"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Where a chart or a database holds several runs: the one to import."),
    )
    uploads = FilesField(
        label=gettext_lazy("Files of one run"),
        max_length=10_000,
        allow_empty_file=True,
        widget=SeveralFiles(attrs={"multiple": True}),
        help_text=gettext_lazy(
            "verl's console log and rollout dumps, TRL's completions, tables of metrics as CSV or JSON Lines, "
            "or a zip archive of them. The format is detected from the content."
        ),
    )


RECENT = 10


@csrf_exempt
@login_required
@require_http_methods(["GET", "POST"])
def import_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Upload files. The counting handler must be set before anything reads the form, so CSRF is checked after it."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "POST" and not upload_count(request):
        return _too_large(request, project)
    return _import_new(request, project)


@csrf_protect
def _import_new(request: HttpRequest, project: Project) -> HttpResponse:
    if request.method == "GET":
        return render(request, "runs/import.html", _list_context(project, ImportForm()))
    # Django hands the fields of a form their last file; ours takes all of them.
    form = ImportForm(request.POST, cast(Any, {"uploads": request.FILES.getlist("uploads")}))
    if getattr(request, "upload_too_large", False):
        return _too_large(request, project)
    if form.is_valid():
        try:
            made = foreign.import_create(
                project=project,
                user=cast(User, request.user),
                name=form.cleaned_data["name"],
                source_run=form.cleaned_data["source_run"],
                files=form.cleaned_data["uploads"],
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            url = reverse("run-import-detail", args=[project.slug, made.pk])
            return upload_accepted(request, url)
    if wants_json(request):
        return upload_refused(request, form)
    return render(request, "runs/import.html", _list_context(project, form), status=422)


def _list_context(project: Project, form: ImportForm) -> dict[str, Any]:
    strings = {
        "upload.large": _("The files are larger than {limit} together, the most that may be uploaded."),
        "upload.many": _("{n} files are too many to send one by one; pack them into one zip archive."),
        "upload.chosen": _("{n} files · {size}"),
    }
    return {
        "project": project,
        "form": form,
        "strings": upload_strings() | strings,
        "limit_bytes": settings.MAX_UPLOAD_BYTES,
        "limit_files": settings.DATA_UPLOAD_MAX_NUMBER_FILES,
        "recent": foreign.imports_of(project)[:RECENT],
    }


def _too_large(request: HttpRequest, project: Project) -> HttpResponse:
    sentence = too_large_sentence()
    if wants_json(request):
        return JsonResponse(error_body(request, "too_large", sentence), status=413)
    form = ImportForm(data={})
    form.errors.clear()
    form.add_error("uploads", sentence)
    return render(request, "runs/import.html", _list_context(project, form), status=413)


@login_required
@require_GET
def import_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One import: how far it is, then what was read."""
    project, item = own(request, slug, RunImport, pk, within=foreign.imports_of)
    context = _detail_context(project, item) | {"report": import_view(item.report), "can_edit": can_edit(project)}
    return render(request, "runs/import_detail.html", context)


@login_required
@require_GET
def import_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The progress as a fragment; makes HTMX load the page again once the files are read."""
    project, item = own(request, slug, RunImport, pk, within=foreign.imports_of)
    response = render(request, "runs/_import_progress.html", _detail_context(project, item))
    if item.state != ImportState.READING:
        response["HX-Refresh"] = "true"
    return response


def _detail_context(project: Project, item: RunImport) -> dict[str, Any]:
    return {"project": project, "item": item, "percent": foreign.percent_of(item), "States": ImportState}


# A run's data and options as files for other trainers.

MAX_ROWS_BYTES = 128 << 20
"""Rows that are converted while a person waits; larger ones by the command line."""


@login_required
@require_GET
def run_verl(request: HttpRequest, slug: str, pk: UUID) -> HttpResponseBase:
    """A zip archive for verl: rows, options in its own keys, and a list of what could not be converted."""
    _project, run = own_run(request, slug, pk)
    try:
        file = _open_archive(run)
    except TiltyardError as exc:
        messages.error(request, f"{exc.message} {exc.hint}".strip())
        return redirect("run-detail", slug=slug, pk=pk)
    audit(AuditAction.RUN_EXPORTED, run)
    response = FileResponse(file, as_attachment=True, filename=f"{run.name}-verl.zip", content_type="application/zip")
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _open_archive(run: Run) -> IO[bytes]:
    """The archive as an open file without a name. Raises ``TiltyardError``."""
    if run.imported_from:
        raise ConfigError(_("The options of an imported run are not known, so it cannot be exported."))
    try:
        config = JobConfig.model_validate(run.config)
    except pydantic.ValidationError as exc:
        raise ConfigError(_("The run's options cannot be read by this version of Tiltyard.")) from exc
    courses = config.courses
    rows = [dataset_path(run.project, course.data.train) for course in courses]
    if sum(path.stat().st_size for path in set(rows)) > MAX_ROWS_BYTES:
        raise ConfigError(_("The dataset is too large to convert here; use `python -m training export-verl`."))
    for course, plain in zip(
        courses, JobConfig.model_validate(run.resolved).courses if run.resolved else (), strict=False
    ):
        course.rewards.components = course.rewards.components or plain.rewards.components
    made = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115 - the response closes it
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as folder:
        if config.stages or config.mix.parts:
            export = export_stages if config.stages else export_parts
            names = export(config, courses, rows, Path(folder), name=run.name)
        else:
            names = export_verl(courses[0], rows[0], Path(folder), name=run.name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(Path(folder) / name, name)
    made.seek(0)
    return made


# Pages of a run's metrics as files.


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
