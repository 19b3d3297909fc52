"""Suites on pages of rooms below."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse

from webapp.evaluation.suites.models import Suite
from webapp.people.teams.models import Project

register = template.Library()
OFFERED = 10


@register.inclusion_tag("suites/_play.html")
def play_a_suite(project: Project, contestant: str) -> dict[str, Any]:
    """A menu of the project's suites, each with this contestant chosen; nothing where there is none."""
    query = urlencode({"contestant": contestant})
    rows = Suite.objects.filter(project=project)[:OFFERED]
    return {"suites": [(suite, f"{reverse('suite-detail', args=[project.slug, suite.pk])}?{query}") for suite in rows]}
