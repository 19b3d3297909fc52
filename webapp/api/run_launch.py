"""Before a run is at work, over the API: checking a config, launching a draft, cloning a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from training.config import JobConfig
from webapp.api.answers import models
from webapp.api.answers import runs as runs_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.runs import config_sent, require_possible
from webapp.api.schemas import CLASS, Body, ConfigIn
from webapp.common.answers import Extended
from webapp.common.pages import probe_allowed
from webapp.engine.services import branch_point, class_of_copy, role_to_launch, run_create
from webapp.launch.background import CheckView, check_begin, check_record, check_view
from webapp.launch.estimates import OPEN, device_default, estimate_begin
from webapp.launch.forms import config_of, suggested_name
from webapp.launch.memory_views import MemoryView, row_view, view_of
from webapp.launch.models import MemoryEstimate
from webapp.launch.preflight import preflight
from webapp.people.teams.access import object_for, project_for, role_in
from webapp.people.teams.models import Role
from webapp.runs import answers as shapes
from webapp.runs.models import Run
from webapp.runs.records.selectors import aged, runs_with_ages
from webapp.runs.states import Priority

router = Router(tags=["runs"])


class LaunchIn(Body):
    """How a draft is launched: with `anyway` only what needs a change stops it."""

    anyway: bool = False


class CloneIn(Body):
    """A run like another one. `config` has only the options that differ; without `name` one is made of its name. With
    `step` it continues from the checkpoint of that step, with its optimiser."""

    step: int | None = Field(default=None, ge=0, lt=1 << 31)
    name: str = Field(default="", max_length=80)
    config: dict[str, Any] = Field(default_factory=dict)
    launch: bool = True
    priority: Priority | None = Field(
        default=None, description=f"{CLASS}; null: that of the run, where you are an owner"
    )


def _run_for(request: HttpRequest, run_id: UUID, need: Role) -> Run:
    within = runs_with_ages().select_related("project", "after")
    return object_for(caller(request), Run, run_id, need=need, within=within)


@router.post("/projects/{slug:slug}/preflight", response=runs_answers.Preflight)
def config_check(request: HttpRequest, slug: str, body: ConfigIn) -> Extended:
    """Check a config as a launch would, without making a run. It asks the environment and the trainer: some seconds."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    config = config_sent(body)
    if not probe_allowed(caller(request)):
        raise HttpError(429, _("Too many checks in one minute; wait a moment."))
    outcome = preflight(project, config)
    if outcome.resolved is not None:
        check_record(project=project, user=caller(request), config=config, outcome=outcome)
    return Extended(outcome, ok=not outcome.problems)


@router.get("/runs/{uuid:run_id}/check", response=runs_answers.LaunchCheck)
def run_check(request: HttpRequest, run_id: UUID) -> CheckView | dict[str, Any]:
    """The check before a run's launch: `state` is `open` while it lasts, `passed`, `stopped`, or empty without one."""
    found = check_view(_run_for(request, run_id, Role.VIEWER))
    return found or {"state": "", "blocked": False, "findings": []}


@router.post("/runs/{uuid:run_id}/launch", response=shapes.Run)
@once
def run_launch(request: HttpRequest, run_id: UUID, body: LaunchIn) -> Run:
    """Check a draft in the background and queue it. What the check found is at `/check`; 409 for any other run."""
    run = _run_for(request, run_id, Role.EDITOR)
    if check_begin(run=run, user=caller(request), anyway=body.anyway) is None:
        sentence = _("That is not possible now: the run is %(state)s.")
        raise HttpError(409, sentence % {"state": run.get_state_display()})
    return _run_for(request, run_id, Role.EDITOR)


@router.post("/runs/{uuid:run_id}/clone", response={201: shapes.RunWhole})
@once
def run_clone(request: HttpRequest, run_id: UUID, body: CloneIn) -> Status[Run]:
    """Make a run with the config of this one, some options of it changed, and queue it unless `launch` is false. 409
    where there is no checkpoint of `step` to continue from, or the run is still at work."""
    source = _run_for(request, run_id, role_to_launch(body.priority))
    checkpoint = branch_point(source, step=body.step) if body.step is not None else None
    if checkpoint is None and body.step is not None:
        sentence = _("The run has no whole checkpoint of step %(step)s, or is still active; pause or stop it first.")
        raise HttpError(409, sentence % {"step": body.step})
    config = JobConfig.model_validate(_merge_config(config_of(source).model_dump(mode="json"), body.config))
    if body.launch:
        require_possible(source.project, config)
    name = body.name or suggested_name(source.project, config, source.name)
    run = run_create(
        project=source.project,
        user=caller(request),
        name=name,
        config=config,
        launch=body.launch,
        checkpoint=checkpoint,
        priority=body.priority or class_of_copy(source, role_in(caller(request), source.project)),
    )
    return Status(201, aged(run))


def _merge_config(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the changes laid over it, group by group; lists are replaced whole."""
    made = dict(config)
    for name, value in changes.items():
        old = made.get(name)
        made[name] = _merge_config(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return made


# --- Memory ---------------------------------------------------------------------------------------------------------
# How much memory a job needs, over the API.


class MemoryIn(ConfigIn):
    """A config as an object or as YAML text, and the device: as docs/memory.md names it; without it, the
    largest GPU of the workers, else the CPU."""

    device: str = Field(default="", max_length=120)


@router.post("/projects/{slug:slug}/memory", response={200: models.Memory, 202: models.Memory})
def memory_ask(request: HttpRequest, slug: str, body: MemoryIn) -> Status[Extended]:
    """How much memory a job needs on a device, and whether it fits. 202 while a worker works it out: ask
    `/memory-estimates/{id}`. Your next request replaces one that is still open."""
    project = project_for(caller(request), slug)
    config = config_sent(body)
    device = body.device or device_default(config)
    asked = estimate_begin(project=project, user=caller(request), config=config, device=device)
    view = view_of(asked)
    return Status(202 if view.state == OPEN else 200, _with_table(view))


@router.get("/memory-estimates/{uuid:estimate_id}", response=models.Memory)
def memory_get(request: HttpRequest, estimate_id: UUID) -> Extended:
    """An estimate of memory: `state` is `open` while it is worked out, then `done`, `failed`, or `dropped`."""
    return _with_table(row_view(object_for(caller(request), MemoryEstimate, estimate_id)))


def _with_table(view: MemoryView) -> Extended:
    row = view.row
    table = row.answer if view.table is not None and row is not None else None
    return Extended(view, id=row.pk if row is not None else None, table=table)
