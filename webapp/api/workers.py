"""Workers over the API, who used their devices, and what each project may have of them and store."""

from __future__ import annotations

from typing import Annotated, Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router

from webapp.api.answers import people as people_answers
from webapp.api.base import caller
from webapp.api.schemas import DrainIn, LimitIn
from webapp.common.answers import Items
from webapp.engine.draining import drain_change
from webapp.people.teams.access import administrator, may_start_projects
from webapp.people.teams.models import User
from webapp.runs.records.limits import Limit, limit_change, limits_for
from webapp.runs.records.usage import MOST_DAYS, USUAL, usage_answer, usage_of

router = Router(tags=["workers"])


@router.get("/usage", response=people_answers.Usage)
def usage(request: HttpRequest, days: Annotated[int, Query(ge=1, le=MOST_DAYS)] = USUAL) -> dict[str, Any]:
    """Hours in which workers had runs, by day, project, person and pool, of the projects that you may see
    (administrators: of all)."""
    return usage_answer(usage_of(caller(request), days))


@router.get("/limits", response=Items[people_answers.ProjectLimit])
def limits_list(request: HttpRequest) -> dict[str, Any]:
    """How many devices the runs of each project that you may see may have at once, and how much it may store
    (administrators: of all)."""
    return {"items": limits_for(caller(request))}


@router.post("/limits", response=people_answers.ProjectLimit)
def limits_set(request: HttpRequest, body: LimitIn) -> Limit:
    """Limit the devices that the runs of a project have at once, and what it stores; null is no limit (administrators;
    a token must be one of an owner that is limited to no project). Runs that have devices keep them, and nothing that
    is stored goes."""
    return limit_change(slug=body.project, limits=body.limits, user=_unlimited_administrator(request))


@router.post("/workers/drain", response=people_answers.HostDrain)
def workers_drain(request: HttpRequest, body: DrainIn) -> dict[str, Any]:
    """Have the workers of a host finish what they do and take nothing new, or with `on: false` work again
    (administrators; a token must be one of an owner that is limited to no project)."""
    drain_change(host=body.host, user=_unlimited_administrator(request), on=body.on)
    return {"host": body.host, "draining": body.on}


def _unlimited_administrator(request: HttpRequest) -> User:
    """The administrator who asks; not by a token with less than all of their rights."""
    user = administrator(request)
    if not may_start_projects(user):
        raise PermissionDenied(_("This token may not do that."))
    return user
