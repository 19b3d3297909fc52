"""Vote rounds on pages of rooms below."""

from __future__ import annotations

from typing import Any

from django import template

from webapp.evaluation.votes.selectors import OpenRound, open_rounds
from webapp.people.teams.models import Project

register = template.Library()


@register.simple_tag(takes_context=True)
def rounds_that_wait(context: dict[str, Any], project: Project) -> list[OpenRound]:
    """The rounds in which the reader has ballots left."""
    return open_rounds(project, context["request"].user)
