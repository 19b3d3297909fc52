"""Reading environments."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.environments.models import Environment
from webapp.teams.models import Project

STALE_AFTER_S = 90


class HealthView(NamedTuple):
    """What a row of the list says about one server."""

    state: str  # ok, degraded, bad, unknown
    version: str
    sessions: int | None
    slots: int | None
    checked_s: int | None
    stale: bool
    error: str
    hint: str


def environments_of(project: Project) -> QuerySet[Environment]:
    """The project's environments by name."""
    return Environment.objects.filter(project=project).select_related("project").order_by("name")


def environment_named(project: Project, name: str) -> Environment | None:
    """The environment with this name in the project."""
    return environments_of(project).filter(name=name).first()


def health_view(environment: Environment) -> HealthView:
    """The last check of an environment in the words of the list."""
    health = environment.health if isinstance(environment.health, dict) else {}
    error = health.get("error") or {}
    checked_s = None
    if environment.checked_at:
        checked_s = max(0, int((timezone.now() - environment.checked_at).total_seconds()))
    state = "unknown"
    if environment.healthy is not None:
        state = "bad" if not environment.healthy else ("degraded" if health.get("status") == "degraded" else "ok")
    return HealthView(
        state=state,
        version=str(health.get("version", ""))[:80],
        sessions=health.get("sessions"),
        slots=health.get("slots"),
        checked_s=checked_s,
        stale=checked_s is not None and checked_s > STALE_AFTER_S,
        error=_(str(error.get("message", ""))) if error.get("message") else "",
        hint=_(str(error.get("hint", ""))) if error.get("hint") else "",
    )
