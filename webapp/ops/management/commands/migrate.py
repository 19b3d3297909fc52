"""``manage.py migrate``: Django's, without the time limits of the web's statements."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.management.commands import migrate
from django.db import DatabaseError, connections

LIMITS = {"statement_timeout": "0", "lock_timeout": "60s", "idle_in_transaction_session_timeout": "0"}
"""A rewrite of millions of rows takes minutes; but a migration that waits that long for a lock would block the site."""


class Command(migrate.Command):
    """Apply migrations or take them back as Django does, with no time limit for a statement."""

    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate."""
        with connections[options["database"]].cursor() as cursor:
            usual = {}
            for name, value in LIMITS.items():
                cursor.execute("SELECT current_setting(%s)", [name])
                (usual[name],) = cursor.fetchone()
                cursor.execute(f"SET {name} = '{value}'")
            try:
                super().handle(*args, **options)
            finally:
                with suppress(DatabaseError):  # the connection may be what failed
                    for name, value in usual.items():
                        cursor.execute(f"SET {name} = '{value}'")
