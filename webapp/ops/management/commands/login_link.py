"""``manage.py login_link [username]``: print a link that logs this person in once, within 24 hours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.ops.console import running_address
from webapp.ops.management.commands.prepare_site import ADMIN
from webapp.people.teams.logins import login_link_create, login_link_path
from webapp.people.teams.models import User


class Command(BaseCommand):
    """Print a one-time login link."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("username", nargs="?", default=ADMIN, help=f"who logs in (default {ADMIN})")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the link."""
        user = User.objects.filter(username=options["username"], is_active=True, is_machine=False).first()
        if user is None:
            raise CommandError(f"There is no active user {options['username']!r}.")
        origin = settings.TRUSTED_ORIGINS[0]
        if not os.environ.get("TILTYARD_ORIGINS"):  # the default has the default port, and `up` may have another
            origin = running_address(Path(settings.DATA_DIR)) or origin
        self.stdout.write(f"{origin}{login_link_path(login_link_create(user=user))}")
