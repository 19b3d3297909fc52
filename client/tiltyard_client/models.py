"""``tiltyard model``: list and download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiltyard_client import show
from tiltyard_client.api import Refused
from tiltyard_client.base import AsJson, Project, print_json, progress_bar, site_of

app = typer.Typer(no_args_is_help=True, help="Models.")


@app.command("list")
def model_list(project: Project = "", as_json: AsJson = False) -> None:
    """The registered models, newest first."""
    with site_of(project) as site:
        rows = site.models()
    columns = {"reference": "model", "kind": "weights", "step": "step", "bytes": "bytes", "created_at": "registered"}
    print_json(rows) if as_json else show.table(rows, columns)


@app.command("download")
def model_download(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    to: Annotated[Path | None, typer.Option(help="A folder; else one of the model's name here.")] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Download a model's files and prove each by its hash."""
    with site_of(project) as site:
        name = model.removeprefix("model:")
        found = next((row for row in site.models() if row["name"] == name), None)
        if found is None:
            raise Refused(404, "not_found", f"There is no model {name!r} in {site.project}.")
        target = to or Path(name.replace("/", "-"))
        with progress_bar(quiet=as_json) as progress:
            bar = progress.add_task(name, total=None)
            part = "adapter" if adapter else "model"
            files = site.download(
                found["id"],
                target,
                part=part,
                seen=lambda done, total: progress.update(bar, completed=done, total=total),
            )
    if as_json:
        print_json({"folder": str(target), "files": [str(path) for path in files]})
    else:
        print(f"{len(files)} files in {target}, each as it was sent.")
