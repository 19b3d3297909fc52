"""What ``tiltyard run`` and ``tiltyard model`` share: tags and notes, as people write them on either."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from tiltyard_client.api import Json
from tiltyard_client.base import MISUSED, end, print_json
from tiltyard_client.words import gettext as _

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
