"""``manage.py keep_environments``: start, check, restart and stop environment servers as the registry wants it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from webapp.environments.keeper import Keeper


class Command(BaseCommand):
    """Runs until SIGTERM; `manage.py up` supervises it. A second one waits for the first to end."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Keep."""
        Keeper().run()
