"""Who is notified of an event: decided once, by a worker, in one transaction that also ends the event.

Only people who are members at that moment get a row. Pages and mail check membership again: a person who was removed
since then sees and gets nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from training.errors import TiltyardError
from webapp.common import work
from webapp.common.work import Claim
from webapp.people.notifications.mailing import has_server
from webapp.people.notifications.models import (
    Channel,
    Delivery,
    DeliveryState,
    Event,
    EventState,
    Notification,
    Reader,
    Scope,
    Watch,
)
from webapp.people.teams.models import Project, User

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
    told = [user for user in people if _is_interested(event, user, watches.get(user.pk), muted.get(user.pk, ()))]
    Notification.objects.bulk_create([Notification(event=event, user=user) for user in told])
    mailed = [user for user in told if user.email and _gets_mail(watches.get(user.pk))] if has_server() else []
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
