"""``manage.py compile_catalogues``: compile changed translations without the gettext tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from webapp.ops.catalogues import catalogues_compile


class Command(BaseCommand):
    """Write each .mo whose .po is newer."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Compile."""
        for path in catalogues_compile(Path(settings.BASE_DIR) / "locale"):
            self.stdout.write(str(path))
