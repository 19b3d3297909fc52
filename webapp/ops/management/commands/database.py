"""``manage.py database COMMAND …``: run a command with the database, with PostgreSQL's own programs on its path."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.common.host import EmbeddedError
from webapp.ops.database import run_beside


class Command(BaseCommand):
    """Set ``DATABASE_URL`` and PostgreSQL's variables, and start the embedded server unless `up` runs."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("command", nargs=argparse.REMAINDER, help="pg_dump, pg_restore, psql or any other program")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit as the command does."""
        if not options["command"]:
            raise CommandError("Name a command, such as `pg_dump --format custom --file tiltyard.dump`.")
        try:
            sys.exit(run_beside(settings.DATA_DIR, options["command"]))
        except (EmbeddedError, OSError) as exc:
            raise CommandError(str(exc)) from exc
