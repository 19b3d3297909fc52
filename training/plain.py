"""Text of others: guards for JSON, reasons why something could not be read, and names of a model's reasoning."""

from __future__ import annotations

import ast
import csv
import errno
import json
import math
import re
import socket
from typing import Any

import yaml

from training.words import Sentence, _, sentence

# Why something could not be read or stored, in our words in place of Python's and the operating system's.
#
# Their own texts are English, change between versions, and name what a person never wrote ("[Errno 28] …").

_NUMBER = re.compile(r"\[Errno (\d+)\]")
_JSON = {
    "Expecting value": _("a value is missing, misspelt or without quotes"),
    "Expecting ',' delimiter": _("a comma is missing"),
    "Expecting ':' delimiter": _("a colon is missing after a name"),
    "Expecting property name enclosed in double quotes": _("a name in double quotes is missing"),
    "Extra data": _("more text follows after the end of the value"),
    "Illegal trailing comma before end of object": _("there is a comma before a closing brace"),
    "Illegal trailing comma before end of array": _("there is a comma before a closing bracket"),
    "Invalid control character at": _("a text holds a line end or another control character"),
    "Invalid \\escape": _("a backslash does not begin an escape that JSON knows"),
    "Invalid \\uXXXX escape": _("a \\u is not followed by four hexadecimal digits"),
    "Unterminated string starting at": _("a text has no closing quote"),
}
_OS = {
    errno.ENOSPC: _("the disk is full"),
    errno.EDQUOT: _("the disk quota is used up"),
    errno.EROFS: _("the disk is read-only"),
    errno.EACCES: _("Tiltyard may not read or write it"),
    errno.EPERM: _("Tiltyard may not read or write it"),
    errno.ENOENT: _("it does not exist"),
    errno.ENOTDIR: _("a part of its path is no folder"),
    errno.EISDIR: _("it is a folder"),
    errno.ELOOP: _("it is a link"),
    errno.ENAMETOOLONG: _("its name is too long"),
    errno.EMFILE: _("too many files are open"),
    errno.ENFILE: _("too many files are open"),
    errno.ENOMEM: _("the machine has too little memory"),
    errno.EIO: _("the disk failed to read or write"),
    errno.ECONNREFUSED: _("nothing listens at this address"),
    errno.ECONNRESET: _("the other side broke the connection"),
    errno.EPIPE: _("the other side broke the connection"),
    errno.ETIMEDOUT: _("no answer came in time"),
    errno.EHOSTUNREACH: _("there is no route to this address"),
    errno.ENETUNREACH: _("there is no route to this address"),
}
_YAML = (
    ("mapping values are not allowed", _("there is a colon where no value can begin")),
    ("could not find expected ':'", _("a colon is missing after a name")),
    ("did not find expected key", _("the indentation does not fit the lines above")),
    ("expected <block end>", _("the indentation does not fit the lines above")),
    ("expected ',' or", _("a list or mapping in brackets is not closed, or a comma is missing")),
    ("character '\\t'", _("there is a tab in the indentation; use spaces")),
    ("cannot start any token", _("a character is not allowed here; put the text in quotes")),
    ("found unexpected end of stream", _("a text has no closing quote")),
    ("special characters are not allowed", _("it holds a control character")),
    ("unacceptable character", _("it holds a control character")),
    ("aliases (*name) are not allowed", _("aliases (*name) are not allowed")),
    ("it is nested too deeply", _("it is nested too deeply or holds an impossible value")),
    ("found another document", _("it holds more than one document")),
    ("unknown escape character", _("a backslash does not begin an escape that YAML knows")),
    ("could not determine a constructor", _("tags (!name) are not allowed")),
    ("unhashable key", _("a name is a list or a mapping")),
)
_CSV = (
    ("expected after", _("text follows a closing quote without a delimiter")),
    ("unexpected end of data", _("a quoted text has no closing quote")),
    ("field larger than", _("a cell is too long")),
    ("new-line character", _("a cell without quotes contains a line end")),
)


def json_reason(error: json.JSONDecodeError) -> Sentence:
    """What is wrong with a JSON text, without the place."""
    return sentence(_JSON.get(error.msg, _("it breaks the rules of JSON")))


def os_reason(error: OSError) -> Sentence:
    """Why the operating system refused; an errno that is none of the usual ones is named by its symbol."""
    if isinstance(error, socket.gaierror):
        return sentence(_("the host name is not known"))
    number = error.errno or 0
    if not number and (several := _NUMBER.search(str(error))):  # asyncio tried more than one address
        number = int(several[1])
    if number in _OS:
        return sentence(_OS[number])
    if not number:
        return sentence(_("reading or writing failed"))
    return sentence(_("the system reports {code}"), code=errno.errorcode.get(number, type(error).__name__))


def yaml_reason(error: yaml.YAMLError) -> Sentence:
    """What is wrong with a YAML text, without the place."""
    return sentence(_first(_YAML, getattr(error, "problem", None) or str(error)) or _("it breaks the rules of YAML"))


def csv_reason(error: Exception) -> Sentence:
    """What is wrong with a line of CSV."""
    if isinstance(error, csv.Error):
        return sentence(_first(_CSV, str(error)) or _("it breaks the rules of CSV"))
    return sentence(_("the file is empty"))


def _first(table: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((words for part, words in table if part in text), None)


# Values that others wrote: guards for JSON and literals, and the names that they have for a model's reasoning.

# Guard for JSON values that others wrote, before they are rendered, journalled or sent on.

MAX_DEPTH = 32
_MAX_DIGITS = 4300  # of a text that int() reads
_LARGE = re.compile(r"NaN|Infinity|[eE]\+?\d\d|\d{200}")
"""A part of the JSON of every number that is not finite."""


def json_problem(value: Any, text: str | None = None, *, finite: bool = True) -> str | None:
    """Why a decoded JSON value cannot be passed on (too deep, lone surrogates, NaN or infinite), or ``None``.

    Serialisers further on raise for the first two: pydantic beyond about 250 levels, UTF-8 at a lone surrogate; and
    write ``null`` for the third, also where it is a number that is too large, such as ``1e999``; ``finite`` says that
    such numbers are none. ``text``, the JSON that the value came from, spares the walk where its characters alone show
    that there is nothing to find.
    """
    shallow = text is not None and text.count("{") + text.count("[") <= MAX_DEPTH
    if not shallow and _depth_exceeds(value, MAX_DEPTH):
        return f"it is nested deeper than {MAX_DEPTH} levels"
    if finite and (text is None or _LARGE.search(text)) and _not_finite(value):
        return "it contains a number that is not finite"
    if text is None or "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            return "it contains half of a surrogate pair"
    return None


def number_in(text: str | bytes, digits: int = _MAX_DIGITS) -> int | None:
    """The whole number that a text is, in 1 to ``digits`` ASCII digits; ``None`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def whole(value: Any, most: int) -> int | None:
    """A whole number from 0 to ``most`` that others wrote, as a number or as its digits; ``None`` for anything else."""
    if isinstance(value, str):
        value = number_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value) if value == int(value) else None


def _not_finite(value: Any) -> bool:
    """Whether it holds NaN or an infinite number. It is not nested without end."""
    if isinstance(value, dict):
        return any(map(_not_finite, value.values()))
    if isinstance(value, list):
        return any(map(_not_finite, value))
    return isinstance(value, float) and not math.isfinite(value)


def _depth_exceeds(value: Any, limit: int) -> bool:
    if limit < 0:
        return True
    if isinstance(value, dict):
        return any(_depth_exceeds(item, limit - 1) for item in value.values())
    if isinstance(value, list):
        return any(_depth_exceeds(item, limit - 1) for item in value)
    return False


# --- Literals -------------------------------------------------------------------------------------------------------
# Python literals that programs left in texts, read without running anything and within limits.

MAX_CHARS = 64 << 10
"""Longest text that is parsed: its syntax tree takes some 200 times its size."""


class LiteralError(ValueError):
    """Why a text is no literal that may be read."""


def literal(text: str) -> Any:
    """The value of a Python literal made of what JSON can carry too. Raises ``LiteralError``.

    ``ast.literal_eval`` builds only constants and containers; its parser is kept from deep nesting and long texts.
    """
    if len(text) > MAX_CHARS:
        raise LiteralError("it is too long")
    if _depth(text) > MAX_DEPTH:
        raise LiteralError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise LiteralError("it is no list that Python could have written") from None
    if (problem := _other_type(value) or json_problem(value)) is not None:
        raise LiteralError(problem)
    return value


def _other_type(value: Any) -> str | None:
    """What JSON has no type for, such as a set, as a reason; ``None`` without any."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [*node, *node.values()]
            if not all(isinstance(key, str) for key in node):
                return "a key of it is no text"
        elif isinstance(node, list):
            stack += node
        elif node is not None and not isinstance(node, str | bool | int | float):
            return f"it contains a value of the type {type(node).__name__}"
    return None


def _depth(text: str) -> int:
    """Deepest nesting of brackets and of signs, counting also those within texts: an upper bound."""
    deepest = depth = signs = 0
    for mark in text:
        if mark in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]})":
            depth = max(0, depth - 1)
        signs = signs + 1 if mark in "+-~ " else 0
        deepest = max(deepest, signs if mark != " " else 0)
    return deepest


# The names under which a model's reasoning is stored next to its message, in one place.

REASONING = ("reasoning_content", "reasoning", "thinking", "thought")
"""Where data and servers write it (DeepSeek's, OpenRouter's and vLLM's, Ollama's, older data's); the first that holds
text is read."""
READ_BY_TEMPLATES = ("reasoning_content", "thinking", "reasoning")
"""Where chat templates read it, in the order in which they are tried; the first is where we write it."""
