"""Pages of datasets."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.data.formats import FORMATS
from webapp.common.errors import error_body
from webapp.common.pages import add_errors, page_number
from webapp.common.text import message_of, translated
from webapp.common.uploads import upload_accepted, upload_count, upload_refused, upload_strings, wants_json
from webapp.datasets import selectors, services
from webapp.datasets.findings import findings_page
from webapp.datasets.forms import DatasetForm
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations.lineage import lineage_of
from webapp.datasets.rereading import can_read_again
from webapp.datasets.several import packed
from webapp.datasets.words import evidence_of
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask

ROWS_PER_PAGE = 50
BAD_SHOWN = 10


def _own_dataset(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Dataset]:
    project = project_for(request.user, slug, need=need)
    return project, object_for(
        request.user, Dataset, pk, need=need, within=selectors.datasets_of(project), project=project
    )


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
    project, dataset = _own_dataset(request, slug, pk)
    context = _state_context(dataset) | {
        "project": project,
        "can_edit": can_edit(project),
        "can_chat": can_edit(project) and dataset.state == DatasetState.READY,
        "histogram": selectors.histogram_of(dataset.report),
        "preview": selectors.preview_of(dataset.report),
        "lineage": lineage_of(dataset),
        "message": message_of(dataset.report),
        "evidence": evidence_of(dataset.report),
        "format": translated(FORMATS[form].title) if (form := _format_name(dataset)) in FORMATS else "",
        "can_read_again": can_read_again(dataset),
        "bad": findings_page(dataset, "", 1).items[:BAD_SHOWN] if dataset.bad_rows else [],
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
    project, dataset = _own_dataset(request, slug, pk)
    response = render(request, "datasets/_progress.html", _state_context(dataset) | {"project": project})
    if dataset.state != DatasetState.CHECKING:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def dataset_keep(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Keep the dataset without the bad rows."""
    _project, dataset = _own_dataset(request, slug, pk, need=Role.EDITOR)
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
    _project, dataset = _own_dataset(request, slug, pk, need=Role.EDITOR)
    ask(request, Act.DELETE_DATASET, reverse("dataset-detail", args=[slug, pk]))
    try:
        services.dataset_delete(dataset=dataset)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("dataset-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was deleted.") % {"name": dataset})
    return redirect("dataset-list", slug=slug)
