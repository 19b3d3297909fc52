"""``manage.py backup FILE``: database and data folder in one file, while everything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.common.host import EmbeddedError
from webapp.ops.backup import BackupError, backup, lacking


class Command(BaseCommand):
    """Write a backup and print what it holds; exit code 1 if it failed, or lacks files that the database names."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("file", help="a new file outside the data folder; - writes to the output")

    def handle(self, *args: Any, **options: Any) -> None:
        """The output may be the backup, so words go to the error output then."""
        pipe = options["file"] == "-"
        if pipe and sys.stdout.isatty():
            raise CommandError("A backup is no text: send the output into a file or a program.")
        try:
            held = backup(settings.DATA_DIR, sys.stdout.buffer if pipe else Path(options["file"]))
        except (BackupError, EmbeddedError, OSError) as exc:
            raise CommandError(f"No backup was made. {exc}") from exc
        (self.stderr if pipe else self.stdout).write(f"Backed up {held}.", lambda text: text)
        if sentence := lacking(held):
            raise CommandError(sentence)
