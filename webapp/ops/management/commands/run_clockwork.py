"""``manage.py run_clockwork``: give back what lost workers had, send what waits, resume what can continue."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from webapp.ops.clockwork import Clockwork


class Command(BaseCommand):
    """Runs until SIGTERM; `manage.py up` supervises it. A second one does no harm."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Tick."""
        Clockwork().run()
