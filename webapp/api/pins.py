"""Charts that are pinned to a project's page, over the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from webapp.api.answers import runs as answers
from webapp.api.base import caller, open_to
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Items
from webapp.common.strings import metric_titles
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role, TokenScope
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.pins.services import chart_pin, chart_unpin, pin_view, pins_shown

router = Router(tags=["projects"])
Metric = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PinIn(Body):
    """A chart of a run."""

    key: Metric = Field(description="of the chart: a metric, `success` or `components`")
    names: list[Metric] = Field(min_length=1, max_length=32, description="the metrics that it draws")
    smooth: float = Field(0, ge=0, lt=1)
    log: bool = False
    x: Literal["step", "time", "rollouts", "tokens"] = "step"
    stack: bool = True


@router.get("/projects/{slug:slug}/pins", response=Items[answers.Pin], auth=open_to(TokenScope.METRICS))
def pins(request: HttpRequest, slug: str) -> dict[str, Any]:
    """The charts that are pinned to a project's page, oldest first."""
    return {"items": pins_shown(project_for(caller(request), slug))}


@router.post("/runs/{uuid:run_id}/pins", response={201: answers.Pin})
def pin(request: HttpRequest, run_id: UUID, body: PinIn) -> Status:
    """Pin a chart of a run to its project's page; pinned again it takes the new view. 409 where it has twelve."""
    within = Run.objects.select_related("project")
    run = object_for(caller(request), Run, run_id, need=Role.EDITOR, within=within)
    view = body.model_dump(include={"smooth", "log", "x", "stack"})
    try:
        made = chart_pin(run=run, key=body.key, names=body.names, view=view, user=caller(request))
    except ValidationError as exc:
        raise HttpError(409, exc.messages[0]) from exc
    return Status(201, pin_view(made, metric_titles()))


@router.delete("/pins/{uuid:pin_id}", response=Deleted)
def unpin(request: HttpRequest, pin_id: UUID) -> dict[str, str]:
    """Take a chart off its project's page."""
    within = PinnedChart.objects.select_related("project")
    found = object_for(caller(request), PinnedChart, pin_id, need=Role.EDITOR, within=within)
    chart_unpin(pin=found)
    return {"deleted": found.key}
