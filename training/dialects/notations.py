"""Calls in notations of a family's own: Gemma 4's JSON with bare keys, and LFM2's Python calls."""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import MAX_NAME, Found, Tools, Unreadable, checked, json_decoder, skip_spaces
from training.dialects.protocols import MAX_CALLS, MAX_CHARS, python_calls
from training.dialects.reading import Block, Form
from training.plain import MAX_DEPTH

# Gemma 4's dialect: JSON with quotes of its own and bare keys.
#
# ``<|tool_call>call:name{key:<|"|>text<|"|>,n:3}<tool_call|>``

QUOTE, GEMMA_CLOSE = '<|"|>', "<tool_call|>"
_BARE = re.compile(r"[^,}\]]+")
_GEMMA_KEY = re.compile(r"\s*([^:{}\[\],]+?)\s*:")
_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def value(self, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise Unreadable(f"The tool call cannot be used: it is nested deeper than {MAX_DEPTH} levels.")
        self.at = skip_spaces(self.text, self.at)
        if self.text.startswith(QUOTE, self.at):
            return self._quoted()
        if self.text.startswith("{", self.at):
            return self._mapping(depth)
        if self.text.startswith("[", self.at):
            return self._list(depth)
        return self._bare()

    def _quoted(self) -> str:
        begin = self.at + len(QUOTE)
        end = self.text.find(QUOTE, begin)
        if end < 0:
            raise Unreadable(f"A text is not closed with {QUOTE}.")
        self.at = end + len(QUOTE)
        return self.text[begin:end]

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._ends("{" if not found else ",", "}"):
            key = self._key()
            found[key] = self.value(depth + 1)
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._ends("[" if not found else ",", "]"):
            found.append(self.value(depth + 1))
        return found

    def _ends(self, mark: str, closing: str) -> bool:
        """Take the mark before the next item; whether the closing one comes in its place, or behind it."""
        self.at = skip_spaces(self.text, self.at)
        if mark == "," and self.text.startswith(closing, self.at):
            self.at += 1
            return True
        if not self.text.startswith(mark, self.at):
            raise Unreadable(f"The arguments of the tool call lack a {mark} or {closing}.")
        self.at = skip_spaces(self.text, self.at + 1)
        if mark != "," and self.text.startswith(closing, self.at):
            self.at += 1
            return True
        return False

    def _key(self) -> str:
        if self.text.startswith(QUOTE, self.at):
            key = self._quoted()
            self.at = skip_spaces(self.text, self.at)
            if not self.text.startswith(":", self.at):
                raise Unreadable("An argument of the tool call has no value.")
            self.at += 1
            return key
        match = _GEMMA_KEY.match(self.text, self.at)
        if match is None:
            raise Unreadable("An argument of the tool call has no name.")
        self.at = match.end()
        return match[1]

    def _bare(self) -> Any:
        match = _BARE.match(self.text, self.at)
        word = match[0].strip() if match else ""
        if match is None or not word:
            raise Unreadable("An argument of the tool call has no value.")
        self.at = match.end()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return json_decoder.decode(word)
        except (ValueError, RecursionError) as exc:
            raise Unreadable(f'"{word[:40]}" is no value; a text stands between {QUOTE}.') from exc


def read_gemma(text: str, match: re.Match[str], tools: Tools | None) -> Block:
    """One call. Raises ``Unreadable``."""
    reader = _Reader(text, match.end())
    given = reader.value()
    end = skip_spaces(text, reader.at)
    if not isinstance(given, dict):
        raise Unreadable(f"The arguments of {match['name'][:MAX_NAME]} are no mapping.")
    if not text.startswith(GEMMA_CLOSE, end):
        raise Unreadable(f"The tool call is not closed with {GEMMA_CLOSE}.")
    return Block([checked(match["name"], given)], end + len(GEMMA_CLOSE))


GEMMA = (
    Form(re.compile(r"<\|tool_call>\s*call:(?P<name>[^{\s<]+)\s*(?=\{)"), read_gemma, GEMMA_CLOSE, "<|tool_call>"),
)


# LFM2's dialects: Python calls between marks, ``<|tool_call_start|>[f(a='x', n=3)]<|tool_call_end|>``.
#
# Some of its templates escape quotes in texts, others write them as they are. The latter (``RAW``) are read by where a
# text must end: at a quote behind which the call continues.

OPEN, LFM2_CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*\(\s*")
_LFM2_KEY = re.compile(r"\s*([^\s=,()]+)\s*=\s*")
_TEXT_ENDS = re.compile(r"'(?=\s*(?:,\s*[^\s=,()'\"]+\s*=|\)\s*(?:\]|,\s*[A-Za-z_][\w.-]*\s*\()))")


def _inside(text: str, match: re.Match[str]) -> tuple[str, int]:
    """The text between the marks, and where the rest begins. Raises ``Unreadable``."""
    end = text.find(LFM2_CLOSE, match.end())
    if end < 0:
        raise Unreadable(f"The tool call is not closed with {LFM2_CLOSE}.")
    return text[match.end() : end].strip(), end + len(LFM2_CLOSE)


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
        key = _LFM2_KEY.match(written, at)
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
LFM2_ESCAPED = (Form(_OPENING, escaped, LFM2_CLOSE, OPEN),)
LFM2_RAW = (Form(_OPENING, raw, LFM2_CLOSE, OPEN),)
