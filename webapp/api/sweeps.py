"""Sweeps over the API: runs that differ in a few options, launched together, and which change brought which gain."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from training.config import Axis
from webapp.api.answers import comparing as shapes
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import Named, page_of
from webapp.api.runs import config_sent
from webapp.api.schemas import CLASS, ConfigIn
from webapp.common.answers import Deleted, Extended, Page
from webapp.engine.services import role_to_launch
from webapp.evaluation.sweeps.board import Board, board_of
from webapp.evaluation.sweeps.figures import Place
from webapp.launch.models import Sweep
from webapp.launch.sweeps import plan_of, run_names, sweep_create, sweep_delete, sweeps_of
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act, ask
from webapp.runs.states import Priority

router = Router(tags=["sweeps"])


class AxisIn(BaseModel):
    """An option by its path, such as `optim.learning_rate`, and one to eight values. `run.seed` repeats every
    setting."""

    model_config = ConfigDict(extra="forbid")

    option: str = Field(max_length=120)
    values: list[str | int | float | bool | None] = Field(max_length=100)


class PlanIn(ConfigIn):
    """The config that all runs begin with, one to four axes, and which runs they make: `product` is every combination,
    `single` changes one option of the config at a time."""

    axes: list[AxisIn] = Field(max_length=20)
    mode: Literal["product", "single"] = "product"

    @property
    def varied(self) -> list[Axis]:
        """The axes."""
        return [Axis(axis.option, axis.values) for axis in self.axes]


class SweepIn(PlanIn):
    """A sweep. With `anyway` only what needs a change keeps a run from the queue."""

    name: str = Field(min_length=1, max_length=80)
    anyway: bool = False
    priority: Priority = Field(default=Priority.NORMAL, description=f"{CLASS}; all runs get it")


@router.get("/projects/{slug:slug}/sweeps", response=Page[shapes.Sweep])
def sweeps_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The project's sweeps, the newest first; one whose runs were all deleted is left out."""
    return page_of(request, sweeps_of(project_for(caller(request), slug)), asked)


@router.post("/projects/{slug:slug}/sweeps", response={201: shapes.SweepMade})
@once
def sweep_new(request: HttpRequest, slug: str, body: SweepIn) -> Status[Extended]:
    """Launch all runs of a sweep, or none: each is checked in the background and queued, as `/runs/{run_id}/launch`
    does. 422 names the axis, such as `axes.0.values`."""
    project = project_for(caller(request), slug, need=role_to_launch(body.priority))
    sweep = sweep_create(
        project=project,
        user=caller(request),
        name=body.name,
        config=config_sent(body),
        axes=body.varied,
        mode=body.mode,
        anyway=body.anyway,
        priority=body.priority,
    )
    rows = sweep.runs.select_related("run")
    return Status(201, Extended(sweep, runs=[row.run for row in rows]))


@router.post("/projects/{slug:slug}/sweeps/plan", response=shapes.SweepPlan)
def sweep_check(request: HttpRequest, slug: str, body: PlanIn) -> Extended:
    """How many runs a sweep would launch, with their steps and bytes; it makes nothing. 422 names the axis."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    plan = plan_of(project, config_sent(body), body.varied, body.mode)
    values = [point.values for point in plan.points]
    return Extended(plan, runs=len(values), values=values, names=run_names("NAME", values))


@router.get("/sweeps/{uuid:sweep_id}", response=shapes.SweepWhole)
def sweep_get(request: HttpRequest, sweep_id: UUID) -> Extended:
    """A sweep with its answer and its settings, each compared with the base: docs/sweeps.md."""
    within = Sweep.objects.select_related("project", "created_by")
    return _whole(board_of(object_for(caller(request), Sweep, sweep_id, within=within), drawn=False))


@router.delete("/sweeps/{uuid:sweep_id}", response=Deleted)
def sweep_remove(request: HttpRequest, sweep_id: UUID, runs: bool = False) -> dict[str, str]:
    """Delete a sweep; its runs stay. With `runs` they are deleted too: owners only, and 409 with their names while some
    have not ended or something uses them."""
    sweep = object_for(caller(request), Sweep, sweep_id, need=Role.OWNER if runs else Role.EDITOR)
    if runs:
        ask(request, Act.DELETE_RUN)
    sweep_delete(sweep=sweep, with_runs=runs)
    return {"deleted": sweep.name}


def _whole(board: Board) -> Extended:
    settings = [
        Extended(
            row.setting,
            verdict=row.verdict,
            gain=row.setting.gain.difference if row.setting.gain else None,
            p_value=row.setting.gain.p_value if row.setting.gain else None,
            runs=[_place(place) for place in row.setting.places],
        )
        for row in board.rows
    ]
    return Extended(board.sweep, answer=board.answer, evidence=board.figures.tries.kind, settings=settings)


def _place(place: Place) -> dict[str, Any]:
    names = {"id": "pk", "name": "name", "state": "state"}
    return {"seed": place.seed} | {name: getattr(place.run, field, None) for name, field in names.items()}
