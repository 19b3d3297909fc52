"""``manage.py publish_files``: send the files that hosts with other data folders need to the store of files."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from training.errors import TiltyardError
from webapp.common import objects
from webapp.engine.courier import publish_all


class Command(BaseCommand):
    """Publish what was made before ``TILTYARD_FILES`` was set, or is missing there."""

    help = "Send the datasets and checkpoints of this data folder that TILTYARD_FILES lacks. Safe to repeat."

    def handle(self, **options: Any) -> None:
        """Print each name that is sent."""
        if not objects.enabled() or objects.is_cache():
            raise CommandError("Set TILTYARD_FILES, and run this on the host with the site's own data folder.")
        try:
            for name in publish_all():
                self.stdout.write(name)
        except TiltyardError as exc:
            raise CommandError(f"{exc.message} {exc.hint}") from exc
