"""What people do with an environment over the API: changing, checking and deleting it, asking it for datasets.

The operations are in the router of their addresses: one address belongs to one router.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Status
from ninja.errors import HttpError
from pydantic import Field

from webapp.api.answers import data as data_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import LongNamed, page_of
from webapp.api.objects import router
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Page
from webapp.common.pages import probe_allowed
from webapp.environments.models import DatasetOrder, Environment
from webapp.environments.orders import order_create, orders_of
from webapp.environments.services import environment_change, environment_check, environment_delete
from webapp.people.teams.access import object_for
from webapp.people.teams.models import Role

LIMITS = ("arguments", "slots", "cpus", "memory_mb", "pids")


class EnvironmentPatch(Body):
    """Options and limits of servers that are started here; what is left out stays. `arguments` are replaced whole."""

    arguments: dict[str, Any] | None = None
    slots: int | None = Field(default=None, ge=1, le=4096)
    cpus: float | None = Field(default=None, ge=0.1, le=64)
    memory_mb: int | None = Field(default=None, ge=64, le=262_144)
    pids: int | None = Field(default=None, ge=8, le=4096)


class OrderIn(Body):
    """A dataset to generate: a command of the environment's program, the dataset's name, the command's options."""

    command: str = Field(max_length=40)
    name: str = Field(min_length=1, max_length=80)
    arguments: dict[str, Any] = Field(default_factory=dict)


def _environment_for(request: HttpRequest, environment_id: UUID, need: Role = Role.EDITOR) -> Environment:
    within = Environment.objects.select_related("project")
    return object_for(caller(request), Environment, environment_id, need=need, within=within)


@router.patch("/environments/{uuid:environment_id}", tags=["environments"], response=data_answers.Environment)
def environment_patch(request: HttpRequest, environment_id: UUID, body: EnvironmentPatch) -> Environment:
    """Change options and limits; every replica starts again with them. 409 while an open run plays on it."""
    environment = _environment_for(request, environment_id)
    given = body.model_dump(exclude_none=True)
    environment_change(
        environment=environment, **{name: given.get(name, getattr(environment, name)) for name in LIMITS}
    )
    return environment


@router.delete("/environments/{uuid:environment_id}", tags=["environments"], response=Deleted)
def environment_remove(request: HttpRequest, environment_id: UUID) -> dict[str, str]:
    """Delete an environment; its servers end. 409 while an open run plays on it."""
    environment = _environment_for(request, environment_id)
    environment_delete(environment=environment)
    return {"deleted": environment.reference}


@router.post("/environments/{uuid:environment_id}/check", tags=["environments"], response=data_answers.Environment)
def environment_checked(request: HttpRequest, environment_id: UUID) -> Environment:
    """Check its servers now, and have it validate itself."""
    environment = _environment_for(request, environment_id)
    if not probe_allowed(caller(request)):
        raise HttpError(429, _("Too many checks in one minute; wait a moment."))
    environment_check(environment=environment)
    return _environment_for(request, environment_id)


@router.get(
    "/environments/{uuid:environment_id}/dataset-orders",
    tags=["environments"],
    response=Page[data_answers.DatasetOrder],
)
def orders_list(request: HttpRequest, environment_id: UUID, asked: Query[LongNamed]) -> dict[str, Any]:
    """The datasets that were asked of it, newest first."""
    environment = _environment_for(request, environment_id, Role.VIEWER)
    return page_of(request, orders_of(environment), asked)


@router.post(
    "/environments/{uuid:environment_id}/dataset-orders",
    tags=["environments"],
    response={201: data_answers.DatasetOrder},
)
@once
def order_new(request: HttpRequest, environment_id: UUID, body: OrderIn) -> Status[DatasetOrder]:
    """Have a built-in environment write a dataset in the background."""
    made = order_create(
        environment=_environment_for(request, environment_id), user=caller(request), **body.model_dump()
    )
    return Status(201, made)
