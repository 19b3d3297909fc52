"""People, teams and projects."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class TeamsConfig(AppConfig):
    """People, teams and projects."""

    name = "webapp.people.teams"

    def ready(self) -> None:
        """Connect to the signal of every login, by password or link."""
        from webapp.people.teams import sudo

        user_logged_in.connect(sudo.logged_in, dispatch_uid="teams.sudo")
