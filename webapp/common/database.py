"""The database's clock, which all hosts of a site share. A host's own may be set wrongly, by hours.

Times that decide anything are the database's (``Now()``). This module is for what a host has to write by its own
clock: when a message expires, and the times in the journal of a trainer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from webapp.common.errors import DATABASE_AWAY

logger = logging.getLogger(__name__)
APART_S = 5.0
"""A smaller difference may be the time that the question took; hosts with NTP differ by less than 0.1 s."""
MEASURED_FOR_S = 60.0
_found: tuple[float, float, float] | None = None
"""By how many seconds this host's clock was ahead, when that was measured by the monotonic clock, and by how many
seconds the two clocks of this host were apart then."""


def measure() -> float:
    """Ask the database for its time. Returns by how many seconds this host's clock is ahead of it: 0 where they differ
    by less than ``APART_S``, negative where it is behind."""
    global _found
    before = time.time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
        (there,) = cursor.fetchone()
    between = (before + time.time()) / 2 - float(there)
    ahead = between if abs(between) >= APART_S else 0.0
    _found = ahead, time.monotonic(), _apart_s()
    return ahead


def _apart_s() -> float:
    """By how many seconds this host's clock is ahead of its monotonic one, which no one sets."""
    return time.time() - time.monotonic()


def ahead_s() -> float:
    """As ``measure``, but asks at most once a minute, and once this host's clock was set. While the database is away,
    what was measured last; 0 where it never was."""
    found = _found
    if found is None or time.monotonic() - found[1] >= MEASURED_FOR_S or abs(_apart_s() - found[2]) >= APART_S:
        try:
            return measure()
        except DATABASE_AWAY as exc:
            logger.warning("clock not measured", extra={"action": "clock", "error": repr(exc)[:200]})
    return last_ahead_s()


def last_ahead_s() -> float:
    """As ``measure`` found last in this process, without asking; 0 where it never did."""
    return _found[0] if _found is not None else 0.0


def now() -> datetime:
    """The database's time as this host knows it, for what is written without a query of its own."""
    return datetime.now(UTC) - timedelta(seconds=ahead_s())


def expiry(after_s: float) -> datetime:
    """The database's time in so many seconds, for the ``expires`` of a message."""
    return now() + timedelta(seconds=after_s)


# Questions to the database that are the same each time: their SQL is made once in a process.
#
# Django takes a millisecond or more to make it, PostgreSQL a tenth of that to answer a small question.


@cache
def _sql(question: Callable[..., QuerySet[Any, Any]], *of: str) -> tuple[str, tuple[Any, ...]]:
    return question(*of).query.sql_with_params()


def rows_of(question: Callable[..., QuerySet[Any, Any]], *of: str) -> list[tuple[Any, ...]]:
    """What ``question(*of)``, a query set with ``values_list``, finds: numbers, texts, times and intervals.

    The question is a function of a module, and depends on nothing but ``of``: no setting, no time of Python's clock.
    """
    with connection.cursor() as cursor:
        cursor.execute(*_sql(question, *of))
        return cursor.fetchall()


# What a session of ours begins with, where it cannot come with the connection itself.


def set_session(connection: Any, **_signal: Any) -> None:
    """Set the limits of ``settings.SESSION`` on a new connection: a pooler refuses one that brings options. In its mode
    ``session`` they end with ours; another mode would hand them to the next client."""
    with connection.cursor() as cursor:
        parts = ", ".join(["set_config(%s, %s, false)"] * len(settings.SESSION))
        cursor.execute(f"SELECT {parts}", [each for pair in settings.SESSION.items() for each in pair])
