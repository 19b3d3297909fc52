"""Machine accounts over the API. Making a token needs a person in a browser; a script may revoke tokens."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import people as answers
from webapp.api.base import caller
from webapp.api.listing import LongNamed, page_of
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Page
from webapp.people.teams import tokens
from webapp.people.teams.access import project_for, require_person
from webapp.people.teams.models import ApiToken, Machine, Project, Role, TokenEnd
from webapp.people.teams.sudo import Act, ask
from webapp.people.teams.tokens import token_revoke

router = Router(tags=["machine accounts"])
MAX_DAYS = 3650


class MachineTokenIn(Body):
    """A token to make."""

    days: int | None = Field(default=90, ge=1, le=MAX_DAYS, description="for how long it is valid; null: no limit")


class MachineIn(MachineTokenIn):
    """A machine account and its first token."""

    name: str = Field(min_length=1, max_length=80, description="as a user name; runs and the audit show it")
    may: Literal["metrics", "ingest", "viewer", "editor"] = "editor"
    everywhere: bool = Field(default=False, description="in all projects of the team, not in this one alone")


def _owned_project(request: HttpRequest, slug: str) -> Project:
    return project_for(caller(request), slug, need=Role.OWNER)


def _machine_of(project: Project, machine_id: UUID) -> Machine:
    found = tokens.machine_in(project, machine_id)
    if found is None:
        raise Http404
    return found


def _token_of(machine: Machine, token_id: UUID) -> ApiToken:
    found = tokens.token_in(machine, token_id)
    if found is None:
        raise Http404
    return found


def _require_confirmed(request: HttpRequest, act: Act) -> None:
    require_person(caller(request))
    ask(request, act)


@router.get("/projects/{slug:slug}/machines", response=Page[answers.Machine])
def machines_list(request: HttpRequest, slug: str, asked: Query[LongNamed]) -> dict[str, Any]:
    """The machine accounts of the project's team by name, with their tokens (owners). The tokens' text is not shown."""
    return page_of(request, tokens.machines_of(_owned_project(request, slug).team), asked)


@router.post("/projects/{slug:slug}/machines", response={201: answers.MachineMade})
def machine_new(request: HttpRequest, slug: str, body: MachineIn) -> Status[dict[str, Any]]:
    """Make one with its first token (owners, in a browser). `text` is in this answer and never again."""
    project = _owned_project(request, slug)
    _require_confirmed(request, Act.MACHINE)
    made, token, text = tokens.machine_create(project=project, by=caller(request), **body.model_dump())
    return Status(201, {"id": made.pk, "name": made.name, "token": token, "text": text})


@router.delete("/projects/{slug:slug}/machines/{uuid:machine_id}", response=Deleted)
def machine_gone(request: HttpRequest, slug: str, machine_id: UUID) -> dict[str, str]:
    """End it for good, with its tokens (owners). What it made stays."""
    project = _owned_project(request, slug)
    machine = _machine_of(project, machine_id)
    tokens.machine_end(machine=machine, by=caller(request), project=project)
    return {"deleted": machine.name}


@router.post("/projects/{slug:slug}/machines/{uuid:machine_id}/tokens", response={201: answers.MachineTokenMade})
def machine_token_new(
    request: HttpRequest, slug: str, machine_id: UUID, body: MachineTokenIn
) -> Status[dict[str, Any]]:
    """Another token of it, to change over to (owners, in a browser). `text` is in this answer and never again."""
    project = _owned_project(request, slug)
    machine = _machine_of(project, machine_id)
    _require_confirmed(request, Act.TOKEN)
    token, text = tokens.machine_token(machine=machine, days=body.days, by=caller(request), project=project)
    return Status(201, {"token": token, "text": text})


@router.post(
    "/projects/{slug:slug}/machines/{uuid:machine_id}/tokens/{uuid:machine_token}/replace",
    response={201: answers.MachineTokenMade},
)
def machine_token_replaced(
    request: HttpRequest, slug: str, machine_id: UUID, machine_token: UUID
) -> Status[dict[str, Any]]:
    """Replace a token, which ends now, by another one (owners, in a browser)."""
    project = _owned_project(request, slug)
    machine = _machine_of(project, machine_id)
    old = _token_of(machine, machine_token)
    _require_confirmed(request, Act.TOKEN)
    token, text = tokens.machine_token_rotate(machine=machine, token=old, by=caller(request), project=project)
    return Status(201, {"token": token, "text": text})


@router.delete(
    "/projects/{slug:slug}/machines/{uuid:machine_id}/tokens/{uuid:machine_token}",
    response=Deleted,
)
def machine_token_gone(request: HttpRequest, slug: str, machine_id: UUID, machine_token: UUID) -> dict[str, str]:
    """Revoke one of its tokens (owners)."""
    project = _owned_project(request, slug)
    token = _token_of(_machine_of(project, machine_id), machine_token)
    token_revoke(token, TokenEnd.OWNER, by=caller(request), project=project)
    return {"deleted": token.name}
