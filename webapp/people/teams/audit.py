"""The audit: one row for each act that changes, stops, deletes, invites or exports.

Services call ``audit``. Who acted, and from where, comes from the request that is being answered; work that a person
asked for and that continues without them (a preset that is launched later) names them by ``by``. Rows are only ever
added; a trigger in the database sees to that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import UUID

from django.apps import apps
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from webapp.common.text import clean_text
from webapp.people.teams.models import AuditAction, AuditEntry, Project, User

logger = logging.getLogger(__name__)
PROJECT = "teams.project"
PAGES = {
    PROJECT: "project-page",
    "runs.run": "run-detail",
    "runs.runimport": "run-import-detail",
    "datasets.dataset": "dataset-detail",
    "rewards.rewardspec": "reward-detail",
    "rewards.rolloutset": "lab-set",
    "environments.environment": "environment-detail",
    "sharing.savedcomparison": "compare-saved",
    "endpoints.endpoint": "endpoint-detail",
    "registry.registeredmodel": "model-detail",
    "votes.voteround": "vote-round",
}
_answered: ContextVar[HttpRequest | None] = ContextVar("audited_request", default=None)


class AuditMiddleware:
    """Know the request while it is answered."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = _answered.set(request)
        try:
            return self.get_response(request)
        finally:
            _answered.reset(token)


def audit(
    action: AuditAction,
    item: Model | None = None,
    *,
    by: User | None = None,
    subject: str = "",
    project: Project | None = None,
) -> AuditEntry | None:
    """Note that a person did this to ``item``, in the caller's transaction. ``None`` where no person acts.

    ``project`` is the item's own, and ``subject`` its name, unless given.
    """
    request = _answered.get()
    user: Any = by or getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    project = project or (item if isinstance(item, Project) else getattr(item, "project", None))
    headers = request.META if request is not None else {}
    entry = AuditEntry.objects.create(
        user_id=user.pk,
        username=user.username,
        action=action,
        subject=clean_text(subject or (str(item) if item is not None else ""))[:200],
        object_kind=item._meta.label_lower if item is not None else "",
        object_id=str(item.pk) if item is not None else "",
        project_id=project.pk if project else None,
        project_name=project.name if project else "",
        address=headers.get("REMOTE_ADDR", "")[:45],
        agent=clean_text(headers.get("HTTP_USER_AGENT", "")[:200]),
    )
    what = {"object_kind": entry.object_kind, "object_id": entry.object_id, "subject": entry.subject[:64]}
    logger.info("audit", extra={"action": action, "user_id": str(user.pk), **what})
    return entry


BY_RULE = UUID(int=0)


def audit_rule(action: AuditAction, item: Model, *, project: Project, subject: str) -> AuditEntry:
    """Note what a rule of the project did to ``item`` while no person acted. No person can have such a name."""
    return AuditEntry.objects.create(
        user_id=BY_RULE,
        username="(rule)",
        action=action,
        subject=clean_text(subject)[:200],
        object_kind=item._meta.label_lower,
        object_id=str(item.pk),
        project_id=project.pk,
        project_name=project.name,
    )


def audit_entries(*, project: str = "", who: str = "") -> QuerySet[AuditEntry]:
    """Rows, newest first: of a project and of a person by name, or all."""
    rows = AuditEntry.objects.all()
    rows = rows.filter(project_name=project) if project else rows
    return rows.filter(username=who) if who else rows


class AuditLine(NamedTuple):
    """A row as the page shows it; ``url`` is empty where the object has no page any more."""

    entry: AuditEntry
    url: str


def audit_lines(entries: Iterable[AuditEntry]) -> list[AuditLine]:
    """Rows with a link to what they are about, while that is there."""
    rows = list(entries)
    slugs = dict(Project.objects.filter(pk__in={row.project_id for row in rows}).values_list("pk", "slug"))
    there: set[tuple[str, str]] = set()
    for kind in {row.object_kind for row in rows} & set(PAGES):
        ids = [row.object_id for row in rows if row.object_kind == kind]
        found = apps.get_model(kind)._default_manager.filter(pk__in=ids).values_list("pk", flat=True)
        there |= {(kind, str(pk)) for pk in found}
    return [
        AuditLine(row, _object_url(row, slugs) if (row.object_kind, row.object_id) in there else "") for row in rows
    ]


def _object_url(row: AuditEntry, slugs: dict[UUID, str]) -> str:
    slug = slugs.get(row.project_id) if row.project_id else None
    if slug is None:
        return ""
    return reverse(PAGES[row.object_kind], args=[slug] if row.object_kind == PROJECT else [slug, row.object_id])


def audit_names() -> dict[str, list[str]]:
    """The projects and people that rows can be filtered by."""
    rows = AuditEntry.objects.order_by()
    return {
        "projects": sorted(set(rows.exclude(project_name="").values_list("project_name", flat=True).distinct())),
        "people": sorted(set(rows.values_list("username", flat=True).distinct())),
    }


def was_done(action: AuditAction, project: Project, subject: str) -> bool:
    """Whether the audit of the project has this action on this subject."""
    return AuditEntry.objects.filter(action=action, project_id=project.pk, subject=subject).exists()
