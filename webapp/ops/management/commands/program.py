"""``manage.py program NAME``: become one process of Tiltyard, as a container runs it."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.ops.programs import container_programs


class Command(BaseCommand):
    """Become the web server, a worker, the clockwork or the keeper: the same programs as `manage.py up` starts."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("name", choices=sorted(container_programs()), help="which one")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace this process."""
        program = container_programs()[options["name"]]
        os.execve(program.argv[0], program.argv, program.environment())  # noqa: S606 - an argv of ours
