"""``tiltyard notify``: what happened in your projects."""

from __future__ import annotations

from typing import Annotated

import typer

from tiltyard_client import channels, show
from tiltyard_client.base import MISUSED, AsJson, end, print_json, site_of
from tiltyard_client.words import gettext as _
from tiltyard_client.words import ngettext

app = typer.Typer(no_args_is_help=True, help="What happened in your projects.")
app.add_typer(channels.app, name="channel")
OneProject = Annotated[str, typer.Option("--project", "-p", help="A project's slug; else all of yours.")]


@app.command("list")
def notify_list(
    unread: Annotated[bool, typer.Option("--unread", help="Only those that were not read.")] = False,
    most: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    project: OneProject = "",
    as_json: AsJson = False,
) -> None:
    """Your notifications, newest first."""
    with site_of(project) as site:
        rows = site.notifications(project=project, unread=unread, most=most)
    if as_json:
        return print_json(rows)
    shown = [row | {"new": "•" if row["read_at"] is None else " "} for row in rows]
    columns = {"new": "", "id": _("number"), "at": _("when"), "project": _("project"), "title": _("what")}
    show.table([row | {"at": show.cell("read_at", row["at"])} for row in shown], columns)


@app.command("read")
def notify_read(
    numbers: Annotated[list[int] | None, typer.Argument(help="Those with these numbers.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All, or all of --project.")] = False,
    project: OneProject = "",
    as_json: AsJson = False,
) -> None:
    """Mark notifications as read."""
    if bool(numbers) == everything:
        end(_("Say which: their numbers, or --all."), MISUSED)
    with site_of(project) as site:
        made = site.notifications_read(numbers or None, project=project)
    n = made["read"]
    text = ngettext("{n} notification was new; it is read now.", "{n} notifications were new; they are read now.", n)
    print_json(made) if as_json else print(text.format(n=n))
