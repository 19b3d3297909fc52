"""``manage.py adopt_data_folder``: this data folder is the installation's, for example after a backup was restored."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from webapp.common.workers.beating import folder_adopt, identity_file


class Command(BaseCommand):
    """Write the identity that the database knows into the data folder."""

    help = "Write the identity that the database knows into this data folder, so that workers use it."

    def handle(self, **_options: Any) -> None:
        """Write the identity, and print it with its file."""
        identity = folder_adopt()
        self.stdout.write(f"{identity_file()} carries {identity} now; restart the workers.")
