#!/usr/bin/env python
"""Django's command line for Tiltyard; `python manage.py help` lists the commands."""

from __future__ import annotations

import os
import sys

from training.garbage import rare_collections

STARTERS = (["up"], ["program"])


def command_start(argv: list[str]) -> None:
    """Run one that only starts other programs: it needs settings and texts, and no app, which would take seconds."""
    from importlib import import_module

    from django.apps import apps
    from django.conf import settings
    from django.utils.log import configure_logging

    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    apps.populate([])
    import_module(f"webapp.ops.management.commands.{argv[1]}").Command().run_from_argv(argv)


def main() -> None:
    """Run one management command."""
    rare_collections()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        if sys.argv[1:2] in STARTERS:
            command_start(sys.argv)
        else:
            execute_from_command_line(sys.argv)
    except ImproperlyConfigured as exc:  # a wrong setting is the operator's to change: a sentence, no traceback
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
