"""``tiltyard``: what a person does in the browser, from a terminal. Each group of commands has a module."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tiltyard_client import (
    chats,
    connection,
    datasets,
    endpoints,
    evaluations,
    models,
    notifications,
    rollouts,
    runs,
    show,
    suites,
    sweeps,
    teams,
    words,
)
from tiltyard_client.api import LoginNeeded, Refused, Tiltyard, Unreachable
from tiltyard_client.base import LOGIN, REFUSED, UNREACHABLE, AsJson, Project, end, print_json, site_of
from tiltyard_client.words import gettext as _

app = typer.Typer(no_args_is_help=True, help="Tiltyard from the command line.", pretty_exceptions_enable=False)
project_app = typer.Typer(no_args_is_help=True, help="Projects.")
app.add_typer(runs.app, name="run")
app.add_typer(rollouts.app, name="rollout")
app.add_typer(datasets.app, name="dataset")
app.add_typer(models.app, name="model")
app.add_typer(suites.app, name="suite")
app.add_typer(sweeps.app, name="sweep")
app.add_typer(datasets.environment_app, name="environment")
app.add_typer(endpoints.app, name="endpoint")
app.add_typer(rollouts.vote_app, name="vote")
app.add_typer(notifications.app, name="notify")
app.add_typer(teams.retention_app, name="retention")
app.add_typer(teams.app, name="team")
app.add_typer(teams.person_app, name="person")
app.add_typer(project_app, name="project")


@app.command()
def login(
    url: Annotated[str, typer.Argument(help="Address of the site, such as http://127.0.0.1:8000.")],
    token: Annotated[str, typer.Option(envvar="TILTYARD_TOKEN", help="Asked for if it is left out.")] = "",
    project: Project = "",
) -> None:
    """Remember a site, a token and a project for later commands."""
    text = token or (typer.prompt(_("Token"), hide_input=True) if sys.stdin.isatty() else sys.stdin.readline())
    if not text.strip():
        end(_("No token was given."), LOGIN)
    place = connection.Place(url.rstrip("/"), text.strip(), project)
    site = Tiltyard(place.url, place.token, language=words.language())
    try:
        me, projects = site.me(), [item["slug"] for item in site.projects()]
    except LoginNeeded:
        end(_("The site does not take this token."), LOGIN)
    except (Refused, Unreachable) as exc:
        end(str(exc), UNREACHABLE)
    finally:
        site.close()
    if project and project not in projects:
        sentence = _("There is no project '{name}' for you. There are: {names}.")
        end(sentence.format(name=project, names=", ".join(projects) or _("none")), REFUSED)
    chosen = project or (projects[0] if len(projects) == 1 else "")
    kept = connection.store_login(place._replace(project=chosen))
    sentence = _("Logged in as {user}, project {project}. Kept in {file}.")
    if not chosen:
        sentence = _("Logged in as {user}. Kept in {file}.")
    print(sentence.format(user=me["username"], project=chosen, file=kept))


@app.command("token")
def token_shown(as_json: AsJson = False) -> None:
    """Who you are here, and what your token may do."""
    with site_of() as site:
        me = site.me()
    if as_json:
        return print_json(me)
    token = me["token"] or {}
    show.pairs(
        {
            _("site"): site.url,
            _("you"): me["username"],
            _("token"): token.get("name"),
            _("may"): token.get("scope") or token.get("role"),
            _("only in"): token.get("project") or _("all your projects"),
            _("until"): (token.get("expires_at") or "")[:10] or _("no limit"),
        }
    )


@project_app.command("list")
def project_list(as_json: AsJson = False) -> None:
    """The projects that you may see."""
    with site_of() as site:
        rows = site.projects()
    columns = {"slug": _("project"), "name": _("name"), "team": _("team")}
    print_json(rows) if as_json else show.table(rows, columns)


app.command()(evaluations.evaluate)
app.command()(evaluations.compare)
app.command()(chats.chat)


def main() -> None:
    """The entry point of ``tiltyard``: its help, too, is in the reader's language."""
    words.translated(typer.main.get_command(app))()
