"""Who used the devices: hours by day, project and person.

An hour is an hour of a device that a run had, from the times of attempts: a run on four devices uses four in an hour.
Chats, checks, imported runs and runs that were deleted are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from webapp.common.pools import TRAIN
from webapp.people.teams.access import projects_of, token_of
from webapp.people.teams.models import Project, User
from webapp.runs.states import LEASED

USUAL, MOST_DAYS = 30, 366

# The time of each attempt is cut at the midnights of the site. An attempt that has no end counts until now while its
# run has a worker; one that was lost without an end counts nothing. The rows without a day are the sums over all days:
# the runs of two days cannot be added up.
_USED = """
WITH tried AS (
    SELECT r.id AS run, r.project_id, r.created_by_id, r.pool, r.devices, a.started_at,
        COALESCE(a.ended_at, now()) AS until
    FROM runs_attempt a JOIN runs_run r ON r.id = a.run_id
    WHERE r.project_id = ANY(%(projects)s) AND NOT r.imported AND r.removed_at IS NULL
      AND (a.ended_at IS NOT NULL OR (a.number = r.attempt AND r.state = ANY(%(leased)s)))
      AND COALESCE(a.ended_at, now()) > %(since)s AND a.started_at < COALESCE(a.ended_at, now())
), cut AS (
    SELECT t.*, day, EXTRACT(EPOCH FROM LEAST(t.until, (%(bounds)s::timestamptz[])[day + 1])
        - GREATEST(t.started_at, (%(bounds)s::timestamptz[])[day])) AS seconds
    FROM tried t CROSS JOIN LATERAL generate_series(
        GREATEST(1, width_bucket(t.started_at, %(bounds)s::timestamptz[])),
        LEAST(%(days)s, width_bucket(t.until, %(bounds)s::timestamptz[]))
    ) AS day
)
SELECT day, project_id, created_by_id, pool, SUM(seconds * devices)::float8, COUNT(DISTINCT run)
FROM cut WHERE seconds > 0
GROUP BY GROUPING SETS ((day, project_id, created_by_id, pool), (project_id, created_by_id, pool))
"""


class Used(NamedTuple):
    """Hours of one person in one project and pool. ``day`` is ``None`` for the sum over all days. Two projects may have
    one name, so ``slug`` says which. ``person`` is empty where the person is gone."""

    day: date | None
    project: str
    slug: str
    person: str
    pool: str
    hours: float
    runs: int


@dataclass(frozen=True)
class Usage:
    """Device hours of the last ``days`` days of the site's time zone, today among them. ``items`` are by day."""

    days: int
    since: datetime
    items: list[Used]
    sums: list[Used]

    @property
    def device_hours(self) -> float:
        """Over all people and projects."""
        return sum(line.hours for line in self.sums if line.pool == TRAIN)

    @property
    def by_day(self) -> list[tuple[date, float]]:
        """Each day with its device hours, the newest first; a day without any has 0: it is known that none was used."""
        found: dict[date, float] = defaultdict(float)
        for line in self.items:
            if line.pool == TRAIN and line.day is not None:
                found[line.day] += line.hours
        first = timezone.localtime(self.since).date()
        days = [first + timedelta(days=number) for number in range(self.days)]
        return [(day, found[day]) for day in reversed(days)]


def usage_of(user: User, days: int = USUAL) -> Usage:
    """What was used in the projects that a person may see, in three queries; administrators see all projects."""
    projects = {pk: (name, slug) for pk, name, slug in projects_seen(user).values_list("pk", "name", "slug")}
    bounds = _midnights(days)
    asked: dict[str, Any] = {
        "projects": list(projects),
        "leased": list(LEASED),
        "since": bounds[0],
        "bounds": bounds,
        "days": days,
    }
    with connection.cursor() as cursor:
        cursor.execute(_USED, asked)
        rows = cursor.fetchall()
    names = dict(User.objects.filter(pk__in={row[2] for row in rows}).values_list("pk", "username"))
    found = [
        Used(
            None if day is None else timezone.localtime(bounds[day - 1]).date(),
            *projects[project],
            names.get(person, ""),
            pool,
            seconds / 3600,
            runs,
        )
        for day, project, person, pool, seconds, runs in rows
    ]
    items = sorted((line for line in found if line.day is not None), key=lambda line: (line.day, *line[1:5]))
    sums = sorted((line for line in found if line.day is None), key=lambda line: (-line.hours, *line[1:5]))
    return Usage(days, bounds[0], items, sums)


def projects_seen(user: User) -> QuerySet[Project]:
    token = token_of(user)
    everything = user.is_superuser and (token is None or token.project_id is None)
    return Project.objects.all() if everything else projects_of(user)


def _midnights(days: int) -> list[datetime]:
    """The beginnings of the last days in the site's time zone, today's among them, and the end of today: days of 23 and
    25 hours are as long as they are."""
    zone = timezone.get_default_timezone()
    today = timezone.localtime(timezone=zone).date()
    first = today - timedelta(days=days - 1)
    dates = [first + timedelta(days=number) for number in range(days + 1)]
    return [datetime(each.year, each.month, each.day, tzinfo=zone) for each in dates]


def usage_answer(usage: Usage) -> dict[str, Any]:
    """The same for the API."""
    return {"days": usage.days, "since": usage.since, "items": [line._asdict() for line in usage.items]}
