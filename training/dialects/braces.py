"""Gemma 4's dialect: JSON with quotes of its own and bare keys.

``<|tool_call>call:name{key:<|"|>text<|"|>,n:3}<tool_call|>``
"""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import MAX_NAME, Tools, Unreadable, checked, json_decoder, skip_spaces
from training.dialects.reading import Block, Form
from training.plain import MAX_DEPTH

QUOTE, CLOSE = '<|"|>', "<tool_call|>"
_BARE = re.compile(r"[^,}\]]+")
_KEY = re.compile(r"\s*([^:{}\[\],]+?)\s*:")
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
        match = _KEY.match(self.text, self.at)
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


def read(text: str, match: re.Match[str], tools: Tools | None) -> Block:
    """One call. Raises ``Unreadable``."""
    reader = _Reader(text, match.end())
    given = reader.value()
    end = skip_spaces(text, reader.at)
    if not isinstance(given, dict):
        raise Unreadable(f"The arguments of {match['name'][:MAX_NAME]} are no mapping.")
    if not text.startswith(CLOSE, end):
        raise Unreadable(f"The tool call is not closed with {CLOSE}.")
    return Block([checked(match["name"], given)], end + len(CLOSE))


FORMS = (Form(re.compile(r"<\|tool_call>\s*call:(?P<name>[^{\s<]+)\s*(?=\{)"), read, CLOSE, "<|tool_call>"),)
