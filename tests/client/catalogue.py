"""``python -m tests.client.catalogue``: bring the client's own catalogue up to date with its texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client"))  # pytest has it there already
from tiltyard_client import cli  # noqa: E402

from webapp.ops.management.commands.collect_messages import (  # noqa: E402
    Message,
    catalogue_problems,
    catalogue_update,
    messages_of_python,
)

PACKAGE = ROOT / "client" / "tiltyard_client"
PATH = PACKAGE / "locale" / "zh_Hans" / "LC_MESSAGES" / "tiltyard.po"


def client_messages() -> dict[Message, list[str]]:
    """What the client says: the texts of its modules, and all help of its commands as typer shows it."""
    found: dict[Message, list[str]] = {}
    for path in sorted(PACKAGE.glob("*.py")):
        for message in messages_of_python(path.read_text(encoding="utf-8")):
            found.setdefault(message, []).append(path.name)
    for text in sorted(help_texts(typer.main.get_command(cli.app))):
        found.setdefault(Message(None, text), []).append("--help")
    return {message: sorted(set(places)) for message, places in found.items()}


def help_texts(command: Any) -> set[str]:
    """The help of a command, of its options and arguments, and of all commands below it."""
    params = [*command.params, command.get_help_option(typer.Context(command))]
    found = {command.help, *(getattr(param, "help", None) for param in params)}
    for below in getattr(command, "commands", {}).values():
        found |= help_texts(below)
    return {text for text in found if text}


if __name__ == "__main__":
    texts = client_messages()
    new, gone = catalogue_update(PATH, texts)
    print(f"{PATH}: {len(texts)} texts, {new} new, {gone} gone, {len(catalogue_problems(PATH, texts))} to do")
