"""Logins that are older than what dangerous acts accept."""

from __future__ import annotations

from django.test import Client

from webapp.people.teams.sudo import CONFIRMED_AT, WINDOW_S


def aged(client: Client) -> Client:
    """This browser, whose login is fifteen minutes older now: dangerous acts ask again."""
    session = client.session
    session[CONFIRMED_AT] -= WINDOW_S
    session.save()
    return client
