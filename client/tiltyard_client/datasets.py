"""``tiltyard dataset``: list and upload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiltyard_client import show
from tiltyard_client.base import REFUSED, AsJson, Project, print_json, progress_bar, site_of

app = typer.Typer(no_args_is_help=True, help="Datasets.")


@app.command("list")
def dataset_list(project: Project = "", as_json: AsJson = False) -> None:
    """All versions of all datasets, newest first."""
    with site_of(project) as site:
        rows = site.datasets()
    columns = {
        "reference": "dataset",
        "state": "state",
        "rows": "rows",
        "bad_rows": "bad rows",
        "created_at": "uploaded",
    }
    print_json(rows) if as_json else show.table(rows, columns)


@app.command("upload")
def dataset_upload(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Else the file's name.")] = "",
    project: Project = "",
    wait: Annotated[bool, typer.Option(help="Stay until it is checked.")] = True,
    as_json: AsJson = False,
) -> None:
    """Upload a file as the next version of a dataset."""
    with site_of(project) as site, progress_bar(quiet=as_json) as progress:
        with progress.open(file, "rb", description=file.name) as source:
            made = site.upload(source, file.name, name or file.stem)  # type: ignore[arg-type]
        checked = progress.add_task("checking", total=None, visible=wait)
        while wait and made["state"] == "checking":
            progress.update(checked, advance=1)
            show.pause()
            made = site.dataset(made["id"])
    if as_json:
        print_json(made)
    else:
        print(f"{made['reference']}: {made['state']}, {made['rows']} rows, {made['bad_rows']} bad")
    if wait and made["state"] != "ready":
        raise typer.Exit(REFUSED)
