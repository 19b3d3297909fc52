"""A person's notifications, only of projects whose member they still are."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.apps import apps
from django.contrib.auth.models import AnonymousUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db import DatabaseError, connection, transaction
from django.db.models import Func, IntegerField, Q, QuerySet
from django.utils import timezone
from django.utils.translation import ngettext

from webapp.people.notifications.models import Delivery, Event, Kind, Notification, Reader, Scope, Visit, Watch
from webapp.people.notifications.words import PAGES, Words, path_of, words_of
from webapp.people.teams.access import projects_of, token_of
from webapp.people.teams.models import Project, User

MOST_COUNTED = 100
MOST_NEWS = 1_000
_SOMEBODY = UUID(int=0)
BADGES = {
    Kind.RUN_SUCCEEDED: "succeeded",
    Kind.EVALUATION_READY: "ready",
    Kind.RUN_FAILED: "failed",
    Kind.RUN_PAUSED: "paused",
    Kind.RUN_ADVISORY: "warning",
    Kind.VOTE_ASKED: "needs_choice",
    Kind.MODEL_PRODUCTION: "ok",
}


class Line(NamedTuple):
    """One notification as the list shows it; ``there`` is false where its object is gone."""

    item: Notification
    words: Words
    badge: str
    there: bool


def notifications_of(user: User | AnonymousUser, *, slug: str = "", unread: bool = False) -> QuerySet[Notification]:
    """A person's notifications, newest first: of one project or of all, all or only those that are unread."""
    projects = projects_of(user).order_by()
    if slug:
        projects = projects.filter(slug=slug)
    own = Notification.objects.filter(user_id=user.pk) if user.pk is not None else Notification.objects.none()
    rows = own.filter(event__project__in=projects)
    if unread:
        rows = rows.filter(read_at=None)
    return rows.select_related("event__project")


class PageProject(NamedTuple):
    """A project as every page names it."""

    pk: UUID
    name: str
    slug: str


def projects_and_unread(user: User | AnonymousUser) -> tuple[list[PageProject], int]:
    """A person's projects by name, and how many of their notifications of these are unread, ``MOST_COUNTED`` at most:
    one query for every page, which reads no more of them than it counts."""
    if not isinstance(user, User):
        return [], 0
    if token_of(user) is not None:
        rows = list(_projects_and_unread(user))
    else:
        sql, values = _sql_of_projects_and_unread()
        with connection.cursor() as cursor:
            cursor.execute(sql, [user.pk if value == _SOMEBODY else value for value in values])
            rows = cursor.fetchall()
    return [PageProject(pk, name, slug) for pk, name, slug, _unread in rows], rows[0][3] if rows else 0


def _projects_and_unread(user: User) -> QuerySet[Project, tuple[UUID, str, str, int]]:
    own = Notification.objects.filter(user_id=user.pk, read_at=None, event__project__in=projects_of(user).order_by())
    counted = ArraySubquery(own.order_by().values("pk")[:MOST_COUNTED])
    unread = Func(counted, function="CARDINALITY", output_field=IntegerField())
    return projects_of(user).annotate(unread=unread).values_list("pk", "name", "slug", "unread")


@functools.cache
def _sql_of_projects_and_unread() -> tuple[str, tuple[Any, ...]]:
    """The query of a person without a token and its values, with ``_SOMEBODY`` in the person's place. To put it
    together costs Django more than to ask it."""
    return _projects_and_unread(User(pk=_SOMEBODY)).query.sql_with_params()


def lines_of(rows: Iterable[Notification]) -> list[Line]:
    """Notifications in the reader's words."""
    items = list(rows)
    gone = gone_of([item.event for item in items])
    return [
        Line(item, words_of(item.event), BADGES[Kind(item.event.kind)], item.event.pk not in gone) for item in items
    ]


def gone_of(events: Sequence[Event]) -> set[UUID]:
    """The events whose objects had a page and are gone; a query for each kind of object."""
    there: set[tuple[str, str]] = set()
    for kind in {event.object_kind for event in events} & set(PAGES):
        ids = [event.object_id for event in events if event.object_kind == kind]
        found = apps.get_model(kind)._default_manager.filter(pk__in=ids).values_list("pk", flat=True)
        there |= {(kind, str(pk)) for pk in found}
    return {
        event.pk for event in events if event.object_kind in PAGES and (event.object_kind, event.object_id) not in there
    }


def notification_of(user: User | AnonymousUser, pk: int) -> Notification | None:
    """One of the person's own notifications, while they may still see it."""
    return notifications_of(user).filter(pk=pk).first()


def notification_path(item: Notification) -> str:
    """The page that it leads to."""
    return path_of(item.event)


class Choice(NamedTuple):
    """A person's choice for one project."""

    project: Project
    scope: str
    mail: bool


def reader_of(user: User, language: str) -> Reader:
    """A person's own settings; where there are none yet, all events in ``language``."""
    return Reader.objects.filter(user=user).first() or Reader(user=user, language=language)


def choices_of(user: User) -> list[Choice]:
    """A person's choice for each of their projects."""
    watches = {watch.project_id: watch for watch in Watch.objects.filter(user=user)}
    plain = Watch(scope=Scope.MINE, mail=False)
    found = [(project, watches.get(project.pk, plain)) for project in projects_of(user)]
    return [Choice(project, watch.scope, watch.mail) for project, watch in found]


def last_mail(user: User) -> Delivery | None:
    """The last mail that was tried for a person."""
    rows = Delivery.objects.filter(user=user, tried_at__isnull=False).select_related("event__project")
    return rows.order_by("-tried_at").first()


# --- Reader ---------------------------------------------------------------------------------------------------------
# The reader of a page, and what every page shows of them; read once for each page.


class PageReader(NamedTuple):
    """The reader's projects, by name, and how many of their notifications are unread."""

    projects: Sequence[PageProject]
    unread: int


def reader_of_page(context: dict[str, Any]) -> PageReader:
    """The reader of the page that a template draws; without projects where it has none."""
    request = context.get("request")
    user = getattr(request, "user", None)
    if request is None or user is None or not user.is_authenticated:
        return PageReader([], 0)
    found: PageReader | None = getattr(request, "page_reader", None)
    if found is None:
        found = request.page_reader = PageReader(*projects_and_unread(user))
    return found


# What happened in a project since a person was there: its events, counted and listed.

VISIT_ENDS = timedelta(minutes=30)
"""Without the page for so long, the next look is another visit."""
WRITTEN_EVERY = timedelta(minutes=1)
AT_FIRST = timedelta(days=1)
"""The news of a person who was never there."""
MOST_SHOWN = 6


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
    kinds = Counter(Kind(kind) for kind in rows.values_list("kind", flat=True)[: MOST_NEWS + 1])
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
    return News(since, before is None, counts, items, min(total, MOST_NEWS), total > MOST_NEWS)


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
