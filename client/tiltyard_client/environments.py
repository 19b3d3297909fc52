"""``tiltyard environment``: the servers that runs play on, and how much of them runs have reserved."""

from __future__ import annotations

from typing import Annotated

import typer

from tiltyard_client import completing, show
from tiltyard_client.base import AsJson, Project, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Servers that runs play on.")
EnvironmentName = Annotated[str, typer.Argument(help="The environment's name.", autocompletion=completing.environments)]


@app.command("list")
def environment_list(project: Project = "", as_json: AsJson = False) -> None:
    """The environments of the project."""
    with site_of(project) as site:
        rows = site.environments()
    columns = {"name": _("environment"), "kind": _("kind"), "healthy": _("answers"), "checked_at": _("checked")}
    print_json(rows) if as_json else show.table(rows, columns)


@app.command("show")
def environment_show(name: EnvironmentName, project: Project = "", as_json: AsJson = False) -> None:
    """One environment, and the runs that have reserved sessions of it."""
    with site_of(project) as site:
        found = site.environment(name)
    if as_json:
        return print_json(found)
    reserved = found["reserved"]
    values = {_("environment"): found["name"], _("kind"): found["kind"], _("answers"): found["healthy"]}
    show.pairs(values | {_("checked"): show.cell("checked_at", found["checked_at"]), _("sessions"): reserved["title"]})
    if reserved["runs"]:
        show.table(reserved["runs"], {"run": _("run"), "sessions": _("sessions")})
