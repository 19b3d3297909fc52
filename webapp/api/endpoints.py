"""Endpoints over the API. Keys are only ever written: an answer says whether there is one."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field

from webapp.api.answers import models as models_answers
from webapp.api.base import caller
from webapp.api.listing import Named, page_of
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Page
from webapp.common.pages import probe_allowed
from webapp.endpoints.models import Endpoint
from webapp.endpoints.selectors import endpoints_of, row_of, with_use
from webapp.endpoints.services import endpoint_change, endpoint_create, endpoint_delete
from webapp.endpoints.testing import endpoint_test, findings_of
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act, ask

router = Router(tags=["endpoints"])


class EndpointPatch(Body):
    """What may be changed; what is left out stays. `key` replaces the key, and an empty one removes it."""

    url: str = Field(default="", max_length=500)
    model: str = Field(default="", max_length=200)
    key: str | None = Field(default=None, max_length=500)
    tool_format: Literal["native", "text"] = "native"
    context_tokens: int | None = None
    concurrency: int = 8
    timeout_s: float = 120.0
    price_in: float | None = None
    price_out: float | None = None
    currency: str = Field(default="", max_length=3)
    max_run_tokens: int | None = None
    max_run_cost: float | None = None
    max_day_tokens: int | None = None
    max_day_cost: float | None = None


class EndpointIn(EndpointPatch):
    """A new endpoint; prices are of a million tokens, and what has no limit is left out."""

    name: str = Field(min_length=1, max_length=80)
    url: str = Field(min_length=1, max_length=500)
    model: str = Field(min_length=1, max_length=200)


def _tested(endpoint: Endpoint) -> Extended:
    """An endpoint with its last test and its use."""
    row = row_of(endpoint)
    more = {"findings": findings_of(endpoint), "used_today": row.today, "used": row.total}
    return Extended(endpoint, has_key=row.has_key, state=row.state, **more)


def _endpoint_for(request: HttpRequest, endpoint_id: UUID, need: Role = Role.VIEWER) -> Endpoint:
    return object_for(
        caller(request), Endpoint, endpoint_id, need=need, within=Endpoint.objects.select_related("project")
    )


@router.get("/projects/{slug:slug}/endpoints", response=Page[models_answers.Endpoint])
def endpoints_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The endpoints of a project by name, with their use."""
    return page_of(request, with_use(endpoints_of(project_for(caller(request), slug))), asked, _tested)


@router.post("/projects/{slug:slug}/endpoints", response={201: models_answers.Endpoint})
def endpoint_new(request: HttpRequest, slug: str, body: EndpointIn) -> Status[Extended]:
    """Add an endpoint. It is not tested yet."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    values = body.model_dump() | {"key": body.key or ""}
    if values["key"]:
        ask(request, Act.ENDPOINT_KEY)
    return Status(201, _tested(endpoint_create(project=project, user=caller(request), **values)))


@router.get("/endpoints/{uuid:endpoint_id}", response=models_answers.Endpoint)
def endpoint_get(request: HttpRequest, endpoint_id: UUID) -> Extended:
    """One endpoint."""
    return _tested(_endpoint_for(request, endpoint_id))


@router.patch("/endpoints/{uuid:endpoint_id}", response=models_answers.Endpoint)
def endpoint_patch(request: HttpRequest, endpoint_id: UUID, body: EndpointPatch) -> Extended:
    """Change what is given. With an address at another server the key must be given too."""
    endpoint = _endpoint_for(request, endpoint_id, Role.EDITOR)
    if body.key is not None:
        ask(request, Act.ENDPOINT_KEY)
    return _tested(endpoint_change(endpoint=endpoint, **body.model_dump(exclude_unset=True)))


@router.delete("/endpoints/{uuid:endpoint_id}", response=Deleted)
def endpoint_remove(request: HttpRequest, endpoint_id: UUID) -> dict[str, str]:
    """Delete an endpoint with its key. 409 while a run that uses it is queued or at work."""
    endpoint = _endpoint_for(request, endpoint_id, Role.EDITOR)
    endpoint_delete(endpoint=endpoint)
    return {"deleted": endpoint.reference}


@router.post("/endpoints/{uuid:endpoint_id}/test", response=models_answers.Endpoint)
def endpoint_tested(request: HttpRequest, endpoint_id: UUID) -> Extended:
    """Test it with one tiny chat and a tool, and return the findings."""
    endpoint = _endpoint_for(request, endpoint_id, Role.EDITOR)
    if not probe_allowed(caller(request)):
        raise HttpError(429, "")
    return _tested(endpoint_test(endpoint))
