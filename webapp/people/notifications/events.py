"""The one way to tell that something happened: ``notify``, called in the transaction of the change itself.

The event is a row of that transaction, so it is there exactly when the change is. A message then asks for a worker; if
it is lost, ``webapp.common.work`` asks again. This room lies below runs and models: they call it, it knows none of
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Model

from webapp.common import work
from webapp.common.text import clean_json, clean_text
from webapp.people.notifications.models import Event, Kind
from webapp.people.teams.models import User


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
    """Tell that ``kind`` happened to ``item``: whoever watches its project hears of it, and the project's channels.

    ``key`` names the happening: told again under the same key, the event that is there is given back. ``person_id`` is
    whose it is (people hear of their own runs by default; without one it concerns everybody); ``people`` are the only
    ones whom it concerns. ``facts`` are what ``webapp.people.notifications.words`` makes sentences of.
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
