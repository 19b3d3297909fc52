"""Llama 3.1's dialect: a turn that is nothing but ``{"name": ..., "parameters": {...}}``; several are parted by ``;``.

An answer may be JSON too, so an object counts as a call only where it has both keys, or names an offered tool.
"""

from __future__ import annotations

import re

from training.dialects.base import Tools, Unreadable, skip_spaces
from training.dialects.json_calls import call_of, decode
from training.dialects.reading import Block, Form

_OPENING = re.compile(r'(?:<\|python_tag\|>\s*)?\{(?=\s*"(?:name|type|parameters|arguments)"\s*:)')
KEYS = ("parameters", "arguments")


def read(text: str, match: re.Match[str], tools: Tools | None) -> Block | None:
    """The call at a brace, ``None`` where the object is no call. Raises ``Unreadable``."""
    try:
        value, end = decode(text, match.end() - 1)
    except Unreadable:
        meant = '"name"' in text and any(f'"{key}"' in text for key in KEYS)
        if text[: match.start()].strip() or not meant:
            return None  # JSON in the middle of an answer
        raise
    offered = names_of(tools)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    if not any(key in value for key in KEYS) and value["name"].strip() not in offered:
        return None
    rest = skip_spaces(text, end)
    return Block([call_of(value, keys=KEYS)], rest + 1 if text.startswith(";", rest) else end)


def names_of(tools: Tools | None) -> set[str]:
    """Names of the tools that are offered."""
    inner = [tool["function"] if isinstance(tool.get("function"), dict) else tool for tool in tools or []]
    return {str(tool.get("name")) for tool in inner}


FORMS = (Form(_OPENING, read),)
