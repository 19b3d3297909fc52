"""``tiltyard team``, ``tiltyard person`` and ``tiltyard retention``: teams that go with all they have, people who leave
for good, and for how long a project keeps what its runs left."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tiltyard_client import show
from tiltyard_client.api import Json, Refused
from tiltyard_client.base import AsJson, Project, confirm, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Your teams.")
person_app = typer.Typer(no_args_is_help=True, help="The people of the site, for its administrators.")


@app.command("list")
def team_list(as_json: AsJson = False) -> None:
    """The teams that you are in."""
    with site_of() as site:
        rows = site.teams()
    print_json(rows) if as_json else show.table(rows, {"name": _("team"), "role": _("role"), "id": _("id")})


@app.command("delete")
def team_delete(
    team: Annotated[str, typer.Argument(help="The team's name, or its id where two have one name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a team with all its projects, as its owner. Accounts of its members stay."""
    with site_of() as site:
        found = _the_one(site.teams(), "name", team)
        confirm(_("Delete the team {name} with all its projects?").format(name=found["name"]), yes)
        gone = site.team_delete(found["id"])
    print_json(gone) if as_json else print(_("{name} was deleted.").format(name=gone["deleted"]))


@person_app.command("list")
def person_list(as_json: AsJson = False) -> None:
    """Everyone who can log in or could."""
    with site_of() as site:
        rows = site.people()
    columns = {"username": _("name"), "is_active": _("active"), "is_superuser": _("administrator")}
    print_json(rows) if as_json else show.table(rows, columns | {"last_login": _("last login")})


@person_app.command("delete")
def person_delete(
    person: Annotated[str, typer.Argument(help="The user name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete another person's account. What they made stays with their team."""
    with site_of() as site:
        found = _the_one(site.people(q=person), "username", person)
        confirm(_("Delete the account of {name}?").format(name=found["username"]), yes)
        gone = site.person_delete(found["id"])
    print_json(gone) if as_json else print(_("{name} was deleted.").format(name=gone["deleted"]))


def _the_one(rows: list[Json], column: str, wanted: str) -> Json:
    """The row with this name or id. Raises ``Refused`` where there is none, or several have the name."""
    found = [row for row in rows if wanted in (row[column], row["id"])]
    if len(found) == 1:
        return found[0]
    sentence = _("Several are called {name}: give the id.") if found else _("There is no {name} here.")
    raise Refused(404, "not_found", sentence.format(name=wanted))


# ``tiltyard retention``: for how long a project keeps what its runs left.

retention_app = typer.Typer(no_args_is_help=True, help="For how long a project keeps what its runs left.")
GIB = 2**30


class Kind(StrEnum):
    """What runs leave."""

    words = "words"
    tokens = "tokens"
    logs = "logs"
    checkpoints = "checkpoints"


What = Annotated[Kind, typer.Argument(help="words are transcripts, tokens their values, logs the trainers' output.")]


@retention_app.command("show")
def retention_show(project: Project = "", as_json: AsJson = False) -> None:
    """The rules, what they free now and within 30 days, and how that is estimated."""
    with site_of(project) as site:
        found = site.retention()
    print_json(found) if as_json else _print(found)


@retention_app.command("set")
def retention_set(
    kind: What,
    days: Annotated[int | None, typer.Option(min=1, help="Days after the end of the run; left out: no limit.")] = None,
    gib: Annotated[int | None, typer.Option(min=1, help="GiB of the project at most; left out: no limit.")] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what the rule would free.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Set the rule of one kind; without limits it is kept without end. What a rule removes cannot be had back."""
    _change(kind, {"days": days, "gib": gib}, preview=preview, yes=yes, project=project, as_json=as_json)


@retention_app.command("reset")
def retention_reset(
    kind: What,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what the site's rule would free.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Give one kind the site's rule back."""
    _change(kind, None, preview=preview, yes=yes, project=project, as_json=as_json)


def _change(kind: Kind, rule: Json | None, *, preview: bool, yes: bool, project: str, as_json: bool) -> None:
    with site_of(project) as site:
        found = site.retention_change({kind.value: rule}, preview=True)
        if not preview:
            confirm(_("{headline} Set this rule?").format(headline=found["headline"]), yes)
            found = site.retention_change({kind.value: rule})
    print_json(found) if as_json else _print(found)


def _print(found: Json) -> None:
    for sentence in (found["headline"], *found["evidence"], found["freed"]):
        show.console.print(sentence, markup=False)
    rows = [
        {
            **kind,
            "size": size(kind["bytes"]),
            "now": size(kind["now_bytes"]),
            "later": size(kind["later_bytes"]),
        }
        for kind in found["kinds"]
    ]
    columns = {"title": _("what"), "days": _("days"), "gib": "GiB", "own": _("own rule"), "size": _("stored")}
    columns |= {"runs": _("runs"), "kept": _("kept"), "now": _("freed now"), "later": _("within 30 days")}
    show.table(rows, columns)


def size(count: int) -> str:
    """Bytes in GiB, or in MiB where that is less than one."""
    return f"{count / GIB:,.1f} GiB" if count >= GIB else f"{count / 2**20:,.1f} MiB"
