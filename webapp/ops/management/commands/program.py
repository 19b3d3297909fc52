"""``manage.py program NAME``: become one process of Tiltyard, as a container or a unit of systemd runs it."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from webapp.ops.programs import CONTAINER_PORT, single_programs


class Command(BaseCommand):
    """Become the web server, a worker, the clockwork or the keeper: the same programs as `manage.py up` starts."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("name", choices=sorted(single_programs()), help="which one")
        parser.add_argument("--host", default="0.0.0.0", help="address of the web server; by default all")  # noqa: S104
        parser.add_argument("--port", type=int, default=CONTAINER_PORT, help="port of the web server")
        parser.add_argument("--device", default="", help="the one GPU of the training worker, by its number")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace this process."""
        program = single_programs(options["host"], options["port"], options["device"])[options["name"]]
        os.execve(program.argv[0], program.argv, program.environment())  # noqa: S606 - an argv of ours
