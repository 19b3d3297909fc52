"""``tiltyard run``: launch, watch and end runs, and take their metrics along."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tiltyard_client import base, show
from tiltyard_client.api import ENDED, Json, Refused, Tiltyard
from tiltyard_client.base import (
    NOT_SUCCEEDED,
    REFUSED,
    AsJson,
    Project,
    RunName,
    Watch,
    WithPriority,
    print_json,
    progress_bar,
    site_of,
)
from tiltyard_client.completing import runs as run_names
from tiltyard_client.watching import follow
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Launch, watch and end runs, and keep their list in order.")
RunNames = Annotated[list[str], typer.Argument(help="Names or ids of runs.", autocompletion=run_names)]


@app.command("list")
def run_list(
    project: Project = "",
    state: Annotated[str, typer.Option(help="Such as running, succeeded, or active.")] = "",
    kind: Annotated[str, typer.Option(help="grpo, rloo, ppo, dpo, sft, sample or evaluate.")] = "",
    search: Annotated[str, typer.Option("--search", "-q", help="Text in names and notes.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Those that have this tag; all of them where repeated.")] = None,
    starred: Annotated[bool, typer.Option("--starred", help="Those with your star.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Those in the archive.")] = False,
    as_json: AsJson = False,
) -> None:
    """Runs of the project, newest first."""
    with site_of(project) as site:
        rows = site.runs(state=state, kind=kind, q=search, tag=tag or [], starred=starred, archived=archived)
    print_json(rows) if as_json else show.runs(rows)


@app.command("show")
def run_show(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """One run, and once it has ended its results and what to try next."""
    with site_of(project) as site:
        found = site.run(run)
        came = site.summary(found["id"]) if found["state"] in ENDED else None
    if as_json:
        print_json(found | ({"summary": came} if came else {}))
        return
    show.run(found, site.url)
    if came:
        show.summary(came)


@app.command("launch")
def run_launch(
    file: Annotated[Path, typer.Option("--file", "-f", help="The job as YAML.", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Else the file's name and the time.")] = "",
    priority: WithPriority = None,
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Launch a job."""
    with site_of(project) as site:
        text = file.read_text(encoding="utf-8")
        name = name or f"{file.stem}-{datetime.now():%m%d-%H%M%S}"
        made = site.launch(name, yaml=text, priority=priority and priority.value)
        follow(site, made, watch, as_json)


@app.command("clone")
def run_clone(
    run: RunName,
    name: Annotated[str, typer.Option(help="Name of the new run.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="An option that is another one, such as optim.learning_rate=1e-5.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Continue from the checkpoint of this step.", min=0)] = None,
    priority: WithPriority = None,
    project: Project = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Launch a run again, with some options changed."""
    with site_of(project) as site:
        found = site.run(run)
        config = changed(found["config"], change or [])
        chosen = priority and priority.value
        made = site.clone(found["id"], name=name, config=config, step=step, priority=chosen)
        follow(site, made, watch, as_json)


@app.command("advisories")
def run_advisories(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """What the run doctor found in a run. Exit code 5 where an advisory is open."""
    with site_of(project) as site:
        found = site.advisories(site.run(run)["id"])
    print_json(found) if as_json else show.advisories(found)
    if any(each["open"] for each in found):
        raise typer.Exit(NOT_SUCCEEDED)


@app.command("devices")
def run_devices(
    run: RunName,
    last: Annotated[int, typer.Option(help="Over so many steps, 50 at most.")] = 20,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """What each training device of a run did over its last steps."""
    with site_of(project) as site:
        found = site.devices(site.run(run)["id"], last)
    print_json(found) if as_json else show.devices(found)


@app.command("watch")
def run_watch(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Stay until the run ends. Exit code 5 where it does not succeed."""
    with site_of(project) as site:
        follow(site, site.run(run), True, as_json)


def _act(run: str, act: str, project: str, as_json: bool) -> None:
    with site_of(project) as site:
        found = site.act(site.run(run)["id"], act)
    print_json(found) if as_json else print(f"{found['name']}: {show.state(found['state'])}")


@app.command("stop")
def run_stop(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Stop a run; it saves first."""
    _act(run, "stop", project, as_json)


@app.command("pause")
def run_pause(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Pause a run: it saves and gives its device back."""
    _act(run, "pause", project, as_json)


@app.command("resume")
def run_resume(run: RunName, project: Project = "", as_json: AsJson = False) -> None:
    """Queue a run again from its newest whole checkpoint."""
    _act(run, "resume", project, as_json)


@app.command("queue")
def run_queue(
    runs: RunNames,
    priority: WithPriority = None,
    hold: Annotated[
        bool | None, typer.Option("--hold/--release", help="No worker takes them while they are on hold.")
    ] = None,
    first: Annotated[
        bool, typer.Option("--next", help="Before all others of their class, in the order in which you name them.")
    ] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Change the places of waiting runs in the queue (owners); without an option, show them. Exit code 1 where one of
    them does not wait; the others are changed."""
    asked = {"priority": priority and priority.value, "on_hold": hold, "first": first or None}
    changes = {name: value for name, value in asked.items() if value is not None}
    with site_of(project) as site:
        ids = dict.fromkeys(site.run(run)["id"] for run in runs)  # all are known before the first one changes
        # The last one first: each that is put before its class goes before those that were put there earlier.
        came = {run_id: _queue_change(site, run_id, changes) for run_id in reversed(ids)} if changes else {}
        found = [site.run(run_id) | came.get(run_id, {}) for run_id in ids]
    refused = [row for row in found if not row.get("ok", True)]
    if as_json:
        print_json(found)
    else:
        for row in found:
            if row not in refused:
                print(f"{row['name']}: {(row['queue'] or {}).get('short') or show.state(row['state'])}")
        for row in refused:
            base.errors.print(f"{row['name']}: {row['message']}", style="red", markup=False)
    if refused:
        raise typer.Exit(REFUSED)


def _queue_change(site: Tiltyard, run_id: str, changes: Json) -> Json:
    """Change one run's place: what came of it, as ``Tiltyard.batch`` has it in ``items``."""
    try:
        site.queue(run_id, **changes)
    except Refused as exc:
        if exc.code != "conflict":  # it would be the same for all of them
            raise
        return {"ok": False, "code": exc.code, "message": exc.message}
    return {"ok": True, "code": None, "message": None}


class Format(StrEnum):
    """The file formats of metrics."""

    csv = "csv"
    csv_wide = "csv_wide"
    parquet = "parquet"
    tensorboard = "tensorboard"


@app.command("export")
def run_export(
    run: RunName,
    to: Annotated[Format, typer.Option(help="A line a figure, a line a step, parquet, or event files in a zip.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file or a folder; else here.")] = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Download the metrics of an ended run as a file."""

    def target(name: str) -> Path:
        place = output or Path()
        return place / Path(name).name if place.is_dir() else place

    with site_of(project) as site:
        made, path = site.export(site.run(run)["id"], to.value, target)
    if as_json:
        print_json({**made, "file": str(path)})
    else:
        text = _("{path}: {figures} figures, {bytes} bytes")
        print(text.format(path=path, figures=made["figures"], bytes=made["bytes"]))


@app.command("import")
def run_import(
    files: Annotated[list[Path], typer.Argument(help="Files of one run, or an archive.", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Of the run; else the first file's name.")] = "",
    source_run: Annotated[str, typer.Option("--run", help="The run that is meant, where a table holds several.")] = "",
    wait: Annotated[bool, typer.Option(help="Stay until they are read.")] = True,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Import a run that another trainer made: logs, rollouts, metrics. Exit code 1 where they cannot be read."""
    with site_of(project) as site, progress_bar(quiet=as_json) as progress, contextlib.ExitStack() as opened:
        sources: Any = [
            (file.name, opened.enter_context(progress.open(file, "rb", description=file.name))) for file in files
        ]
        made = site.run_import(sources, name, source_run)
        reading = progress.add_task(_("reading"), total=100, visible=wait)
        for now in site.run_import_watch(made["id"]) if wait else ():
            made = now
            progress.update(reading, completed=now["percent"])
        run = site.run(made["run"]) if made["run"] else None
    if as_json:
        print_json(made)
    elif run is not None:
        text = _("{name}: imported, {step} steps") if made["is_new"] else _("{name}: was imported before, {step} steps")
        print(text.format(**run), f"{site.url}{run['url']}")
    else:
        print(made["message"] or f"{show.state(made['state'])} {site.url}{made['url']}")
    if made["state"] == "rejected":
        raise typer.Exit(REFUSED)


@app.command("tag")
def run_tag(
    run: RunName, tags: base.Tags = None, remove: base.Remove = None, project: Project = "", as_json: AsJson = False
) -> None:
    """Add tags to a run, or take some away."""
    with site_of(project) as site:
        base.tag(site.run(run), site.label, tags, remove, as_json)


@app.command("note")
def run_note(run: RunName, text: base.Text, project: Project = "", as_json: AsJson = False) -> None:
    """Write the notes of a run."""
    with site_of(project) as site:
        base.note(site.run(run), site.label, text, as_json)


@app.command("archive")
def run_archive(
    runs: RunNames,
    undo: Annotated[bool, typer.Option("--undo", help="Back into the list.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Hide ended runs from the list."""
    with site_of(project) as site:
        ids = [site.run(run)["id"] for run in runs]  # all are known before the first one changes
        found = [site.label(run_id, archived=not undo) for run_id in ids]
    if as_json:
        return print_json(found)
    text = _("{name}: back in the list") if undo else _("{name}: archived")
    for row in found:
        print(text.format(name=row["name"]))


@app.command("star")
def run_star(
    runs: RunNames,
    undo: Annotated[bool, typer.Option("--undo", help="Take your star away.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Put your star on runs; only you see it."""
    with site_of(project) as site:
        found = [site.run(run) for run in runs]
        made = [site.star(row["id"], not undo) for row in found]
    if as_json:
        return print_json(
            [{"id": row["id"], "name": row["name"], **star} for row, star in zip(found, made, strict=True)]
        )
    for row in found:
        print(row["name"] if undo else f"★ {row['name']}")


def changed(config: Json, changes: list[str]) -> Json:
    """The config with ``group.option=value`` put into it; values are JSON, else text."""
    made: Json = json.loads(json.dumps(config))
    for change in changes:
        path, equals, text = change.partition("=")
        group, _dot, option = path.strip().partition(".")
        if not equals or not group:
            raise Refused(400, "bad_option", _("Write group.option=value, not '{text}'.").format(text=change))
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if option:
            made.setdefault(group, {})[option] = value
        else:
            made[group] = value
    return made
