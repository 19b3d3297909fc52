"""Empties the database after a test that has committed, in a few milliseconds where Django takes half a second.

Django truncates all tables, each of which gets new files, and makes permissions and content types again. Here only the
tables that have rows are emptied, and those two stay. Loaded as a plugin by ``tests/conftest.py``.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase
from psycopg.sql import SQL, Identifier

KEPT = {"django_content_type", "auth_permission"}
PATIENCE_S = 5.0
TRIES = 3


def empty_tables(_test: Any = None) -> None:
    """Delete every row that a test has left, once no process writes any more."""
    for again in range(TRIES, 0, -1):
        try:
            return _empty()
        except OperationalError:  # a deadlock with what a test that failed has left at work
            if again == 1:
                raise


def _empty() -> None:
    names = sorted(set(connection.introspection.django_table_names(only_existing=True)) - KEPT)
    one = SQL("SELECT {} WHERE EXISTS (SELECT 1 FROM {})")
    with_rows = SQL(" UNION ALL ").join([one.format(name, Identifier(name)) for name in names])
    _wait_for_writers()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # all of them go, so no key is checked
        cursor.execute(with_rows)
        for (name,) in cursor.fetchall():
            cursor.execute(SQL("DELETE FROM {}").format(Identifier(name)))


def _wait_for_writers() -> None:
    """A server that outlives the test may still be in a transaction: what it commits must be there to be deleted."""
    until = time.monotonic() + PATIENCE_S
    with connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute(
                "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL)"
            )
            if not cursor.fetchone()[0]:
                return
            time.sleep(0.01)


TransactionTestCase._fixture_teardown = empty_tables  # type: ignore[assignment]
