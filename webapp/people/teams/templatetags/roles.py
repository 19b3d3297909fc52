"""Template tags that depend on the reader's role."""

from __future__ import annotations

from django import template

from webapp.people.teams.models import Project, Role

register = template.Library()


@register.filter
def role_at_least(project: Project, need: str) -> bool:
    """Whether the reader's role in this project (set by ``project_for``) reaches ``need``."""
    order = [Role.VIEWER, Role.EDITOR, Role.OWNER]
    return order.index(getattr(project, "role", Role.VIEWER)) >= order.index(Role(need))
