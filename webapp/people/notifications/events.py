"""The one way to announce an event: ``notify``, called in the transaction of the change itself.

The event is a row of that transaction, so it is there exactly when the change is. A message then asks for a worker; if
it is lost, ``webapp.common.work`` asks again. This room lies below runs and models: they call it, it imports none of
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
