"""``manage.py up``: start everything on this machine and keep it running."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import translation

from training.floors import floors_broken
from webapp.common.env import env_bool
from webapp.common.host import LOOPBACK
from webapp.ops.console import Console, UpOptions
from webapp.ops.up import Up


def console_language() -> str:
    """Chinese where the terminal is Chinese, else English."""
    name = next((value for key in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(key))), "")
    return "zh-hans" if name.lower().startswith("zh") else "en"


class Command(BaseCommand):
    """Start PostgreSQL, Redis, the web server, the workers and the tools environment; Ctrl-C ends them all."""

    help = __doc__
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--port", type=int, default=settings.PORT, help="port of the web server (default 8000)")
        parser.add_argument("--demo", action="store_true", help="make the project Demo and train in it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        if too_old := floors_broken():
            raise CommandError("\n".join(too_old))
        if options["host"] not in LOOPBACK and not os.environ.get("TILTYARD_HOSTS"):
            raise CommandError("To be reached by others, set TILTYARD_HOSTS and TILTYARD_ORIGINS: see SECURITY.md.")
        chosen = UpOptions(
            data=Path(settings.DATA_DIR),
            root=Path(settings.BASE_DIR),
            host=options["host"],
            port=options["port"],
            demo=options["demo"],
            behind_proxy=env_bool("TILTYARD_BEHIND_PROXY", False),
        )
        with translation.override(console_language()):
            code = Up(chosen, Console()).run()
        if code:
            raise SystemExit(code)
