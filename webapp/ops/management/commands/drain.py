"""``manage.py drain HOST``: the workers of a host finish what they do and take nothing new; ``--undo`` ends that."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from webapp.common.workers.models import Drain, Worker, host_of


class Command(BaseCommand):
    """Mark a host, or take the mark away."""

    help = "Have the workers of a host finish what they do and take nothing new, or with --undo work again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The host, and the way back."""
        parser.add_argument("host", nargs="?", help="the part of a worker's name after the @; without it, list all")
        parser.add_argument("--undo", action="store_true", help="let it work again")

    def handle(self, **options: Any) -> None:
        """Change it, and print the hosts that drain. A host that no worker has reported from is marked too."""
        host = options["host"]
        if host and options["undo"]:
            Drain.objects.filter(host=host).delete()
        elif host:
            Drain.objects.get_or_create(host=host)
        for drain in Drain.objects.order_by("host"):
            names = [name for name in Worker.objects.values_list("name", flat=True) if host_of(name) == drain.host]
            self.stdout.write(f"{drain.host} drains since {drain.at:%Y-%m-%d %H:%M:%S %Z}: {', '.join(names) or '-'}")
