"""``tiltyard``: what a person does in the browser, from a terminal. Each group of commands has a module."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tiltyard_client import datasets, evaluations, models, runs, settings, show
from tiltyard_client.api import LoginNeeded, Refused, Tiltyard, Unreachable
from tiltyard_client.base import LOGIN, REFUSED, UNREACHABLE, AsJson, Project, end, print_json, site_of

app = typer.Typer(no_args_is_help=True, help="Tiltyard from the command line.", pretty_exceptions_enable=False)
project_app = typer.Typer(no_args_is_help=True, help="Projects.")
app.add_typer(runs.app, name="run")
app.add_typer(datasets.app, name="dataset")
app.add_typer(models.app, name="model")
app.add_typer(project_app, name="project")


@app.command()
def login(
    url: Annotated[str, typer.Argument(help="Address of the site, such as http://127.0.0.1:8000.")],
    token: Annotated[str, typer.Option(envvar="TILTYARD_TOKEN", help="Asked for where it is left out.")] = "",
    project: Project = "",
) -> None:
    """Remember a site, a token and a project for later commands."""
    text = token or (typer.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline())
    if not text.strip():
        end("No token was given.", LOGIN)
    place = settings.Place(url.rstrip("/"), text.strip(), project)
    site = Tiltyard(place.url, place.token)
    try:
        me, projects = site.me(), [item["slug"] for item in site.projects()]
    except LoginNeeded:
        end("The site does not take this token.", LOGIN)
    except (Refused, Unreachable) as exc:
        end(str(exc), UNREACHABLE)
    finally:
        site.close()
    if project and project not in projects:
        end(f"There is no project {project!r} for you. There are: {', '.join(projects) or 'none'}.", REFUSED)
    chosen = project or (projects[0] if len(projects) == 1 else "")
    kept = settings.store(place._replace(project=chosen))
    print(f"Logged in as {me['username']}" + (f", project {chosen}" if chosen else "") + f". Kept in {kept}.")


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
            "site": site.url,
            "you": me["username"],
            "token": token.get("name", "–"),
            "may": token.get("role", "–"),
            "only in": token.get("project") or "all your projects",
            "until": (token.get("expires_at") or "no limit")[:10],
        }
    )


@project_app.command("list")
def project_list(as_json: AsJson = False) -> None:
    """The projects that you may see."""
    with site_of() as site:
        rows = site.projects()
    print_json(rows) if as_json else show.table(rows, {"slug": "project", "name": "name", "team": "team"})


app.command()(evaluations.evaluate)
app.command()(evaluations.compare)


def main() -> None:
    """The entry point of ``tiltyard``."""
    app()
