"""Pages that import runs of other trainers."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_GET, require_http_methods

from webapp.common.errors import error_body
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, upload_accepted, upload_count, upload_refused, upload_strings, wants_json
from webapp.datasets.services import too_large_sentence
from webapp.foreign import reading as foreign
from webapp.foreign.reading import import_view
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.models import ImportState, RunImport

# --- Forms ----------------------------------------------------------------------------------------------------------
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
