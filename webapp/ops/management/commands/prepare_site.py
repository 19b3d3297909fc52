"""``manage.py prepare_site``: migrate, make the first user and team, print a login link as JSON. Used by `up`."""

from __future__ import annotations

import json
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from webapp.environments.models import Environment, Kind
from webapp.ops.site import site_prepare
from webapp.people.teams.logins import login_link_create, login_link_path


class Command(BaseCommand):
    """Bring the database up to date and make what a first start needs."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--demo", action="store_true", help="make the project Demo too")
        parser.add_argument("--no-link", action="store_true", help="print no login link: the output is kept in a log")
        parser.add_argument("--tools-moved", nargs=2, metavar=("OLD", "NEW"), help="new URL of the tools environment")

    def handle(self, *args: Any, **options: Any) -> None:
        """Safe to repeat."""
        call_command("migrate", interactive=False, verbosity=0)
        user = site_prepare(demo=options["demo"])
        if options["tools_moved"]:
            old, new = options["tools_moved"]
            Environment.objects.filter(url__in=[old, f"{old}/"], kind=Kind.URL).update(url=new)
        if options["no_link"]:
            return
        token = login_link_create(user=user)
        self.stdout.write(json.dumps({"username": user.username, "login_path": login_link_path(token)}))
