"""What the library says, in the reader's language: template and values are stored, and translated when shown."""

from __future__ import annotations

import json
import re
from typing import Any

from django.utils.translation import gettext as _

from training.reasons import json_reason, os_reason
from training.words import said

_NAME = re.compile(r"\{(\w+)\}")
_PART = re.compile(r"(.+) of ((?:call|message) \d+.*)")
_CALL = re.compile(r"call (\d+)")
_MESSAGE = re.compile(r"message (\d+)(?: \((?:a )?(.+)\))?")
_WORDS = {"before", "unit", "kind", "format"}
_PLACES = {"where", "inside"}
MAX_DEPTH = 4


def translated(text: str | None) -> str:
    """A marked text in the reader's language. (gettext answers the empty text with its catalogue's header.)"""
    return _(text) if text else ""


def sentence(said: Any, depth: int = 0) -> str:
    """A sentence of the library from its stored form: ``{template, values}``."""
    if not isinstance(said, dict) or depth > MAX_DEPTH:
        return str(said)
    values = said.get("values") or {}
    text = filled(translated(str(said.get("template", ""))), values, depth)
    return f"{place(str(values['inside']))}: {text}" if "inside" in values else text


def in_words(text: str) -> str:
    """A text that the library has just said; one that was not ``told`` is its own template."""
    return sentence(said(text).model_dump(mode="json"))


def os_words(error: OSError) -> str:
    """Why the operating system refused."""
    return in_words(os_reason(error))


def json_words(error: ValueError | RecursionError) -> str:
    """What is wrong with a JSON text, and where: for whoever wrote it."""
    if isinstance(error, json.JSONDecodeError):
        place = {"line": error.lineno, "column": error.colno, "problem": in_words(json_reason(error))}
        return _("This is not valid JSON: %(problem)s (line %(line)s, column %(column)s).") % place
    deep = isinstance(error, RecursionError)
    return _("This JSON is nested too deeply.") if deep else _("This JSON holds a number of too many digits.")


def filled(template: str, values: dict[str, Any], depth: int = 0) -> str:
    """A template with its values; names that have none stay as they are."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return _value(name, values[name], depth) if name in values else found[0]

    return _NAME.sub(value, template)


def _value(name: str, value: Any, depth: int) -> str:
    if isinstance(value, dict):
        return sentence(value, depth + 1)
    if name in _PLACES:
        return place(str(value))
    return translated(value) if name in _WORDS and isinstance(value, str) else str(value)


def place(text: str) -> str:
    """Where in a row something is: ``call 1 of message 2``."""
    if found := _PART.fullmatch(text):
        return _("{part} of {whole}").format(part=place(found[1]), whole=place(found[2]))
    if found := _CALL.fullmatch(text):
        return _("call {n}").format(n=found[1])
    if found := _MESSAGE.fullmatch(text):
        shown = _("message {n}").format(n=found[1])
        return f"{shown} ({found[2]})" if found[2] else shown
    return text


def message_of(report: dict[str, Any]) -> str:
    """What a report says of the whole file."""
    told = report.get("told")
    return " ".join(sentence(said) for said in told) if told else str(report.get("message", ""))
