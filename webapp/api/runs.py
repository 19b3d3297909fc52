"""Runs over the API."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from ninja.errors import HttpError

from training.config import JobConfig, name_in
from training.errors import ConfigError
from webapp.api.answers import people as people_answers
from webapp.api.answers import runs as runs_answers
from webapp.api.base import IfMatch, Tagged, caller, held, open_to, require_match
from webapp.api.idempotency import key_of, once
from webapp.api.listing import MAX_PAGE_ROWS, LongNamed, Named, matching, page_of, part_of
from webapp.api.schemas import ConfigIn, QueueIn, RunIn, RunPatch, StarIn
from webapp.common.answers import Extended, Items, Page
from webapp.engine.services import (
    Ahead,
    can_resume,
    role_to_launch,
    run_create,
    run_pause,
    run_queue_change,
    run_resume,
    run_stop,
)
from webapp.launch.findings import YamlProblem, config_from_text
from webapp.launch.preflight import preflight
from webapp.people.teams.access import can_edit, object_for, project_for, projects_of
from webapp.people.teams.models import Project, Role, TokenScope
from webapp.results.summary import ENDED, summary_read
from webapp.runs import answers as shapes
from webapp.runs.advisories.selectors import advisories_of, diagnosis_view
from webapp.runs.metrics.devices import STEPS, answer_of, devices_of
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.metrics.selectors import curves, metric_names
from webapp.runs.models import Run
from webapp.runs.records.listing import run_lines, runs_sorted
from webapp.runs.records.marks import ARCHIVABLE, run_label, run_star, runs_archive
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.selectors import aged, runs_with_ages
from webapp.runs.rollouts.selectors import newest_of_step, step_rollouts
from webapp.runs.states import RunState

router = Router(tags=["runs"])
MAX_METRICS = 100
Step = Annotated[int, Query(ge=0, le=2**31 - 1)]


def _run_for(request: HttpRequest, run_id: UUID, need: Role = Role.VIEWER) -> Run:
    within = runs_with_ages().select_related("project", "after")
    return object_for(caller(request), Run, run_id, need=need, within=within)


@router.get(
    "/projects",
    tags=["projects"],
    response=Page[people_answers.Project],
    auth=open_to(TokenScope.METRICS, TokenScope.INGEST),
)
def projects_list(request: HttpRequest, asked: Query[LongNamed]) -> dict[str, Any]:
    """The projects that you may see."""
    return page_of(request, projects_of(caller(request)), asked)


@router.get(
    "/projects/{slug:slug}",
    tags=["projects"],
    response=people_answers.ProjectWithRole,
    auth=open_to(TokenScope.METRICS),
)
def project_get(request: HttpRequest, slug: str) -> Extended:
    """One project and your role in it."""
    project = project_for(caller(request), slug)
    return Extended(project, role=str(getattr(project, "role", "")))


@router.get("/projects/{slug:slug}/runs", response=Page[shapes.RunLine], auth=open_to(TokenScope.METRICS))
def runs_list(
    request: HttpRequest,
    slug: str,
    asked: Query[Named],
    state: str = "",
    kind: str = "",
    owner: str = "",
    tag: Annotated[list[str] | None, Query(max_length=20)] = None,
    spec: str = "",
    sweep: str = "",
    starred: bool = False,
    archived: bool = False,
    sort: str = "-created",
) -> dict[str, Any]:
    """Runs of a project, newest first: those that are not archived, or only those that are."""
    project = project_for(caller(request), slug)
    filters: dict[str, Any] = {
        "state": state,
        "kind": kind,
        "owner": owner,
        "tags": tag,
        "spec": name_in("reward", spec),
        "sweep": sweep,
        "starred": starred,
        "archived": archived,
    }
    rows = runs_sorted(project, filters, sort[:40], user=caller(request))
    part = part_of(request, matching(rows.only("pk"), asked, text=("name", "notes")), asked)
    lines = run_lines([run.pk for run in part.rows], user=caller(request), trends=False)
    sees = _seen_by(request) if any(line.queue for line in lines) else set()
    return part.body(Extended(line.run, **{**vars(line), "queue": queue_answer(line.queue, sees)}) for line in lines)


@router.post("/projects/{slug:slug}/runs", response={201: shapes.RunWhole})
@once
def run_new(request: HttpRequest, slug: str, body: RunIn) -> Status[Run]:
    """Create a run and, unless `launch` is false, queue it. As long as the run is there, the same idempotency key
    returns it, for every member of the project."""
    project = project_for(caller(request), slug, need=role_to_launch(body.priority))
    config = config_sent(body)
    if body.launch:
        require_possible(project, config)
    run = run_create(
        project=project,
        user=caller(request),
        name=body.name,
        config=config,
        launch=body.launch,
        idempotency_key=key_of(request, body),
        priority=body.priority,
    )
    return Status(201, aged(run))


def require_possible(project: Project, config: JobConfig) -> None:
    """The fast checks before a launch; a hard one that fails raises ``ConfigError`` with its option."""
    for check in preflight(project, config, full=False).checks:
        if check.hard and not check.ok:
            raise ConfigError(check.sentence, option=check.path, hint=check.hint)


def config_sent(body: ConfigIn) -> JobConfig:
    """The config that a body has as an object or as YAML. Raises ``ConfigError``."""
    if body.yaml is not None and body.config is not None:
        raise ConfigError("Send `config` or `yaml`, not both.")
    if body.yaml is None:
        return JobConfig.model_validate(body.config or {})
    try:
        return config_from_text(body.yaml)
    except YamlProblem as exc:
        first = exc.problems[0]
        hint = f"line {first.line}" if first.line else ""
        raise ConfigError(first.message, option=first.path, hint=hint) from exc


@router.get("/runs/{uuid:run_id}", response=shapes.RunWhole, auth=open_to(TokenScope.METRICS))
def run_get(request: HttpRequest, run_id: UUID) -> Tagged:
    """One run with its config. `ETag` is that of its tags, its notes and whether it is archived."""
    run = _run_for(request, run_id)
    queued = read_queue().queued(run.pk) if run.state == RunState.QUEUED else None
    return Tagged(Extended(run, queue=queue_answer(queued, _seen_by(request))), _tagged_values(run))


def _seen_by(request: HttpRequest) -> set[UUID]:
    """The projects whose runs the caller may see."""
    return set(projects_of(caller(request)).values_list("pk", flat=True))


@router.patch("/runs/{uuid:run_id}", response=shapes.Run)
def run_patch(request: HttpRequest, run_id: UUID, body: RunPatch, if_match: IfMatch = None) -> Tagged:
    """Change people's marks on a run: its tags, its notes, whether it is archived (409 while it has not ended)."""
    found = _run_for(request, run_id, Role.EDITOR)
    with transaction.atomic():
        run = held(found)
        require_match(if_match, _tagged_values(run))
        if body.archived and run.state not in ARCHIVABLE:
            raise HttpError(409, _("A run that has not ended cannot be archived."))
        run_label(run=run, user=caller(request), tags=body.tags, notes=body.notes)
        if body.archived is not None:
            runs_archive(runs=[run], user=caller(request), on=body.archived)
    run = _run_for(request, run_id)
    return Tagged(run, _tagged_values(run))


def _tagged_values(run: Run) -> list[Any]:
    return [run.tags, run.notes, run.archived_at is not None]


@router.post("/runs/{uuid:run_id}/star", response=runs_answers.Starred)
def run_star_set(request: HttpRequest, run_id: UUID, body: StarIn) -> dict[str, Any]:
    """Put your star on a run, or with `starred: false` take it away; only you see it."""
    run_star(run=_run_for(request, run_id), user=caller(request), on=body.starred)
    return {"starred": body.starred}


@router.post("/runs/{uuid:run_id}/stop", response=shapes.Run)
def run_stop_now(request: HttpRequest, run_id: UUID) -> Run:
    """Stop a run; stopping one that has ended changes nothing."""
    run = _run_for(request, run_id, Role.EDITOR)
    return aged(run_stop(run=run, user=caller(request)))


@router.post("/runs/{uuid:run_id}/pause", response=shapes.Run)
def run_pause_now(request: HttpRequest, run_id: UUID) -> Run:
    """Pause a run that is at work: it saves and gives its device back. Any other run stays as it is."""
    run = _run_for(request, run_id, Role.EDITOR)
    return aged(run_pause(run=run, user=caller(request)))


@router.post("/runs/{uuid:run_id}/resume", response=shapes.Run)
@once
def run_resume_now(request: HttpRequest, run_id: UUID) -> Run:
    """Queue a run again that was paused or ended, from its newest whole checkpoint; 409 where it has none."""
    run = _run_for(request, run_id, Role.EDITOR)
    if not can_resume(run):
        raise HttpError(409, _("This run cannot be resumed."))
    return aged(run_resume(run=run, user=caller(request)))


@router.patch("/runs/{uuid:run_id}/queue", response=shapes.Run)
def run_queue(request: HttpRequest, run_id: UUID, body: QueueIn) -> Run:
    """Hold or release a waiting run, change its class, or put it first (owners; 409 unless it is queued)."""
    run = _run_for(request, run_id, Role.OWNER)
    change = Ahead(priority=body.priority, on_hold=body.on_hold, first=body.first)
    return aged(run_queue_change(run=run, user=caller(request), change=change))


@router.get("/runs/{uuid:run_id}/advisories", response=Items[runs_answers.Advisory], auth=open_to(TokenScope.METRICS))
def run_advisories(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """The advisories of a run: open ones first, of these the gravest, then the newest; 50 at most."""
    return {"items": advisories_of(_run_for(request, run_id))}


@router.get("/runs/{uuid:run_id}/devices", response=runs_answers.Devices, auth=open_to(TokenScope.METRICS))
def run_devices(
    request: HttpRequest, run_id: UUID, last: Annotated[int, Query(ge=1, le=DeviceStep.KEPT)] = STEPS
) -> dict[str, Any]:
    """What each training device of a run did over its `last` steps: phases, and what NVML measured meanwhile."""
    found = devices_of(_run_for(request, run_id), last)
    if found is None:
        return {"answer": "", "worked": None, "devices": []}
    return {"answer": answer_of(found), "worked": found.worked, "devices": found.devices}


@router.get("/runs/{uuid:run_id}/summary", response=runs_answers.RunSummary, auth=open_to(TokenScope.METRICS))
def run_summary(request: HttpRequest, run_id: UUID) -> Extended:
    """The summary of a run: its change, best step, held-out result, cost, model, and what to try next."""
    run = _run_for(request, run_id)
    editor = can_edit(project_for(caller(request), run.project.slug))
    found = summary_read(run, editor=editor)
    model = found.made and {
        "id": found.made.model.pk if found.made.model else None,
        "name": found.made.model.name if found.made.model else "",
        "checkpoint": found.made.checkpoint,
    }
    advisories = {"open": len(found.advisories), "worst": next(iter(found.advisories), None)}
    about = {"id": run.pk, "state": run.state, "ended": run.state in ENDED, "diagnosis": diagnosis_view(run)}
    return Extended(found, model=model, advisories=advisories, **about)


@router.get("/runs/{uuid:run_id}/metrics", response=runs_answers.Curves, auth=open_to(TokenScope.METRICS))
def run_metrics(
    request: HttpRequest,
    run_id: UUID,
    name: Annotated[list[str] | None, Query(max_length=MAX_METRICS)] = None,
    points: int = 500,
    first: Step | None = None,
    last: Step | None = None,
) -> dict[str, Any]:
    """Curves, thinned to about `points` points each; all of them unless `name` is given, which may be repeated. With
    `first` and `last` only what lies between these steps: ask again for a closer look."""
    run = _run_for(request, run_id)
    clean = [item.replace("\x00", "")[:120] for item in name or []]
    names = clean or metric_names(run)[:MAX_METRICS]
    return {"curves": curves(run, names, max(2, min(points, 2000)), (first, last))}


@router.get("/runs/{uuid:run_id}/steps/{int:step}/rollouts", response=shapes.Rollouts)
def run_rollouts(request: HttpRequest, run_id: UUID, step: int, page: int = 1, per_page: int = 50) -> dict[str, Any]:
    """Rollouts of one step with their turns, a page at a time."""
    run = _run_for(request, run_id)
    step, page, size = min(step, 2**31 - 1), max(1, page), max(1, min(per_page, MAX_PAGE_ROWS))
    total = newest_of_step(run, step).count()
    first = min((page - 1) * size, total)
    found = step_rollouts(run, step, slice(first, first + size))
    return found | {"items": found["rollouts"], "page": page, "pages": max(1, -(-total // size)), "total": total}
