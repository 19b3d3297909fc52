"""``tiltyard dataset`` and ``tiltyard environment``: list and upload data, list the servers that runs play on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiltyard_client import completing, show
from tiltyard_client.base import REFUSED, AsJson, Project, print_json, progress_bar, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Datasets.")


@app.command("list")
def dataset_list(project: Project = "", as_json: AsJson = False) -> None:
    """All versions of all datasets, newest first."""
    with site_of(project) as site:
        rows = site.datasets()
    if as_json:
        return print_json(rows)
    columns = {"reference": _("dataset"), "state": _("state"), "rows": _("rows"), "bad_rows": _("bad rows")}
    shown = [row | {"state": show.state(row["state"])} for row in rows]
    show.table(shown, columns | {"created_at": _("uploaded")})


@app.command("upload")
def dataset_upload(
    file: Annotated[Path, typer.Argument(help="A file of rows.", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Else the file's name.")] = "",
    project: Project = "",
    wait: Annotated[bool, typer.Option(help="Stay until it is checked.")] = True,
    as_json: AsJson = False,
) -> None:
    """Upload a file as the next version of a dataset."""
    with site_of(project) as site, progress_bar(quiet=as_json) as progress:
        with progress.open(file, "rb", description=file.name) as source:
            made = site.upload(source, file.name, name or file.stem)  # type: ignore[arg-type]
        checked = progress.add_task(_("checking"), total=None, visible=wait)
        while wait and made["state"] == "checking":
            progress.update(checked, advance=1)
            show.pause()
            made = site.dataset(made["id"])
    if as_json:
        print_json(made)
    else:
        text = _("{reference}: {state}, {rows} rows, {bad_rows} bad")
        print(text.format(**made | {"state": show.state(made["state"])}))
    if wait and made["state"] != "ready":
        raise typer.Exit(REFUSED)


# ``tiltyard environment``: the servers that runs play on, and how much of them runs have reserved.

environment_app = typer.Typer(no_args_is_help=True, help="Servers that runs play on.")
EnvironmentName = Annotated[str, typer.Argument(help="The environment's name.", autocompletion=completing.environments)]


@environment_app.command("list")
def environment_list(project: Project = "", as_json: AsJson = False) -> None:
    """The environments of the project."""
    with site_of(project) as site:
        rows = site.environments()
    columns = {"name": _("environment"), "kind": _("kind"), "healthy": _("answers"), "checked_at": _("checked")}
    print_json(rows) if as_json else show.table(rows, columns)


@environment_app.command("show")
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
