#!/usr/bin/env python
"""Django's command line for Tiltyard; `python manage.py help` lists the commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run one management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as exc:  # a wrong setting is the operator's to change: a sentence, no traceback
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
