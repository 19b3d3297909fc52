"""Pages of datasets."""

from __future__ import annotations

import threading
from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.data import FORMATS, PROBLEMS
from training.data.checking import Preview, run_preview
from webapp.common.errors import error_body
from webapp.common.ids import name_validator
from webapp.common.pages import (
    OVERHEAD_BYTES,
    CountingUploadHandler,
    add_errors,
    page_number,
    upload_accepted,
    upload_count,
    upload_refused,
    upload_strings,
    wants_json,
)
from webapp.common.serving import CsvResponse
from webapp.common.text import in_words, message_of, translated
from webapp.datasets import quality, selectors, services
from webapp.datasets.choices import (
    Choices,
    ChoicesForm,
    FilesField,
    ReadForm,
    choices_clean,
    columns_of,
    companions_of,
    form_of,
    resolved,
)
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import lineage_of
from webapp.datasets.rows import row_of
from webapp.datasets.selectors import datasets_of, preview_of
from webapp.datasets.services import files_clean, packed, source_clean, too_large_sentence
from webapp.datasets.versions import IN_PLACE, can_read_again, dataset_read_again
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form of an upload.


class DatasetForm(ChoicesForm):
    """Name, and a file or the id of a dataset. A file's content is judged by the check, never by its name."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("If the name exists, a new version is created; earlier versions do not change."),
    )
    file = FilesField(
        label=gettext_lazy("File"),
        max_length=10_000,
        allow_empty_file=True,
        required=False,
        help_text=gettext_lazy(
            "JSON Lines, JSON, CSV or Parquet; packed as gzip, or several of one format, together or as a zip "
            "archive: they become one dataset. The format of the rows is detected from their content."
        ),
    )
    hub = forms.CharField(
        label=gettext_lazy("Dataset of Hugging Face"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("Instead of a file: an id such as openai/gsm8k. The server fetches its file."),
    )
    revision = forms.CharField(label=gettext_lazy("Revision"), max_length=100, required=False)
    split = forms.CharField(
        label=gettext_lazy("Split or file"),
        max_length=100,
        required=False,
        help_text=gettext_lazy("Part of the file's name if the dataset has several files, such as train."),
    )

    def clean_file(self) -> list[Any]:
        """One file, or several that are one dataset."""
        files: list[Any] = self.cleaned_data["file"]
        files_clean(files)
        return files

    def clean(self) -> dict[str, Any]:
        """Either files or an id."""
        clean = super().clean() or self.cleaned_data
        if clean.get("hub") and not self.errors:
            try:
                self.source = source_clean(clean["hub"], clean.get("revision", ""), clean.get("split", ""))
            except ValidationError as exc:
                self.add_error(None, exc)
        elif not clean.get("hub") and not clean.get("file") and "file" not in self.errors:
            self.add_error("file", _("Choose a file."))
        return clean


# --- Reading views --------------------------------------------------------------------------------------------------
# Pages of a file's format and quality: reading it differently, its quality, its bad rows.

AT_ONCE = 2
WAIT_FOR_OTHERS_S = 10.0
_looks = threading.BoundedSemaphore(AT_ONCE)


@csrf_exempt
@login_required
@require_http_methods(["GET", "POST"])
def dataset_read(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Choose how a file that is here is read and checked. Its companions are counted like any upload."""
    project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    if request.method == "POST":
        request.upload_handlers.insert(0, CountingUploadHandler(request, settings.MAX_UPLOAD_BYTES))
    return _dataset_read(request, project, dataset)


@csrf_protect
def _dataset_read(request: HttpRequest, project: Project, dataset: Dataset) -> HttpResponse:
    if not can_read_again(dataset):
        return redirect("dataset-detail", slug=project.slug, pk=dataset.pk)
    if request.method == "GET":
        return render(request, "datasets/read.html", _read_context(project, dataset, ReadForm(dataset)))
    form = form_of(request, dataset)
    too_large = getattr(request, "upload_too_large", False)
    if too_large or int(request.META.get("CONTENT_LENGTH") or 0) > settings.MAX_UPLOAD_BYTES + OVERHEAD_BYTES:
        form.add_error(None, too_large_sentence())
    if form.is_valid():
        try:
            made = dataset_read_again(dataset=dataset, user=cast(User, request.user), choices=form.choices())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-detail", slug=project.slug, pk=made.pk)
    status = 413 if too_large else 422
    return render(request, "datasets/read.html", _read_context(project, dataset, form), status=status)


def _read_context(project: Project, dataset: Dataset, form: ReadForm) -> dict[str, Any]:
    recognised = dataset.report.get("recognised") or {}
    return {
        "project": project,
        "dataset": dataset,
        "form": form,
        "States": DatasetState,
        "in_place": dataset.state in IN_PLACE,
        "evidence": quality.evidence_of(dataset.report),
        "candidates": [
            {
                "format": item.get("format"),
                "certainty": item.get("certainty"),
                "reasons": [in_words(reason) for reason in item.get("reasons") or []],
            }
            for item in recognised.get("candidates") or []
        ],
        "companions": companions_of(dataset),
    }


@login_required
@require_POST
def dataset_read_preview(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The first rows as the choices of the form would make them, as a fragment."""
    _project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    form = form_of(request, dataset)
    errors = [] if form.is_valid() else [str(error) for found in form.errors.values() for error in found]
    context: dict[str, Any] = {"errors": errors}
    if not errors:
        try:
            context |= _preview(dataset, form.reading(), form.checking())
        except ValidationError as exc:
            context["errors"] = list(exc.messages)
    return render(request, "datasets/_look.html", context)


def _preview(dataset: Dataset, reading: dict[str, Any], checking: dict[str, Any]) -> dict[str, Any]:
    """A preview in a limited process; not more than a few of them at once."""
    chosen = Choices(reading=reading, checking=checking)
    choices_clean(dataset.project, chosen, companions_of(dataset))
    if not can_read_again(dataset):
        raise ValidationError(_("This version is being checked, or its file is gone."))
    options = resolved(dataset, chosen.reading)
    if not _looks.acquire(timeout=WAIT_FOR_OTHERS_S):
        raise ValidationError(_("The file is busy. Try again in a moment."))
    try:
        found = run_preview(dataset.upload_path, options.reading)
    finally:
        _looks.release()
    return _preview_context(found)


def _preview_context(found: Preview) -> dict[str, Any]:
    bad = [
        quality.Found(
            item.line,
            item.code,
            quality.finding_sentence(item.model_dump()),
            quality.suggestion_of(item.code),
            kept=False,
        )
        for item in found.bad
    ]
    return {
        "look": found,
        "bad": bad,
        "preview": selectors.preview_of({"preview": found.rows}),
        "message": " ".join(in_words(each) for each in found.message),
    }


@login_required
@require_GET
def dataset_quality(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The counts of the check, as plots."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    context = {
        "project": project,
        "dataset": dataset,
        "can_edit": can_edit(project),
        "States": DatasetState,
        "plots": quality.plots_of(dataset.report, dataset.rows, dataset.bad_rows),
        "ignored": quality.ignored_of(dataset.report),
    }
    return render(request, "datasets/quality.html", context)


@login_required
@require_GET
def dataset_findings(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Bad rows and remarks one by one; ``code`` chooses one kind."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    code = _problem_code(request)
    page = quality.findings_page(dataset, code, page_number(request.GET.get("page")))
    context = {
        "project": project,
        "dataset": dataset,
        "can_edit": can_edit(project),
        "States": DatasetState,
        "found": page,
        "code": code,
        "filters": quality.code_filters(dataset.report),
    }
    return render(request, "datasets/findings.html", context)


@login_required
@require_GET
def dataset_findings_csv(request: HttpRequest, slug: str, pk: UUID) -> CsvResponse:
    """All of them as CSV."""
    _project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    lines = quality.findings_csv(dataset, _problem_code(request))
    return CsvResponse(lines, f"rows-to-fix-{dataset.pk}.csv")


def _problem_code(request: HttpRequest) -> str:
    code = request.GET.get("code", "")
    return code if code in PROBLEMS else ""


# --- Row views ------------------------------------------------------------------------------------------------------
# The page of one row of a dataset.


@login_required
@require_GET
def dataset_row(request: HttpRequest, slug: str, pk: UUID, number: int) -> HttpResponse:
    """Row ``number`` (from 1) with its messages, tools and other columns, and links to the rows before and after."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
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


ROWS_PER_PAGE = 50
BAD_SHOWN = 10


@login_required
@require_GET
def dataset_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The newest version of every dataset."""
    project = project_for(request.user, slug)
    page = Paginator(selectors.latest_datasets(project), ROWS_PER_PAGE).get_page(page_number(request.GET.get("page")))
    return render(request, "datasets/list.html", {"project": project, "page": page, "can_edit": can_edit(project)})


@csrf_exempt
@login_required
@require_http_methods(["GET", "POST"])
def dataset_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Upload a file. The counting handler must be set before anything reads the form, so CSRF is checked after it."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "POST" and not upload_count(request):
        return _too_large(request, project)
    return _dataset_new(request, project)


@csrf_protect
def _dataset_new(request: HttpRequest, project: Project) -> HttpResponse:
    if request.method == "GET":
        form = DatasetForm(project, initial={"name": request.GET.get("name", "")[:80], "cut": "none", "shape": "rl"})
        return render(request, "datasets/new.html", _new_context(project, form))
    form = DatasetForm(project, request.POST, request.FILES)
    if getattr(request, "upload_too_large", False):
        return _too_large(request, project)
    if form.is_valid():
        try:
            made = _create_version(project, cast(User, request.user), form)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            url = reverse("dataset-detail", args=[project.slug, made.pk])
            return upload_accepted(request, url)
    if wants_json(request):
        return upload_refused(request, form)
    return render(request, "datasets/new.html", _new_context(project, form), status=422)


def _create_version(project: Project, user: User, form: DatasetForm) -> Dataset:
    """The new version, of the files or of the dataset on the hub."""
    name, files, choices = form.cleaned_data["name"], form.cleaned_data["file"], form.choices()
    if not files:
        return services.dataset_fetch(project=project, user=user, name=name, hub=form.source, choices=choices)
    with packed(files) as (file, file_name):
        return services.dataset_create(
            project=project, user=user, name=name, file=file, file_name=file_name, choices=choices
        )


def _new_context(project: Project, form: DatasetForm) -> dict[str, Any]:
    strings = {
        "upload.large": _("The files are larger than {limit} together, the most that may be uploaded."),
        "upload.many": _("{n} files are too many to send one by one; pack them into one zip archive."),
        "upload.chosen": _("{n} files · {size}"),
    }
    return {
        "project": project,
        "form": form,
        "limit_bytes": settings.MAX_UPLOAD_BYTES,
        "limit_files": settings.DATA_UPLOAD_MAX_NUMBER_FILES,
        "strings": upload_strings() | strings,
    }


def _too_large(request: HttpRequest, project: Project) -> HttpResponse:
    sentence = services.too_large_sentence()
    if wants_json(request):
        return JsonResponse(error_body(request, "too_large", sentence), status=413)
    form = DatasetForm(project, data={})
    form.errors.clear()
    form.add_error("file", sentence)
    return render(request, "datasets/new.html", _new_context(project, form), status=413)


def _state_context(dataset: Dataset) -> dict[str, Any]:
    """The context of the changing part of the page."""
    return {
        "dataset": dataset,
        "percent": selectors.percent_of(dataset),
        "States": DatasetState,
        "fetching": bool(dataset.source.get("hub")) and not dataset.source["hub"].get("file"),
    }


@login_required
@require_GET
def dataset_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One version: its check while that lasts, then its contents."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    context = _state_context(dataset) | {
        "project": project,
        "can_edit": can_edit(project),
        "can_chat": can_edit(project) and dataset.state == DatasetState.READY,
        "histogram": selectors.histogram_of(dataset.report),
        "preview": selectors.preview_of(dataset.report),
        "lineage": lineage_of(dataset),
        "message": message_of(dataset.report),
        "evidence": quality.evidence_of(dataset.report),
        "columns": columns_of(dataset.report),
        "format": translated(FORMATS[form].title) if (form := _format_name(dataset)) in FORMATS else "",
        "can_read_again": can_read_again(dataset),
        "bad": quality.findings_page(dataset, "", 1).items[:BAD_SHOWN] if dataset.bad_rows else [],
        "versions": selectors.versions_of(dataset)[:50],
        "runs": selectors.runs_using(dataset).order_by("-created_at")[:20],
    }
    return render(request, "datasets/detail.html", context)


def _format_name(dataset: Dataset) -> str:
    return str((dataset.report.get("format") or {}).get("rows", ""))


@login_required
@require_GET
def dataset_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The progress of a check as a fragment; makes HTMX load the page again once the check has ended."""
    project, dataset = own(request, slug, Dataset, pk, within=datasets_of)
    response = render(request, "datasets/_progress.html", _state_context(dataset) | {"project": project})
    if dataset.state != DatasetState.CHECKING:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def dataset_keep(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Keep the dataset without the bad rows."""
    _project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    try:
        services.dataset_keep_good_rows(dataset=dataset)
        messages.success(request, _("%(name)s is ready without its bad rows.") % {"name": dataset})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("dataset-detail", slug=slug, pk=pk)


@login_required
@require_POST
def dataset_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one version."""
    _project, dataset = own(request, slug, Dataset, pk, need=Role.EDITOR, within=datasets_of)
    ask(request, Act.DELETE_DATASET, reverse("dataset-detail", args=[slug, pk]))
    try:
        services.dataset_delete(dataset=dataset)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("dataset-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was deleted.") % {"name": dataset})
    return redirect("dataset-list", slug=slug)
