"""What all commands share: the site of the login, its errors as exit codes, and common options."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, Progress

from tiltyard_client import completing, settings, words
from tiltyard_client.api import LoginNeeded, Refused, Tiltyard, Unreachable
from tiltyard_client.words import gettext as _

REFUSED, MISUSED, UNREACHABLE, LOGIN, NOT_SUCCEEDED = 1, 2, 3, 4, 5
errors = Console(stderr=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print what the server answered, as JSON, and nothing else.")]
Project = Annotated[str, typer.Option("--project", "-p", help="The project's slug; else that of the login.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay until the run ends. Ctrl-C leaves it running.")]
RunName = Annotated[str, typer.Argument(help="The run's name or id.", autocompletion=completing.runs)]
ModelName = Annotated[str, typer.Argument(help="The model's name.", autocompletion=completing.models)]


@contextlib.contextmanager
def site_of(project: str = "") -> Iterator[Tiltyard]:
    """The site of the login. Whatever goes wrong inside ends the command with a sentence and an exit code."""
    place = settings.place(project)
    if not place.url or not place.token:
        end(_("Log in first: tiltyard login http://your-site"), LOGIN)
    site = Tiltyard(place.url, place.token, place.project, language=words.language())
    try:
        yield site
    except LoginNeeded:
        sentence = _("{url} does not take this token (any more). Make another one there, then: tiltyard login")
        end(sentence.format(url=place.url), LOGIN)
    except Refused as exc:
        named = [item for item in exc.detail if item.get("path") and item.get("message")]
        for item in named:
            said = escape(f"{item['message']} {item.get('hint') or ''}".strip())
            errors.print(f"[bold]{escape(item['path'])}[/]: {said}")
        if exc.message in {text for item in named for text in (item["message"], f"{item['path']}: {item['message']}")}:
            raise typer.Exit(REFUSED) from exc
        end(exc.message or exc.code, REFUSED)
    except Unreachable as exc:
        end(str(exc), UNREACHABLE)
    except OSError as exc:
        end(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": "), REFUSED)
    except KeyboardInterrupt:
        end(_("Left; what was started on the site goes on there."), 130)
    finally:
        site.close()


def contestant_named(name: str) -> str:
    """Who plays, as the API takes it: a name without its kind is a model's."""
    return name if ":" in name or name == "starter" else f"model:{name}"


def end(text: str, code: int) -> NoReturn:
    """Say why on the error output and leave."""
    errors.print(text, style="red", markup=False)
    raise typer.Exit(code)


def confirm(question: str, yes: bool) -> None:
    """Go on only if the person says so, or said so with ``--yes``; a script must say it."""
    if yes:
        return
    if not sys.stdin.isatty():
        end(_("Nobody is here to be asked: --yes says that it shall be done."), MISUSED)
    typer.confirm(question, abort=True, err=True)


def hidden(variable: str, asked: str) -> str:
    """A secret from where no history keeps it: the environment, a hidden prompt, or the next line of the input."""
    found = os.environ.get(variable, "")
    if not found:
        found = typer.prompt(asked, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    return found.strip()


def progress_bar(*, quiet: bool) -> Progress:
    """A bar of bytes on the error output, so that what is printed can be piped."""
    return Progress(*Progress.get_default_columns(), DownloadColumn(), console=errors, disable=quiet)


def print_json(found: Any) -> None:
    """What the server answered, for programs."""
    print(json.dumps(found, ensure_ascii=False, indent=1))
