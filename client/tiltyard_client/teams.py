"""``tiltyard team`` and ``tiltyard person``: teams that go with all they have, people who leave for good."""

from __future__ import annotations

from typing import Annotated

import typer

from tiltyard_client import show
from tiltyard_client.api import Json, Refused
from tiltyard_client.base import AsJson, confirm, print_json, site_of
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
