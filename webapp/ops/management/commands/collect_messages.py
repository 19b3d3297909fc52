"""``manage.py collect_messages``: bring locale/*/LC_MESSAGES/django.po up to date without the gettext tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from webapp.ops.messages import catalogue_problems, catalogue_update, messages_collect


class Command(BaseCommand):
    """Add new texts, remove those no longer used, and say what is left to translate."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Update the Chinese catalogue."""
        root = Path(settings.BASE_DIR)
        path = root / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
        messages = messages_collect(root)
        new, gone = catalogue_update(path, messages)
        left = catalogue_problems(path, messages)
        self.stdout.write(f"{path}: {len(messages)} texts, {new} new, {gone} gone, {len(left)} to do")
