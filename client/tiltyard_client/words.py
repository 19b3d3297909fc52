"""The client's own words in the reader's language: English in the code, Chinese in ``locale/``.

Catalogues are read as they are written (``.po``), so that an installation needs no step of its own for them.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from importlib import resources
from typing import Any

import typer

VARIABLES = ("TILTYARD_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
CHINESE, ENGLISH = "zh-hans", "en"


def language() -> str:
    """``zh-hans`` or ``en``: by ``TILTYARD_LANG``, else by the terminal's own variables. Sites know the same two."""
    wanted = next((found for name in VARIABLES if (found := os.environ.get(name))), "")
    return CHINESE if wanted.lower().startswith("zh") else ENGLISH


def gettext(text: str) -> str:
    """The text in the reader's language."""
    return _catalogue().get(text, text) if language() == CHINESE else text


def gettext_noop(text: str) -> str:
    """The text itself; it is translated where it is shown."""
    return text


def ngettext(one: str, many: str, n: int) -> str:
    """The form for ``n`` things; Chinese has one form for all."""
    english = one if n == 1 else many
    return _catalogue().get(one, english) if language() == CHINESE else english


def translated(command: Any) -> Any:
    """A command of typer and all commands below it with help in the reader's language."""
    helped = command.get_help_option(typer.Context(command))
    for param in [*command.params, *([helped] if helped is not None else [])]:
        if getattr(param, "help", None):
            param.help = _breakable(gettext(param.help))
        param.rich_help_panel = gettext("Arguments") if param.param_type_name == "argument" else gettext("Options")
    if command.help:
        command.help = _breakable(gettext(command.help))
    for below in getattr(command, "commands", {}).values():
        translated(below).rich_help_panel = gettext("Commands")
    return command


def _breakable(text: str) -> str:
    """Tables of help break lines at spaces alone and cut what is longer than a line: Chinese gets some."""
    return re.sub(r"(?<=[，。；：、）])(?=\w)", " ", text)


@cache
def _catalogue() -> dict[str, str]:
    folder = resources.files("tiltyard_client") / "locale" / "zh_Hans" / "LC_MESSAGES"
    return messages_of((folder / "tiltyard.po").read_text(encoding="utf-8"))


def messages_of(text: str) -> dict[str, str]:
    """The translations of a ``.po``, whose entries stand apart by empty lines; of a plural the first form."""
    found: dict[str, str] = {}
    for entry in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in entry.splitlines():
            word, quote, rest = line.partition('"')
            if line.startswith("#") or not quote:
                continue
            name = word.strip() or name
            fields[name] = fields.get(name, "") + json.loads(quote + rest)
        message = fields.get("msgstr") or fields.get("msgstr[0]", "")
        if fields.get("msgid") and message:
            found[fields["msgid"]] = message
    return found
