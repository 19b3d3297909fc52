"""A person's notifications, only of projects whose member they still are."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.apps import apps
from django.contrib.auth.models import AnonymousUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection
from django.db.models import Func, IntegerField, QuerySet

from webapp.people.notifications.models import Delivery, Event, Kind, Notification, Reader, Scope, Watch
from webapp.people.notifications.words import PAGES, Words, path_of, words_of
from webapp.people.teams.access import projects_of, token_of
from webapp.people.teams.models import Project, User

MOST_COUNTED = 100
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
