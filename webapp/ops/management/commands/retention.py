"""``manage.py retention [PROJECT]``: what the rules of retention free now and within 30 days."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat

from webapp.people.teams.models import Project
from webapp.retention.services import overview
from webapp.retention.words import evidence, freed_sentence, headline, rule_text


class Command(BaseCommand):
    """Reads only; the clockwork applies the rules."""

    help = "Print what the rules of retention free now and within 30 days, of one project or of all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The project."""
        parser.add_argument("project", nargs="?", default="", help="its name in addresses; without it, all")

    def handle(self, **options: Any) -> None:
        """Print a paragraph a project."""
        projects = Project.objects.order_by("slug")
        if options["project"]:
            projects = projects.filter(slug=options["project"])
            if not projects.exists():
                raise CommandError(f"There is no project {options['project']!r}.")
        for project in projects:
            found = overview(project)
            self.stdout.write(f"{project.slug}: {headline(found)}")
            for sentence in (*evidence(found), freed_sentence(found)):
                self.stdout.write(f"  {sentence}")
            for row in found.rows:
                size, now = filesizeformat(row.bytes), filesizeformat(row.forecast.now_bytes)
                self.stdout.write(
                    f"  {row.kind.value}: {rule_text(row.rule)}; {size} of {len(row.items)} runs, {len(row.kept)} kept;"
                    f" frees {now} now, {filesizeformat(row.forecast.later_bytes)} more within 30 days"
                )
