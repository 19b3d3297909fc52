"""What a person changes: what is read, what they are notified of, a test mail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from webapp.common import work
from webapp.people.notifications.models import Kind, Notification, Reader, ReaderState, Watch
from webapp.people.teams.models import User


def notification_mark(item: Notification, *, read: bool) -> None:
    """Mark it as read, or as unread again."""
    Notification.objects.filter(pk=item.pk).update(read_at=Now() if read else None)


def notifications_read(rows: QuerySet[Notification]) -> int:
    """Mark all of these as read; returns how many were not."""
    keys = rows.filter(read_at=None).order_by().values_list("pk", flat=True)
    return Notification.objects.filter(pk__in=list(keys)).update(read_at=Now())


def settings_save(user: User, *, told: Iterable[str], language: str, choices: Mapping[UUID, tuple[str, bool]]) -> None:
    """Keep a person's settings: the kinds of events they are notified of, their language; scope and mail by project."""
    kept = set(told)
    muted = [kind for kind in Kind.values if kind not in kept]
    with transaction.atomic():
        Reader.objects.update_or_create(user=user, defaults={"muted": muted, "language": language})
        for project_id, (scope, mail) in choices.items():
            values = {"scope": scope, "mail": mail}
            Watch.objects.update_or_create(user=user, project_id=project_id, defaults=values)


def test_mail_ask(user: User, language: str) -> bool:
    """Have a worker send a test mail; false where one is on its way."""
    reader, _made = Reader.objects.get_or_create(user=user, defaults={"language": language})
    idle = Reader.objects.filter(pk=reader.pk, state=ReaderState.IDLE)
    with transaction.atomic():
        if not idle.update(state=ReaderState.TESTING, told=None, worked=None, token="", tries=0, heard_at=None):
            return False
        work.enqueue(reader)
    return True


test_mail_ask.__test__ = False  # type: ignore[attr-defined]  # not pytest's
