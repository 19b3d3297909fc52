"""The one way to announce an event: ``notify``, called in the transaction of the change itself.

The event is a row of that transaction, so it is there exactly when the change is. A message then asks for a worker; if
it is lost, ``webapp.common.work`` asks again. This room lies below runs and models: they call it, it imports none of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Model, QuerySet
from django.db.models.functions import Now

from training.errors import TiltyardError
from webapp.common import work
from webapp.common.text import clean_json, clean_text
from webapp.common.work import Claim
from webapp.people.notifications.delivering import has_server
from webapp.people.notifications.models import (
    Channel,
    Delivery,
    DeliveryState,
    Event,
    EventState,
    Kind,
    Notification,
    Reader,
    ReaderState,
    Scope,
    Watch,
)
from webapp.people.teams.models import Project, User


def notify(
    kind: Kind,
    item: Model,
    *,
    key: str,
    project_id: UUID | None = None,
    person_id: UUID | None = None,
    people: Iterable[User] = (),
    subject: str = "",
    facts: dict[str, Any] | None = None,
) -> Event:
    """Announce that ``kind`` happened to ``item``, to the people who watch its project and to the project's channels.

    ``key`` names the happening: a second call with the same key returns the event that is there. ``person_id`` is
    its owner (people are notified of their own runs by default; without an owner it concerns everybody). ``people``
    limits it to these. ``webapp.people.notifications.words`` makes sentences of the ``facts``.
    """
    project = project_id or item.project_id  # type: ignore[attr-defined]
    fields = {
        "project_id": project,
        "kind": kind,
        "person_id": person_id,
        "people": [str(person.pk) for person in people],
        "object_kind": item._meta.label_lower,
        "object_id": str(item.pk),
        "subject": clean_text(subject or str(item))[:200],
        "facts": clean_json(facts or {}),
    }
    with transaction.atomic():
        event, made = Event.objects.get_or_create(key=key, defaults=fields)
        if made:
            work.enqueue(event)
    return event


# --- Services -------------------------------------------------------------------------------------------------------
# What a person changes: what is read, what they are notified of, a test mail.


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


# --- Recipients -----------------------------------------------------------------------------------------------------
# Who is notified of an event: decided once, by a worker, in one transaction that also ends the event.
#
# Only people who are members at that moment get a row. Pages and mail check membership again: a person who was removed
# since then sees and gets nothing more.

KEEP = timedelta(days=180)
DELETED_AT_ONCE = 500


def event_spread(claim: Claim[Event]) -> None:
    """Write a row for each recipient, and ask for workers that mail and post."""
    event = claim.item
    project = Project.objects.filter(pk=event.project_id).first()
    with claim.held():
        made = _write_recipients(event, project) if project is not None else []
        claim.finish(state=EventState.SPREAD)
        for delivery in made:
            work.enqueue(delivery)
    _forget_old()


def event_failed(_event: Event, _error: TiltyardError) -> dict[str, Any]:
    """The columns of an event that could not be spread; the log has why."""
    return {"state": EventState.FAILED}


def _write_recipients(event: Event, project: Project) -> list[Delivery]:
    people = User.objects.filter(is_active=True, is_machine=False, memberships__team_id=project.team_id)
    if event.people:
        people = people.filter(pk__in=event.people)
    watches = {watch.user_id: watch for watch in Watch.objects.filter(project=project)}
    muted = dict(Reader.objects.filter(user__in=people).values_list("user_id", "muted"))
    notified = [user for user in people if _is_interested(event, user, watches.get(user.pk), muted.get(user.pk, ()))]
    Notification.objects.bulk_create([Notification(event=event, user=user) for user in notified])
    mailed = [user for user in notified if user.email and _gets_mail(watches.get(user.pk))] if has_server() else []
    deliveries = [Delivery(event=event, user=user) for user in mailed]
    channels = [item for item in Channel.objects.filter(project=project) if event.kind in item.events]
    deliveries += [Delivery(event=event, channel=item, state=_delivery_state(item)) for item in channels]
    Delivery.objects.bulk_create(deliveries)
    return [item for item in deliveries if item.state == DeliveryState.WAITING]


def _gets_mail(watch: Watch | None) -> bool:
    return watch is not None and watch.mail


def _delivery_state(channel: Channel) -> DeliveryState:
    return DeliveryState.HELD if channel.paused_at else DeliveryState.WAITING


def _is_interested(event: Event, user: User, watch: Watch | None, muted: Iterable[str]) -> bool:
    scope = watch.scope if watch is not None else Scope.MINE
    if event.kind in muted or scope == Scope.NONE:
        return False
    return scope == Scope.ALL or event.person_id in {None, user.pk}


def _forget_old() -> None:
    """Delete old events, with everything that depends on them."""
    old = Event.objects.filter(created_at__lt=Now() - KEEP).order_by("created_at").values_list("pk", flat=True)
    if keys := list(old[:DELETED_AT_ONCE]):
        Event.objects.filter(pk__in=keys).delete()
