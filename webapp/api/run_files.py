"""Data made from an ended run over the API: files of its metrics, and pairs of its rollouts."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import reverse
from ninja import File, Form, Query, Router, Status
from ninja.errors import HttpError
from ninja.files import UploadedFile
from pydantic import Field

from webapp.api.answers import data as data_answers
from webapp.api.answers import runs as runs_answers
from webapp.api.base import caller, open_to
from webapp.api.idempotency import once
from webapp.api.listing import LongDated, page_of
from webapp.api.schemas import Body, with_lineage
from webapp.common.answers import Extended, Page
from webapp.datasets.rollouts import pairs_order
from webapp.datasets.services import too_large_sentence
from webapp.foreign.figure_files import metrics_order
from webapp.foreign.importing import import_create, import_view, percent_of
from webapp.foreign.models import ImportState, RunExport, RunImport
from webapp.foreign.views import file_response
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role, TokenScope
from webapp.runs.models import Run

# --- Run imports ----------------------------------------------------------------------------------------------------
# Runs of other trainers over the API: their files are uploaded as on the page, and read by a worker.

router = Router(tags=["runs"])


def _with_report(item: RunImport) -> Extended:
    """An import, and the report once its files are read."""
    report = import_view(item.report) if item.state != ImportState.READING else {}
    percent = percent_of(item) if item.state == ImportState.READING else 100
    url = reverse("run-import-detail", args=[item.project.slug, item.pk])
    return Extended(item, percent=percent, message=report.get("message") or "", report=report, url=url)


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
) -> Status[Extended]:
    """Upload the files of one run that another trainer made (multipart field `uploads`, once for each; `name`).

    A file's kind is recognised by its content (docs/imports.md). `source_run` names the run that is meant, where a
    table holds several. They are read in the background.
    """
    project = project_for(caller(request), slug, need=Role.EDITOR)
    if getattr(request, "upload_too_large", False):
        raise HttpError(413, too_large_sentence())
    made = import_create(project=project, user=caller(request), name=name, source_run=source_run, files=uploads or [])
    return Status(201, _with_report(made))


@router.get("/run-imports/{uuid:import_id}", response=runs_answers.RunImport, auth=open_to(TokenScope.INGEST))
def run_import_get(request: HttpRequest, import_id: UUID) -> Extended:
    """An import: its progress, then its report, and the run that was made of it."""
    within = RunImport.objects.select_related("project", "run")
    return _with_report(object_for(caller(request), RunImport, import_id, within=within))


class MetricsIn(Body):
    """The format of the metrics."""

    to: str = Field(max_length=12, description="csv, csv_wide, parquet or tensorboard")


class PairsIn(Body):
    """The dataset to make of a run's rollouts."""

    name: str = Field(max_length=80)
    min_gap: float = Field(0.5, gt=0, le=1e6, description="reward of the better rollout less that of the worse one")


def _run_for(request: HttpRequest, run_id: UUID, need: Role = Role.VIEWER) -> Run:
    return object_for(caller(request), Run, run_id, need=need, within=Run.objects.select_related("project"))


@router.post("/runs/{uuid:run_id}/pairs", tags=["datasets"], response={201: data_answers.DatasetWhole})
@once
def run_pairs_new(request: HttpRequest, run_id: UUID, body: PairsIn) -> Status[Extended]:
    """Make a dataset of preference pairs: of each group the best rollout against the worst."""
    run = _run_for(request, run_id, Role.EDITOR)
    made = pairs_order(run=run, user=caller(request), name=body.name, min_gap=body.min_gap)
    return Status(201, with_lineage(made))


@router.post("/runs/{uuid:run_id}/exports", response={201: runs_answers.RunFile}, auth=open_to(TokenScope.METRICS))
@once
def run_export_new(request: HttpRequest, run_id: UUID, body: MetricsIn) -> Status[RunExport]:
    """Have the metrics of an ended run written as a file."""
    return Status(201, metrics_order(run=_run_for(request, run_id), user=caller(request), to=body.to))


@router.get("/runs/{uuid:run_id}/exports", response=Page[runs_answers.RunFile], auth=open_to(TokenScope.METRICS))
def run_exports_list(request: HttpRequest, run_id: UUID, asked: Query[LongDated]) -> dict[str, Any]:
    """The files of a run's metrics, newest first."""
    return page_of(request, RunExport.objects.filter(run=_run_for(request, run_id)), asked)


@router.get(
    "/runs/{uuid:run_id}/exports/{uuid:file_id}", response=runs_answers.RunFile, auth=open_to(TokenScope.METRICS)
)
def run_export_get(request: HttpRequest, run_id: UUID, file_id: UUID) -> RunExport:
    """One file, as far as it is written."""
    found = RunExport.objects.filter(run=_run_for(request, run_id), pk=file_id).first()
    if found is None:
        raise Http404
    return found


@router.get("/runs/{uuid:run_id}/exports/{uuid:file_id}/file", auth=open_to(TokenScope.METRICS))
def run_export_file(request: HttpRequest, run_id: UUID, file_id: UUID) -> HttpResponseBase:
    """The file itself."""
    return file_response(_run_for(request, run_id), file_id)
