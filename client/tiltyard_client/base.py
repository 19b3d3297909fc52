"""What all commands share: the site of the login, its errors as exit codes, and common options."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import DownloadColumn, Progress

from tiltyard_client import completing, connection, words
from tiltyard_client.api import LoginNeeded, Refused, Tiltyard, Unreachable
from tiltyard_client.connection import Json
from tiltyard_client.words import gettext as _

REFUSED, MISUSED, UNREACHABLE, LOGIN, NOT_SUCCEEDED = 1, 2, 3, 4, 5
CODES = {
    MISUSED: "misused",
    UNREACHABLE: "unreachable",
    LOGIN: "login_required",
    NOT_SUCCEEDED: "not_succeeded",
}
"""What JSON calls an error that no server has named, by exit code."""
errors = Console(stderr=True, highlight=False)

_json_due = ContextVar("json_due", default=False)
"""Whether the command that runs was asked for JSON and has printed none."""


def _noted(context: typer.Context, as_json: bool) -> bool:
    _json_due.set(as_json)
    context.call_on_close(lambda: _json_due.set(False))
    return as_json


AsJson = Annotated[
    bool, typer.Option("--json", callback=_noted, help="Print what the server answered, as JSON, and nothing else.")
]
Project = Annotated[str, typer.Option("--project", "-p", help="The project's slug; else that of the login.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay until the run ends. Ctrl-C leaves it running.")]
RunName = Annotated[str, typer.Argument(help="The run's name or id.", autocompletion=completing.runs)]
ModelName = Annotated[str, typer.Argument(help="The model's name.", autocompletion=completing.models)]


class Priority(StrEnum):
    """The classes of waiting runs."""

    high = "high"
    normal = "normal"
    low = "low"


WithPriority = Annotated[Priority | None, typer.Option(help="Every run of a higher class goes first.")]


@contextlib.contextmanager
def site_of(project: str = "") -> Iterator[Tiltyard]:
    """The site of the login. Whatever goes wrong inside ends the command with a sentence and an exit code."""
    place = connection.place(project)
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
            problem = escape(f"{item['message']} {item.get('hint') or ''}".strip())
            errors.print(f"[bold]{escape(item['path'])}[/]: {problem}")
        shown = {text for item in named for text in (item["message"], f"{item['path']}: {item['message']}")}
        leaving = leave if exc.message in shown else end
        leaving(exc.message or exc.code, REFUSED, exc.code, exc.detail)
    except Unreachable as exc:
        end(str(exc), UNREACHABLE)
    except OSError as exc:
        end(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": "), REFUSED)
    except KeyboardInterrupt:
        end(_("Left; what was started on the site continues there."), 130)
    finally:
        site.close()


def contestant_named(name: str) -> str:
    """Who plays, as the API takes it: a name without its kind is a model's."""
    return name if ":" in name or name == "starter" else f"model:{name}"


def end(text: str, exit_code: int, code: str = "", detail: list[Json] | None = None) -> NoReturn:
    """Say why on the error output and leave."""
    errors.print(text, style="red", markup=False)
    leave(text, exit_code, code, detail)


def leave(text: str, exit_code: int, code: str = "", detail: list[Json] | None = None) -> NoReturn:
    """Leave. With ``--json`` the error is printed as JSON, as the API writes it, unless the answer was printed."""
    if _json_due.get():
        print_json({"ok": False, "code": code or CODES.get(exit_code, "refused"), "message": text, "detail": detail})
    raise typer.Exit(exit_code)


def confirm(question: str, yes: bool) -> None:
    """Continue only if the person confirms it, now or with ``--yes``; a script must give the option."""
    if yes:
        return
    if not sys.stdin.isatty():
        end(_("There is no terminal to ask at: --yes confirms it."), MISUSED)
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
    """Print the server's answer, for programs."""
    _json_due.set(False)
    print(json.dumps(found, ensure_ascii=False, indent=1))


# Tags and notes, as people write them on runs and on models.

Tags = Annotated[list[str] | None, typer.Argument(help="Tags to add.")]
Remove = Annotated[list[str] | None, typer.Option("--remove", help="A tag to take away.")]
Text = Annotated[str, typer.Argument(help="Instead of the notes so far; - reads it from the input.")]
Change = Callable[..., Json]


def tag(found: Json, change: Change, more: list[str] | None, less: list[str] | None, as_json: bool) -> None:
    """Add tags to what was found and take others from it; ``change(id, tags=…)`` does it."""
    if not more and not less:
        end(_("Say which tags: to add, or with --remove."), MISUSED)
    tags = [tag for tag in dict.fromkeys([*found["tags"], *(more or [])]) if tag not in (less or [])]
    made = change(found["id"], tags=tags)
    print_json(made) if as_json else print(f"{made['name']}: {', '.join(made['tags']) or _('no tags')}")


def note(found: Json, change: Change, text: str, as_json: bool) -> None:
    """Write the notes of what was found; ``change(id, notes=…)`` does it."""
    made = change(found["id"], notes=sys.stdin.read() if text == "-" else text)
    print_json(made) if as_json else print(f"{made['name']}: {made['notes'] or _('no notes')}")
