"""Runs of other trainers over the API: their files are uploaded as on the page, and read by a worker."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from ninja import File, Form, Router, Status
from ninja.errors import HttpError
from ninja.files import UploadedFile

from webapp.api.answers import runs as runs_answers
from webapp.api.base import caller, open_to
from webapp.api.idempotency import once
from webapp.datasets.services import too_large_sentence
from webapp.foreign.reading import import_create, percent_of
from webapp.foreign.report import import_view
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role, TokenScope
from webapp.runs.models import ImportState, RunImport

router = Router(tags=["runs"])


def _import_out(item: RunImport) -> dict[str, Any]:
    """An import, and the report once its files are read."""
    report = import_view(item.report) if item.state != ImportState.READING else {}
    return {
        "id": str(item.pk),
        "name": item.name,
        "state": item.state,
        "files": item.files,
        "percent": percent_of(item) if item.state == ImportState.READING else 100,
        "run": str(item.run_id) if item.run_id else None,
        "is_new": item.is_new,
        "message": report.get("message") or "",
        "report": report,
        "url": reverse("run-import-detail", args=[item.project.slug, item.pk]),
    }


@router.post(
    "/projects/{slug:slug}/runs/import", response={201: runs_answers.RunImport}, auth=open_to(TokenScope.INGEST)
)
@once
def run_import_new(
    request: HttpRequest,
    slug: str,
    name: Annotated[str, Form(max_length=80)] = "",
    source_run: Annotated[str, Form(max_length=200)] = "",
    uploads: Annotated[list[UploadedFile] | None, File()] = None,
) -> Status[dict[str, Any]]:
    """Upload the files of one run that another trainer made (multipart field `uploads`, once for each; `name`).

    A file's kind is recognised by its content (docs/imports.md). `source_run` names the run that is meant, where a
    table holds several. They are read in the background.
    """
    project = project_for(caller(request), slug, need=Role.EDITOR)
    if getattr(request, "upload_too_large", False):
        raise HttpError(413, too_large_sentence())
    made = import_create(project=project, user=caller(request), name=name, source_run=source_run, files=uploads or [])
    return Status(201, _import_out(made))


@router.get("/run-imports/{uuid:import_id}", response=runs_answers.RunImport, auth=open_to(TokenScope.INGEST))
def run_import_get(request: HttpRequest, import_id: UUID) -> dict[str, Any]:
    """An import: its progress, then its report, and the run that was made of it."""
    within = RunImport.objects.select_related("project", "run")
    return _import_out(object_for(caller(request), RunImport, import_id, within=within))
