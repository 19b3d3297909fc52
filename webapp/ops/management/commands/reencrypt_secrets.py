"""``manage.py reencrypt_secrets``: encrypt keys and tokens with the secret key, after it was replaced."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.common.secrets.vault import secrets_reencrypt


class Command(BaseCommand):
    """Encrypt every secret again."""

    help = "Encrypt keys and tokens with the secret key, also those that only TILTYARD_SECRET_KEY_FALLBACKS reads."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What to do with what no key reads."""
        parser.add_argument("--forget-unreadable", action="store_true", help="delete secrets that no key reads")

    def handle(self, **options: Any) -> None:
        """Print how many there are. Exits with 1 where some cannot be read and stay."""
        done, unreadable = secrets_reencrypt(forget=options["forget_unreadable"])
        self.stdout.write(f"{done} secrets are encrypted with the secret key.")
        for name in unreadable:
            self.stdout.write(f"{'Deleted' if options['forget_unreadable'] else 'Not readable'}: {name}")
        if unreadable and not options["forget_unreadable"]:
            raise CommandError(
                f"{len(unreadable)} cannot be read: add the secret key that they were stored with to "
                "TILTYARD_SECRET_KEY_FALLBACKS, or run this again with --forget-unreadable."
            )
