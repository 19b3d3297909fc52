"""``tiltyard sweep``: a job several times with other values of a few options, and which change brought which gain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tiltyard_client import completing, show
from tiltyard_client.api import Json, Refused
from tiltyard_client.base import AsJson, Priority, Project, confirm, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Sweeps: a job with other values of a few options, and what they bring.")


@app.command("list")
def sweep_list(project: Project = "", as_json: AsJson = False) -> None:
    """The sweeps of the project, newest first."""
    with site_of(project) as site:
        rows = site.sweeps()
    if as_json:
        return print_json(rows)
    columns = {"name": _("sweep"), "varied": _("what it varies"), "created_at": _("created")}
    show.table([row | {"varied": _varied(row["axes"])} for row in rows], columns)


@app.command("create")
def sweep_create(
    file: Annotated[Path, typer.Option("--file", "-f", help="The job as YAML.", exists=True, dir_okay=False)],
    vary: Annotated[
        list[str], typer.Option(help="An option with its values, such as optim.learning_rate=1e-5,3e-5; up to four.")
    ],
    name: Annotated[str, typer.Option(help="Else the file's name.")] = "",
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="Change one option of the file at a time, not every combination.")
    ] = False,
    priority: Annotated[
        Priority | None, typer.Option(metavar="CLASS", help="Every run of a higher class goes first.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what it would launch.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Launch all runs of a sweep, or none. Each is checked and queued."""
    with site_of(project) as site:
        axes, mode = [axis_of(text) for text in vary], "single" if one_at_a_time else "product"
        body = {"yaml": file.read_text(encoding="utf-8"), "axes": axes, "mode": mode}
        planned = site.sweep_plan(body)
        body |= {"priority": priority.value} if priority and not plan else {}
        made = None if plan else site.sweep_create(name or file.stem, body)
    if as_json:
        return print_json(made or planned)
    print(planned["words"])
    if made is None:
        for run in planned["names"]:
            print(run.replace("NAME", name or file.stem))
        return
    for run in made["runs"]:
        print(run["name"])
    print(_("They are checked and queued. Then: tiltyard sweep show {name}").format(name=made["name"]))


@app.command("show")
def sweep_show(
    sweep: Annotated[str, typer.Argument(help="The sweep's name.", autocompletion=completing.sweeps)],
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Which change of a sweep helped, and by how much."""
    with site_of(project) as site:
        found = site.sweep(sweep)
    print_json(found) if as_json else _board(found)


@app.command("delete")
def sweep_delete(
    sweep: Annotated[str, typer.Argument(help="The sweep's name.", autocompletion=completing.sweeps)],
    runs: Annotated[
        bool, typer.Option("--runs", help="Delete its runs too, once all have ended; owners only.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Delete a sweep; its runs stay."""
    with site_of(project) as site:
        found = site.sweep(sweep)
        there = sum(run["id"] is not None for setting in found["settings"] for run in setting["runs"])
        asked = _("Delete {name} with its {n} runs and all that they recorded?") if runs else _("Delete {name}?")
        confirm(asked.format(name=found["name"], n=there), yes)
        gone = site.sweep_delete(found["id"], runs=runs)
    if as_json:
        return print_json(gone)
    text = _("{name} was deleted with its runs.") if runs else _("{name} was deleted; its runs stay.")
    print(text.format(name=gone["deleted"]))


def axis_of(text: str) -> Json:
    """An axis of the command line, as the API takes it. Raises ``Refused`` where it has no values."""
    option, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not found:
        sentence = _("Write option=value,value such as optim.learning_rate=1e-5,3e-5, not '{text}'.")
        raise Refused(0, "bad_option", sentence.format(text=text))
    return {"option": option.strip(), "values": found}


def _varied(axes: list[Json]) -> str:
    return "; ".join(f"{axis['option']} {', '.join(map(_value, axis['values']))}" for axis in axes)


def _value(value: Any) -> str:
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _board(found: Json) -> None:
    show.console.print(found["answer"]["text"], style="bold", markup=False)
    options = list(found["base"]) or [_("setting")]
    made = Table(*map(escape, options), _("success"), _("gain"), _("verdict"), _("runs"), box=None, header_style="dim")
    for setting in found["settings"]:
        values = [escape(_value(value)) for value in setting["values"].values()] or ["–"]
        gain = setting["gain"]
        points = "–" if gain is None or gain["value"] is None else f"{100 * gain['value']:+.1f}".replace("-", "−")
        states = ", ".join(show.state(run["state"]) if run["state"] else _("deleted") for run in setting["runs"])
        made.add_row(*values, show.interval("success", setting["success"]), points, setting["verdict"], states)
    show.console.print(made)
    show.notes(found["answer"]["left_out"])
