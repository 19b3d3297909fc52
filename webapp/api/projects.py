"""Starting a project over the API, and who is in it. In the router of its addresses, as webapp/api/removal.py."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Status
from pydantic import Field

from webapp.api.answers import people as people_answers
from webapp.api.answers.base import Items
from webapp.api.base import caller
from webapp.api.runs import router
from webapp.api.schemas import Body, project_out
from webapp.pages import clean_name
from webapp.teams.access import may_start_projects, project_for
from webapp.teams.models import Team, User
from webapp.teams.selectors import member_rows, teams_owned
from webapp.teams.services import project_create


class ProjectIn(Body):
    """A new project. `team` is the name of a team that you own; it may be left out where there is only one."""

    name: str = Field(min_length=1, max_length=80)
    team: str = Field(default="", max_length=80)


@router.post("/projects", tags=["projects"], response={201: people_answers.Project})
def project_new(request: HttpRequest, body: ProjectIn) -> Status[dict[str, Any]]:
    """Start a project in a team that you own; its address is made of its name."""
    user = caller(request)
    if not may_start_projects(user):
        raise PermissionDenied(_("This token cannot start a project: it needs the role of owner in all projects."))
    made = project_create(team=_team(user, body.team), name=clean_name(body.name), by=user)
    return Status(201, project_out(made))


def _team(user: User, name: str) -> Team:
    teams = list(teams_owned(user))
    if not teams:
        raise PermissionDenied(_("Only an owner of a team can start a project."))
    found = [team for team in teams if team.name == name] if name else teams
    if len(found) != 1:
        names = ", ".join(team.name for team in teams[:20])
        raise ValidationError({"team": _("Name one of your teams: %(names)s.") % {"names": names}})
    return found[0]


@router.get("/projects/{slug:slug}/members", tags=["projects"], response=Items[people_answers.Member])
def members_list(request: HttpRequest, slug: str) -> dict[str, Any]:
    """The members of the project's team, owners first. People and roles are changed on the page of the settings."""
    rows = member_rows(project_for(caller(request), slug), caller(request))
    return {"items": [{"username": row.membership.user.username, "role": row.membership.role} for row in rows]}
