"""``manage.py demo``: make the demo project's content and start its runs; ``--follow`` prints how they go."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import translation

from training.errors import TiltyardError
from webapp.ops.console import Console
from webapp.ops.demo import DemoError, demo_create, follow
from webapp.ops.management.commands.prepare_site import demo_project, site_prepare
from webapp.ops.management.commands.up import console_language
from webapp.people.teams.models import Membership, Role


class Command(BaseCommand):
    """Make the demo; `manage.py up` must be running."""

    help = __doc__
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--follow", action="store_true", help="print the runs' progress until they end")

    def handle(self, *args: Any, **options: Any) -> None:
        """Safe to repeat."""
        console = Console()
        with translation.override(console_language()):
            user = site_prepare(demo=True)
            owned = Membership.objects.filter(user=user, role=Role.OWNER).select_related("team")
            project = demo_project(owned[0].team)
            try:
                runs = demo_create(project=project, user=user, say=lambda text: console.line(f"  {text}"))
            except ValidationError as exc:
                raise CommandError(f"The demo could not be made: {' '.join(exc.messages)}") from exc
            except (DemoError, TiltyardError) as exc:
                raise CommandError(f"The demo could not be made: {exc}") from exc
            if options["follow"]:
                follow(runs, console)
