"""Where requests of one web server would wait for each other: locks, and the database.

1. **Locks.** Django keeps the language, time zone and URL prefix of a request in asgiref's ``Local``, which takes a
   lock for each read, and a page reads it a thousand times: for each text and each link. With fifty requests at once a
   thread is often interrupted while it holds the lock, and all others stop and start at each read, one after another (a
   lock convoy): a page of 40 ms took 3 s. A context variable is as much a request's own and needs no lock.
2. **Connections.** A request that opens a connection of its own has PostgreSQL start a process, which knows no table
   yet. A pool (psycopg's) keeps some and passes them from request to request; it waits a moment for a database that is
   being started again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.urls import base as urls
from django.utils import timezone
from django.utils.translation import trans_real

WAIT_S = 3.0
"""How long a request waits for a connection; PostgreSQL starts again in less."""
TRIES_S = 2.0
"""After a failure the pool tries again for this many seconds, and then at each request, so that the first request
after an outage finds the database."""
LIFE_S = 900.0
"""A connection is replaced after this many seconds: its PostgreSQL process caches facts about tables, and grows."""
LOCALS = ((trans_real, "_active"), (timezone, "_active"), (urls, "_prefixes"), (urls, "_urlconfs"))
"""Django's own names: ``tests/webapp/common/test_contention.py`` fails if Django drops them."""


class ContextLocal:
    """A ``Local`` with the one attribute ``value``, kept in a context variable."""

    def __init__(self, name: str) -> None:
        self._value: ContextVar[Any] = ContextVar(name)

    @property
    def value(self) -> Any:
        """The value of this context. Raises ``AttributeError`` where it has none."""
        found = self._value.get(None)
        if found is None:
            raise AttributeError("value")
        return found

    @value.setter
    def value(self, value: Any) -> None:
        self._value.set(value)

    @value.deleter
    def value(self) -> None:
        self._value.set(None)


def look_without_locks() -> None:
    """Make Django keep a request's values in context variables from now on."""
    for module, name in LOCALS:
        setattr(module, name, ContextLocal(f"{module.__name__}.{name}"))


def share_connections() -> None:
    """Have requests take their connections from a pool, unless the setting is 0. Call it before the first query."""
    if not settings.DATABASE_POOL:
        return
    database = settings.DATABASES["default"]
    sizes = {"min_size": 1, "max_size": settings.DATABASE_POOL}
    times = {"timeout": WAIT_S, "reconnect_timeout": TRIES_S, "max_lifetime": LIFE_S}
    database["OPTIONS"]["pool"] = {**sizes, **times}
    database["CONN_HEALTH_CHECKS"] = True  # a connection that died in the pool is not used
