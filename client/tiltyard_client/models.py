"""``tiltyard model``: list, look at, describe and download."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tiltyard_client import base, show
from tiltyard_client.api import Json
from tiltyard_client.base import (
    REFUSED,
    AsJson,
    ModelName,
    Project,
    confirm,
    end,
    print_json,
    progress_bar,
    site_of,
)
from tiltyard_client.words import gettext as _
from tiltyard_client.words import ngettext

app = typer.Typer(no_args_is_help=True, help="Models.")


class Mark(StrEnum):
    """The team's mark on a model."""

    candidate = "candidate"
    production = "production"
    none = "none"


@app.command("list")
def model_list(project: Project = "", as_json: AsJson = False) -> None:
    """The registered models, newest first."""
    with site_of(project) as site:
        rows = site.models()
    if as_json:
        return print_json(rows)
    columns = {"reference": _("model"), "kind": _("weights"), "step": _("step"), "bytes": _("bytes")}
    columns |= {"mark": _("mark"), "tags": _("tags"), "created_at": _("registered")}
    show.table([row | {"mark": show.state(row["mark"])} for row in rows], columns)


@app.command("show")
def model_show(model: ModelName, project: Project = "", as_json: AsJson = False) -> None:
    """A model: where it comes from, its scores, and the team's notes."""
    with site_of(project) as site:
        found = site.model(model)
    print_json(found) if as_json else _shown(found)


@app.command("mark")
def model_mark(model: ModelName, mark: Mark, project: Project = "", as_json: AsJson = False) -> None:
    """Mark a model as candidate or production, or take its mark away. One is in production; the former loses it."""
    with site_of(project) as site:
        found = site.model_change(site.model(model)["id"], mark="" if mark is Mark.none else mark.value)
    word = show.state(found["mark"]) if found["mark"] else _("no mark")
    print_json(found) if as_json else print(f"{found['name']}: {word}")


@app.command("tag")
def model_tag(
    model: ModelName,
    tags: base.Tags = None,
    remove: base.Remove = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Add tags to a model, or take some away."""
    with site_of(project) as site:
        base.tag(site.model(model), site.model_change, tags, remove, as_json)


@app.command("note")
def model_note(model: ModelName, text: base.Text, project: Project = "", as_json: AsJson = False) -> None:
    """Write the notes of a model."""
    with site_of(project) as site:
        base.note(site.model(model), site.model_change, text, as_json)


@app.command("card")
def model_card(
    model: ModelName,
    intended_use: Annotated[str | None, typer.Option(help="Write this section first.")] = None,
    limitations: Annotated[str | None, typer.Option(help="Write this section first.")] = None,
    licence: Annotated[str | None, typer.Option(help="Write this section first.")] = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Print the model card as Markdown; with --json the team's own sections of it."""
    sections = {"intended_use": intended_use, "limitations": limitations, "licence": licence}
    changed = {name: text for name, text in sections.items() if text is not None}
    with site_of(project) as site:
        found = site.model(model)
        if changed:
            found = site.model_change(found["id"], card=changed)
        text = "" if as_json else site.model_card(found["id"])
    print_json(found["card"]) if as_json else print(text)


@app.command("download")
def model_download(
    model: ModelName,
    to: Annotated[Path | None, typer.Option(help="A folder; else one here with the model's name.")] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the LoRA adapter.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Download a model's files and prove each by its hash."""
    with site_of(project) as site:
        found = site.model(model)
        target = to or Path(found["name"].replace("/", "-"))
        with progress_bar(quiet=as_json) as progress:
            bar = progress.add_task(found["name"], total=None)
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
        sentence = ngettext(
            "{n} file in {folder}, as it was sent.", "{n} files in {folder}, each as it was sent.", len(files)
        )
        print(sentence.format(n=len(files), folder=target))


@app.command("push")
def model_push(
    model: ModelName,
    repository: Annotated[str, typer.Argument(help="owner/name on the hub of the site.")],
    public: Annotated[bool, typer.Option("--public", help="Anybody may read it; else it is private.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option(help="Stay until everything was sent.")] = True,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Push a model to a hub: the site sends its files. Exit code 1 where that fails."""
    with site_of(project) as site:
        found = site.model(model)
        asked = _("Send the weights of {name} to {repository}, where anybody may read them?")
        asked = asked if public else _("Send the weights of {name} to {repository}?")
        confirm(asked.format(name=found["name"], repository=repository), yes)
        push = site.model_push(found["id"], repository, private=not public)
        with progress_bar(quiet=as_json) as progress:
            bar = progress.add_task(repository, total=None, visible=wait)
            for now in site.push_watch(found["id"], push["id"]) if wait else ():
                push, sent = now, now["progress"]
                progress.update(bar, completed=sent.get("bytes", 0), total=sent.get("total"))
    if as_json:
        print_json(push)
    elif push["state"] == "failed":
        error = push["error"] or {}
        end(f"{error.get('message') or show.state('failed')} {error.get('hint') or ''}".strip(), REFUSED)
    else:
        print(f"{found['name']} → {push['repository']}: {show.state(push['state'])} {push['url']}".rstrip())
    if push["state"] == "failed":
        raise typer.Exit(REFUSED)


def _shown(found: Json) -> None:
    show.pairs(
        {
            _("model"): found["reference"],
            _("weights"): found["kind"],
            _("source"): found["source"],
            _("step"): found["step"],
            _("mark"): show.state(found["mark"]),
            _("tags"): found["tags"],
            _("notes"): found["notes"],
        }
    )
    for title, nodes in ((_("It comes from"), found["lineage"]), (_("Trained from it"), found["children"])):
        if nodes:
            show.console.print(title, style="bold")
        for node in nodes:
            show.console.print(f"  {node['title']} · {node['about']}".rstrip(" ·"), markup=False)
    if not found["scores"]:
        show.console.print(_("It was not evaluated yet: tiltyard evaluate model:NAME"))
        return
    made = show.plain_table(_("evaluation"), _("success"), _("tasks"), _("dataset"), _("environment"))
    for score in found["scores"]:
        values = (score["name"], str(score["tasks"]), score["data"], score["environment"])
        name, tasks, data, environment = (escape(value or "–") for value in values)
        made.add_row(name, show.interval("success", score["success"]), tasks, data, environment)
    show.console.print(made)
