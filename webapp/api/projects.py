"""The caller, starting a project and who is in it, over the API. In the router of its addresses, as removal.py."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import people as people_answers
from webapp.api.base import caller, open_to
from webapp.api.listing import LongNamed, Searched, page_of
from webapp.api.runs import router
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Gone, Items, Page
from webapp.common.pages import clean_name
from webapp.people.teams.access import administrator, may_start_projects, project_for, token_of
from webapp.people.teams.models import Membership, Project, Role, Team, TokenEnd, TokenScope, User
from webapp.people.teams.selectors import member_rows, people, teams_owned
from webapp.people.teams.services import hub_token_remove, hub_token_set, hub_token_since, project_create
from webapp.people.teams.sudo import Act, ask
from webapp.people.teams.tokens import token_revoke, tokens_reaching

of_caller = Router(tags=["me"])


# The caller, over the API.


@of_caller.get("/me", response=people_answers.Me, auth=open_to(TokenScope.METRICS, TokenScope.INGEST))
def me(request: HttpRequest) -> dict[str, Any]:
    """Who you are, and the rights of your token (`null` in a browser)."""
    user = caller(request)
    return {"username": user.username, "token": token_of(user)}


class HubTokenIn(Body):
    """A Hugging Face token, which is never given back."""

    token: str = Field(min_length=1, max_length=500)


class ProjectIn(Body):
    """A new project. `team` is the name of a team that you own; it may be left out where there is only one."""

    name: str = Field(min_length=1, max_length=80)
    team: str = Field(default="", max_length=80)


@router.post("/projects", tags=["projects"], response={201: people_answers.Project})
def project_new(request: HttpRequest, body: ProjectIn) -> Status[Project]:
    """Start a project in a team that you own; its address is made of its name."""
    user = caller(request)
    if not may_start_projects(user):
        raise PermissionDenied(_("This token cannot start a project: it needs the role of owner in all projects."))
    made = project_create(team=_team_for(user, body.team), name=clean_name(body.name), by=user)
    return Status(201, made)


def _team_for(user: User, name: str) -> Team:
    teams = list(teams_owned(user))
    if not teams:
        raise PermissionDenied(_("Only an owner of a team can start a project."))
    found = [team for team in teams if team.name == name] if name else teams
    if len(found) != 1:
        names = ", ".join(team.name for team in teams[:20])
        raise ValidationError({"team": _("Name one of your teams: %(names)s.") % {"names": names}})
    return found[0]


@router.get("/teams", tags=["projects"], response=Items[people_answers.Team])
def teams_list(request: HttpRequest) -> dict[str, Any]:
    """The teams that you are in, by name."""
    rows = Membership.objects.filter(user=caller(request), team__removed_at=None)
    return {"items": rows.select_related("team").order_by("team__name", "pk")}


@router.get("/people", tags=["people"], response=Page[people_answers.Person])
def people_list(request: HttpRequest, asked: Query[Searched]) -> dict[str, Any]:
    """Everyone who can log in or could, by name; `q` is looked for in it (administrators)."""
    administrator(request)
    return page_of(request, people(), asked, text=("username",), at="date_joined")


@router.get("/projects/{slug:slug}/members", tags=["projects"], response=Items[people_answers.Member])
def members_list(request: HttpRequest, slug: str) -> dict[str, Any]:
    """The members of the project's team, owners first. People and roles are changed on the page of the settings."""
    rows = member_rows(project_for(caller(request), slug), caller(request))
    return {"items": [row.membership for row in rows]}


@router.get("/projects/{slug:slug}/hub-token", tags=["projects"], response=people_answers.HubToken)
def hub_token_about(request: HttpRequest, slug: str) -> dict[str, Any]:
    """Since when the project has a Hugging Face token (owners). The token itself is not shown."""
    return {"since": hub_token_since(_owned_project(request, slug))}


@router.post("/projects/{slug:slug}/hub-token", tags=["projects"], response=people_answers.HubToken)
def hub_token_keep(request: HttpRequest, slug: str, body: HubTokenIn) -> dict[str, Any]:
    """Set the token that trainers of the project fetch base models with, or replace it (owners)."""
    project = _owned_project(request, slug)
    ask(request, Act.HUB_TOKEN)
    hub_token_set(project=project, token=body.token)
    return {"since": hub_token_since(project)}


@router.delete("/projects/{slug:slug}/hub-token", tags=["projects"], response=Gone)
def hub_token_delete(request: HttpRequest, slug: str) -> dict[str, bool]:
    """Delete the token (owners). What was fetched with it stays in the project."""
    return {"deleted": hub_token_remove(project=_owned_project(request, slug))}


def _owned_project(request: HttpRequest, slug: str) -> Project:
    return project_for(caller(request), slug, need=Role.OWNER)


@router.get("/projects/{slug:slug}/tokens", tags=["projects"], response=Page[people_answers.ReachingToken])
def tokens_list(request: HttpRequest, slug: str, asked: Query[LongNamed]) -> dict[str, Any]:
    """Every member's tokens that open this project now, by person (owners). Their text is not shown."""
    return page_of(request, tokens_reaching(_owned_project(request, slug)), asked)


@router.delete("/projects/{slug:slug}/tokens/{uuid:token_id}", tags=["projects"], response=Deleted)
def token_delete(request: HttpRequest, slug: str, token_id: UUID) -> dict[str, str]:
    """End one of them for good, whosever it is (owners). Its person sees who did."""
    project, by = _owned_project(request, slug), caller(request)
    token = tokens_reaching(project).filter(pk=token_id).first()
    if token is None:
        raise Http404
    token_revoke(token, TokenEnd.REVOKED if token.user_id == by.pk else TokenEnd.OWNER, by=by, project=project)
    return {"deleted": token.name}
