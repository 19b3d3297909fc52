"""LFM2's dialects: Python calls between marks, ``<|tool_call_start|>[f(a='x', n=3)]<|tool_call_end|>``.

Some of its templates escape quotes in texts, others write them as they are. The latter (``RAW``) are read by where a
text must end: at a quote behind which the call goes on.
"""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import Found, Tools, Unreadable, checked, skip_spaces
from training.dialects.bfcl import MAX_CALLS, MAX_CHARS, python_calls
from training.dialects.reading import Block, Form

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*\(\s*")
_KEY = re.compile(r"\s*([^\s=,()]+)\s*=\s*")
_TEXT_ENDS = re.compile(r"'(?=\s*(?:,\s*[^\s=,()'\"]+\s*=|\)\s*(?:\]|,\s*[A-Za-z_][\w.-]*\s*\()))")


def _inside(text: str, match: re.Match[str]) -> tuple[str, int]:
    """What stands between the marks, and where the text goes on. Raises ``Unreadable``."""
    end = text.find(CLOSE, match.end())
    if end < 0:
        raise Unreadable(f"The tool call is not closed with {CLOSE}.")
    return text[match.end() : end].strip(), end + len(CLOSE)


def escaped(text: str, match: re.Match[str], tools: Tools | None) -> Block:
    """Calls as Python reads them. Raises ``Unreadable``."""
    written, end = _inside(text, match)
    try:
        return Block(python_calls(written if written.startswith("[") else f"[{written}]"), end)
    except Unreadable as exc:
        raise Unreadable(str(exc), end) from exc


def raw(text: str, match: re.Match[str], tools: Tools | None) -> Block:
    """Calls whose texts are not escaped. Raises ``Unreadable``."""
    written, end = _inside(text, match)
    try:
        return Block(_calls(written), end)
    except Unreadable as exc:
        raise Unreadable(str(exc), end) from exc


def _calls(written: str) -> list[Found]:
    if len(written) > MAX_CHARS or not written.startswith("["):
        raise Unreadable("The calls are not one list, or too long.")
    found: list[Found] = []
    at = 1
    while (name := _NAME.match(written, at)) is not None:
        given, at = _arguments(written, name.end())
        found.append(checked(name[1], given))
        at = skip_spaces(written, at)
        if not written.startswith(",", at) or len(found) > MAX_CALLS:
            break
        at += 1
    if written[skip_spaces(written, at) :] != "]" or not found:
        raise Unreadable("The list of calls cannot be read.")
    return found


def _arguments(written: str, at: int) -> tuple[dict[str, Any], int]:
    given: dict[str, Any] = {}
    while not written.startswith(")", at := skip_spaces(written, at)):
        key = _KEY.match(written, at)
        if key is None:
            raise Unreadable("A call has an argument without a name; write name=value.")
        given[key[1]], at = _parse_value(written, key.end())
        at = skip_spaces(written, at)
        at += written.startswith(",", at)
        if at >= len(written):
            raise Unreadable("A call is not closed with ).")
    return given, at + 1


def _parse_value(written: str, at: int) -> tuple[Any, int]:
    if written.startswith("'", at):
        end = _TEXT_ENDS.search(written, at + 1)
        if end is None:
            raise Unreadable("A text in a call is not closed with '.")
        return written[at + 1 : end.start()], end.end()
    end_at = _literal_end(written, at)
    ((_name, given),) = python_calls(f"[f(v={written[at:end_at].strip()})]")
    return given["v"], end_at


def _literal_end(written: str, at: int) -> int:
    """Where a number, word, list or mapping ends: at a comma or bracket outside of its own brackets and quotes."""
    depth, quote = 0, ""
    while at < len(written):
        mark = written[at]
        if quote:
            at += mark == "\\"
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark in "[{(":
            depth += 1
        elif depth == 0 and mark in ",)":
            return at
        elif mark in "]})":
            depth -= 1
        at += 1
    raise Unreadable("A call is not closed with ).")


_OPENING = re.compile(re.escape(OPEN))
ESCAPED = (Form(_OPENING, escaped, CLOSE, OPEN),)
RAW = (Form(_OPENING, raw, CLOSE, OPEN),)
