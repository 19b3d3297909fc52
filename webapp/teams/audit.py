"""The audit: one row for each dangerous act. Rows are only ever added; a trigger in the database sees to that."""

from __future__ import annotations

import logging

from django.db.models import QuerySet
from django.http import HttpRequest

from webapp.teams.models import AuditAction, AuditEntry, Project, User
from webapp.text import clean_text

logger = logging.getLogger(__name__)


def audit_write(
    request: HttpRequest, user: User, action: AuditAction, *, subject: str = "", project: Project | None = None
) -> AuditEntry:
    """Note an act, with the person and the request that it came from."""
    entry = AuditEntry.objects.create(
        user_id=user.pk,
        username=user.username,
        action=action,
        subject=subject[:200],
        project_id=project.pk if project else None,
        project_name=project.name if project else "",
        address=request.META.get("REMOTE_ADDR", "")[:45],
        agent=clean_text(request.META.get("HTTP_USER_AGENT", "")[:200]),
    )
    logger.info("audit", extra={"action": action, "user_id": str(user.pk), "subject": subject[:64]})
    return entry


def audit_entries() -> QuerySet[AuditEntry]:
    """All rows, newest first."""
    return AuditEntry.objects.all()


def was_done(action: AuditAction, project: Project, subject: str) -> bool:
    """Whether somebody did this to that in a project."""
    return AuditEntry.objects.filter(action=action, project_id=project.pk, subject=subject).exists()
