"""What happened in a project since a person was there: its events, counted and listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import ngettext

from webapp.people.notifications.models import Event, Kind, Visit
from webapp.people.notifications.selectors import BADGES, gone_of
from webapp.people.notifications.words import Words, path_of, words_of
from webapp.people.teams.models import Project, User

VISIT_ENDS = timedelta(minutes=30)
"""Without the page for so long, the next look is another visit."""
WRITTEN_EVERY = timedelta(minutes=1)
AT_FIRST = timedelta(days=1)
"""The news of a person who was never there."""
MOST_SHOWN = 6
MOST_COUNTED = 1_000


class Item(NamedTuple):
    """One event with its words and the address of its object, empty where that is gone."""

    event: Event
    words: Words
    badge: str
    url: str


class News(NamedTuple):
    """The events after ``since``: how many of each kind in words, and the newest of them. ``first``: the person was
    never there before, so that these are of the last day; ``more``: not all were counted."""

    since: datetime
    first: bool
    counts: Sequence[str]
    items: Sequence[Item]
    total: int
    more: bool


def news_of(user: User, project: Project) -> News:
    """What happened since the person's visit before this one; the visit is noted."""
    before = _note_visit(user, project)
    since = before or timezone.now() - AT_FIRST
    concerns = Q(people=[]) | Q(people__contains=[str(user.pk)])
    rows = Event.objects.filter(concerns, project=project, created_at__gt=since).order_by("-created_at", "pk")
    kinds = Counter(Kind(kind) for kind in rows.values_list("kind", flat=True)[: MOST_COUNTED + 1])
    newest = list(rows[:MOST_SHOWN])
    for event in newest:
        event.project = project
    gone = gone_of(newest)
    items = [
        Item(event, words_of(event), BADGES[Kind(event.kind)], "" if event.pk in gone else path_of(event))
        for event in newest
    ]
    total = kinds.total()
    counts = [say(kinds[kind]) for kind, say in COUNTED.items() if kinds[kind]]
    return News(since, before is None, counts, items, min(total, MOST_COUNTED), total > MOST_COUNTED)


def _note_visit(user: User, project: Project) -> datetime | None:
    """When the person was there before this visit. Where nothing can be written, the page comes without noting it."""
    now = timezone.now()
    visit = Visit.objects.filter(user=user, project=project).first()
    before = None if visit is None else visit.last_at if now - visit.last_at > VISIT_ENDS else visit.before_at
    if visit is None or now - visit.last_at > WRITTEN_EVERY:
        with suppress(DatabaseError), transaction.atomic():
            Visit.objects.update_or_create(user=user, project=project, defaults={"last_at": now, "before_at": before})
    return before


COUNTED: dict[Kind, Callable[[int], str]] = {
    Kind.RUN_FAILED: lambda n: ngettext("%(n)d run failed", "%(n)d runs failed", n) % {"n": n},
    Kind.RUN_PAUSED: lambda n: ngettext("%(n)d run paused", "%(n)d runs paused", n) % {"n": n},
    Kind.RUN_ADVISORY: lambda n: ngettext("%(n)d advisory", "%(n)d advisories", n) % {"n": n},
    Kind.RUN_SUCCEEDED: lambda n: ngettext("%(n)d run succeeded", "%(n)d runs succeeded", n) % {"n": n},
    Kind.EVALUATION_READY: lambda n: ngettext("%(n)d evaluation is ready", "%(n)d evaluations are ready", n) % {"n": n},
    Kind.VOTE_ASKED: lambda n: ngettext("%(n)d vote was asked for", "%(n)d votes were asked for", n) % {"n": n},
    Kind.MODEL_PRODUCTION: lambda n: (
        ngettext("%(n)d model went to production", "%(n)d models went to production", n) % {"n": n}
    ),
}
"""What broke comes first."""
