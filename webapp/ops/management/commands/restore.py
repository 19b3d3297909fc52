"""``manage.py restore FILE``: a backup into an empty data folder and an empty database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.common.host import EmbeddedError
from webapp.ops.backup import BackupError, lacking, restore


class Command(BaseCommand):
    """Check a backup, restore all of it or nothing, and print what was restored; exit code 1 where nothing or not all
    was."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("file", help="what `manage.py backup` wrote; - reads from the input")

    def handle(self, *args: Any, **options: Any) -> None:
        """Safe to try again: what fails leaves folder and database empty."""
        try:
            if options["file"] == "-":
                head, held = restore(settings.DATA_DIR, sys.stdin.buffer)
            else:
                with Path(options["file"]).open("rb") as source:
                    head, held = restore(settings.DATA_DIR, source)
        except (BackupError, EmbeddedError, OSError) as exc:
            raise CommandError(f"Nothing was restored. {exc}") from exc
        self.stdout.write(f"Restored {held}, as they were at {head['made_at']} ({head['version']}).")
        if sentence := lacking(held):
            raise CommandError(sentence)
