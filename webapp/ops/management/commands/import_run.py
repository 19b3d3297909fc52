"""``manage.py import_run DIR --project SLUG [--name NAME]``: show a standalone run in the browser."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from training.errors import TiltyardError
from webapp.foreign.importing import run_import
from webapp.people.teams.models import Project


class Command(BaseCommand):
    """Import one folder; a second import of it prints that and changes nothing."""

    help = "Import the folder of a run that was trained with `python -m training run`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The folder, the project, the name."""
        parser.add_argument("dir", type=Path, help="the --run-dir of the standalone run")
        parser.add_argument("--project", required=True, help="slug of the project that gets the run")
        parser.add_argument("--name", default="", help="name of the run (default: the folder's)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import it and print the result."""
        project = Project.objects.filter(slug=options["project"]).first()
        if project is None:
            raise CommandError(f"There is no project {options['project']!r}.")
        try:
            run, new = run_import(project=project, folder=options["dir"], name=options["name"])
        except TiltyardError as exc:
            raise CommandError(f"{exc.message} {exc.hint}".strip()) from exc
        what = "Imported" if new else "Already imported"
        self.stdout.write(f"{what}: {run.name} ({run.state}, {run.step} steps), /p/{project.slug}/runs/{run.pk}/")
