"""Deletions that failed, on the pages where a person looks after deleting something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django import template

from webapp.common.words import Failure, failure
from webapp.people.teams.models import Membership, Role
from webapp.runs.removal.models import Removal, RemovalState

register = template.Library()
SHOWN = 5


class Failed(NamedTuple):
    """One deletion, why it failed, and whether the reader may try it again."""

    removal: Removal
    why: Failure | None
    mine: bool


@register.inclusion_tag("removal/_failed.html", takes_context=True)
def failed_deletions(context: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the page's project's team; without a project, those of all the reader's teams."""
    request = context["request"]
    if (project := context.get("project")) is not None:
        roles = {project.team_id: project.role}
    else:
        memberships = Membership.objects.filter(user_id=request.user.pk)
        roles = {found.team_id: found.role for found in memberships}
    rows = Removal.objects.filter(team_id__in=list(roles), state=RemovalState.FAILED)[:SHOWN] if roles else []
    failed = [
        Failed(item, failure(item.error), item.team_id is not None and roles[item.team_id] == Role.OWNER)
        for item in rows
    ]
    return {"failed": failed, "back": request.path, "request": request}
