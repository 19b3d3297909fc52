"""Pages of a file's format and quality: reading it differently, its quality, its bad rows."""

from __future__ import annotations

import threading
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.data.checking.preview import Preview
from training.data.checking.runner import run_preview
from training.data.problems import PROBLEMS
from webapp.common.csv_text import CsvResponse
from webapp.common.pages import add_errors, page_number
from webapp.common.text import in_words
from webapp.common.upload_handlers import OVERHEAD_BYTES, CountingUploadHandler
from webapp.datasets import selectors
from webapp.datasets.choice_forms import ReadForm, form_of
from webapp.datasets.choices import Choices, choices_clean, companions_of, resolved
from webapp.datasets.findings import Found, findings_csv, findings_page
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.plots import code_filters, plots_of
from webapp.datasets.rereading import IN_PLACE, can_read_again, dataset_read_again
from webapp.datasets.services import too_large_sentence
from webapp.datasets.words import evidence_of, finding_sentence, ignored_of, suggestion_of
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User

AT_ONCE = 2
WAIT_FOR_OTHERS_S = 10.0
_looks = threading.BoundedSemaphore(AT_ONCE)


def _own_dataset(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Dataset]:
    project = project_for(request.user, slug, need=need)
    return project, object_for(
        request.user, Dataset, pk, need=need, within=selectors.datasets_of(project), project=project
    )


@csrf_exempt
@login_required
@require_http_methods(["GET", "POST"])
def dataset_read(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Choose how a file that is here is read and checked. Its companions are counted like any upload."""
    project, dataset = _own_dataset(request, slug, pk, need=Role.EDITOR)
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
        "evidence": evidence_of(dataset.report),
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
    _project, dataset = _own_dataset(request, slug, pk, need=Role.EDITOR)
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
        Found(item.line, item.code, finding_sentence(item.model_dump()), suggestion_of(item.code), kept=False)
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
    project, dataset = _own_dataset(request, slug, pk)
    context = {
        "project": project,
        "dataset": dataset,
        "can_edit": can_edit(project),
        "States": DatasetState,
        "plots": plots_of(dataset.report, dataset.rows, dataset.bad_rows),
        "ignored": ignored_of(dataset.report),
    }
    return render(request, "datasets/quality.html", context)


@login_required
@require_GET
def dataset_findings(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Bad rows and remarks one by one; ``code`` chooses one kind."""
    project, dataset = _own_dataset(request, slug, pk)
    code = _problem_code(request)
    page = findings_page(dataset, code, page_number(request.GET.get("page")))
    context = {
        "project": project,
        "dataset": dataset,
        "can_edit": can_edit(project),
        "States": DatasetState,
        "found": page,
        "code": code,
        "filters": code_filters(dataset.report),
    }
    return render(request, "datasets/findings.html", context)


@login_required
@require_GET
def dataset_findings_csv(request: HttpRequest, slug: str, pk: UUID) -> CsvResponse:
    """All of them as CSV."""
    _project, dataset = _own_dataset(request, slug, pk)
    lines = findings_csv(dataset, _problem_code(request))
    return CsvResponse(lines, f"rows-to-fix-{dataset.pk}.csv")


def _problem_code(request: HttpRequest) -> str:
    code = request.GET.get("code", "")
    return code if code in PROBLEMS else ""
