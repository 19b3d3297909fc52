"""``tiltyard vote``: blind votes. Voting itself needs the two transcripts side by side: it is done in the browser."""

from __future__ import annotations

import typer

from tiltyard_client import show
from tiltyard_client.base import AsJson, Project, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Blind votes.")


@app.command("list")
def vote_list(project: Project = "", as_json: AsJson = False) -> None:
    """The vote rounds of the project, newest first, and how many ballots you have left."""
    with site_of(project) as site:
        rows, url = site.vote_rounds(), site.url
    if as_json:
        return print_json(rows)
    shown = [
        {
            **row,
            "state": _("open") if row["open"] else _("closed"),
            "left": row["left"] if row["asked"] else None,
            "page": f"{url}{row['url']}",
        }
        for row in rows
    ]
    columns = {"name": _("vote round"), "state": _("state"), "done": _("your votes"), "left": _("left")}
    show.table(shown, columns | {"page": _("page")})
