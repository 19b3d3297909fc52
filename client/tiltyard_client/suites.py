"""``tiltyard suite``: sets of evaluations that all models play alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.markup import escape

from tiltyard_client import completing, show
from tiltyard_client.api import Json, Refused
from tiltyard_client.base import AsJson, Project, contestant_named, print_json, site_of
from tiltyard_client.watching import leave_unless_succeeded, stay
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Suites: sets of evaluations that all models play alike.")
SuiteName = Annotated[str, typer.Argument(help="The suite's name.", autocompletion=completing.suites)]


@app.command("list")
def suite_list(project: Project = "", as_json: AsJson = False) -> None:
    """The suites of the project."""
    with site_of(project) as site:
        rows = site.suites()
    columns = {"name": _("suite"), "version": _("version"), "note": _("note")}
    print_json(rows) if as_json else show.table(rows, columns)


@app.command("save")
def suite_save(
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help="The suite as YAML: name, note, parts.", exists=True, dir_okay=False),
    ],
    name: Annotated[str, typer.Option(help="Instead of the name in the file.")] = "",
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Save a suite. Other parts under a name that exists make its next version."""
    with site_of(project) as site:
        made = site.suite_save(suite_of(file) | ({"name": name} if name else {}))
    print_json(made) if as_json else print(_("{name}: version {version}").format(**made))


@app.command("show")
def suite_show(suite: SuiteName, project: Project = "", as_json: AsJson = False) -> None:
    """A suite's leaderboard, the best first, and who has no score yet."""
    with site_of(project) as site:
        found = site.suite(suite)
    print_json(found) if as_json else _board(found)


@app.command("evaluate")
def suite_evaluate(
    suite: SuiteName,
    contestant: Annotated[
        str,
        typer.Option(
            help="A model's name, endpoint:NAME, starter, policy:NAME, or run:NAME of a model that is not registered.",
        ),
    ],
    project: Project = "",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Stay until all its runs end. Ctrl-C leaves them running.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have a contestant play every part of a suite: one run for each, all or none."""
    with site_of(project) as site:
        found = site.suite(suite)
        made = site.suite_play(found["id"], contestant_named(contestant))
        runs = [site.run(run_id) for run_id in made["runs"]]
        if watch:
            runs = stay(site, runs, as_json)
            found = site.suite(found["id"])
    line = next((line for line in found["lines"] + found["waiting"] if line["id"] == made["id"]), None)
    if as_json:
        print_json(line if watch and line is not None else made)
    else:
        show.runs(runs)
        if watch and line is not None and line["score"] is not None:
            print(_("score: {score}").format(score=show.interval("success", line["score"])))
    if watch:
        leave_unless_succeeded(runs)


def suite_of(file: Path) -> Json:
    """The suite of a file, as the API takes it. Raises ``Refused`` where it is not YAML, or not a suite."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
        found = json.loads(json.dumps(found, allow_nan=False, default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as exc:
        why = " ".join(str(exc).split())
        raise Refused(0, "bad_file", _("{file} cannot be read as YAML: {why}").format(file=file, why=why)) from exc
    if not isinstance(found, dict) or not isinstance(found.get("parts"), list):
        sentence = _("{file} is no suite: it needs a name and parts, each with a title, a weight and a config.")
        raise Refused(0, "bad_file", sentence.format(file=file))
    return found


def _board(found: Json) -> None:
    parts = [part["title"] for part in found["parts"]]
    show.console.print(f"{found['name']} @{found['version']}", style="bold", markup=False)
    if found["note"]:
        show.notes([found["note"]])
    if not found["lines"] and not found["waiting"]:
        show.console.print(_("No contestant has played it: tiltyard suite evaluate NAME --contestant model:NAME"))
        return
    made = show.plain_table(_("contestant"), _("score"), *map(escape, parts))
    for line in found["lines"] + found["waiting"]:
        cells = (
            show.interval("success", part["success"]) if part["success"] else show.state(part["state"] or "–")
            for part in line["parts"]
        )
        made.add_row(escape(line["contestant"]), show.interval("success", line["score"]), *cells)
    show.console.print(made)
    for line in found["lines"]:
        about = [*([line["verdict"]] if line["verdict"] else []), *line["notes"]]
        show.notes([f"{line['contestant']}: {text}" for text in about])
