"""Names of the site for the shell's completion. Errors are never shown while a person types."""

from __future__ import annotations

from collections.abc import Callable

import typer

from tiltyard_client import connection
from tiltyard_client.connection import Connection

PATIENCE_S = 2.0
MOST = 100


def _names(ctx: typer.Context, rest: str, begun: str, **query: str) -> list[str]:
    place = connection.place(str(ctx.params.get("project") or ""))
    if not (place.url and place.token and place.project):
        return []
    site = Connection(place.url, place.token, place.project, timeout=PATIENCE_S, retry=False)
    try:
        rows = site.rows(site.in_project(rest), **query, per_page=MOST)
        return [row["name"] for row in rows if row["name"].startswith(begun)]
    finally:
        site.close()


def _completion(rest: str, **query: str) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            chosen = dict.fromkeys(query, incomplete) if incomplete else {}
            return _names(ctx, rest, incomplete, **chosen)
        except Exception:  # whatever it is, the line that is being typed stays whole
            return []

    return complete


runs = _completion("runs", q="")
models = _completion("models", q="")
suites = _completion("suites", q="")
sweeps = _completion("sweeps", q="")
endpoints = _completion("endpoints", q="")
environments = _completion("environments", q="")
channels = _completion("channels")
