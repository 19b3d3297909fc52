"""Calls as JSON objects that hold their own names: ``{"name": ..., "arguments": {...}}``, alone or in a list.

The JSON is read with a decoder that stops where the value ends, so braces, nested objects and even a closing mark
inside a string argument do not confuse it.
"""

from __future__ import annotations

import re
from typing import Any

from training.dialects.base import (
    MAX_NAME,
    Found,
    Tools,
    Unreadable,
    checked,
    json_decoder,
    json_reason,
    skip_spaces,
)
from training.dialects.reading import Block, Form, after_broken

BESIDE = frozenset({"id", "type", "index", "tool_call_id"})
"""Keys of a call that are neither its name nor arguments."""
ARGUMENTS = ("arguments",)
MAX_SHOWN = 40


def marked(
    opening: str,
    closing: str,
    *,
    many: bool = False,
    close_needed: bool = True,
    names: tuple[str, ...] = ("name",),
) -> Form:
    """Objects (a list of them, or one after another, with ``many``) between two marks.

    ``names`` are the keys of a name; arguments stand under ``arguments`` or, in a list, ``parameters``. Without
    ``close_needed`` the closing mark may be lacking.
    """
    keys = ("arguments", "parameters") if many else ARGUMENTS
    pattern = re.compile(re.escape(opening))

    def read(text: str, match: re.Match[str], tools: Tools | None) -> Block:
        items, end = _items(text, match.end(), many=many)
        rest = skip_spaces(text, end)
        closed = text.startswith(closing, rest)
        after = rest + len(closing) if closed else end
        try:
            calls = [call_of(item, names, keys) for item in items]
        except Unreadable as exc:
            raise Unreadable(str(exc), after) from exc
        if close_needed and not closed:
            raise Unreadable(_not_closed(text, rest, opening, closing), after_broken(text, end, pattern, closing))
        return Block(calls, after)

    return Form(pattern, read, closing if close_needed else "", opening)


def call_of(value: Any, names: tuple[str, ...] = ("name",), keys: tuple[str, ...] = ARGUMENTS) -> Found:
    """The call that an object writes. Raises ``Unreadable``, also where arguments stand in another place."""
    if not isinstance(value, dict):
        raise Unreadable("The tool call is not a JSON object.")
    name = next((value[key] for key in names if key in value), None)
    if not isinstance(name, str) or not name.strip():
        raise Unreadable(f'The tool call has no "{names[0]}".')
    key = next((key for key in keys if key in value), None)
    if key is None and (others := [other for other in value if other not in BESIDE and other not in names]):
        shown = ", ".join(f'"{other[:MAX_SHOWN]}"' for other in others[:3])
        raise Unreadable(f'The call of {name[:MAX_NAME]} has no "{keys[0]}": what stands at {shown} belongs into it.')
    return checked(name, arguments_of(value.get(key) if key else None, name, keys[0]))


def arguments_of(given: Any, name: str, key: str) -> dict[str, Any]:
    """Arguments as an object; some models write them as JSON in a string. Raises ``Unreadable``."""
    if isinstance(given, str):
        try:
            given = json_decoder.decode(given) if given.strip() else {}
        except (ValueError, RecursionError) as exc:
            raise Unreadable(f'The "{key}" of {name[:MAX_NAME]} are not valid JSON: {json_reason(exc)}.') from exc
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Unreadable(f'The "{key}" of {name[:MAX_NAME]} are not a JSON object.')
    return given


def decode(text: str, at: int) -> tuple[Any, int]:
    """A JSON value and where it ends. Raises ``Unreadable``."""
    try:
        return json_decoder.raw_decode(text, skip_spaces(text, at))
    except (ValueError, RecursionError) as exc:
        raise Unreadable(f"The tool call is not valid JSON: {json_reason(exc)}.") from exc


def _items(text: str, start: int, *, many: bool) -> tuple[list[Any], int]:
    """The objects of a block and where the last one ends."""
    value, end = decode(text, start)
    if not many:
        return [value], end
    items = _keyed(value) if isinstance(value, list) else [value]
    while text.startswith("{", rest := skip_spaces(text, end)):  # one object a line
        more, end = decode(text, rest)
        items.append(more)
    return items, end


def _keyed(items: list[Any]) -> list[Any]:
    """Apertus writes ``{"<name>": {<arguments>}}``."""
    return [_renamed(item) if isinstance(item, dict) and len(item) == 1 else item for item in items]


def _renamed(item: dict[str, Any]) -> dict[str, Any]:
    ((name, given),) = item.items()
    return {"name": name, "arguments": given} if isinstance(given, dict) else item


def _not_closed(text: str, at: int, opening: str, closing: str) -> str:
    """What comes in the place of the closing mark."""
    close, nested = text.find(closing, at), text.find(opening, at)
    if close < 0 or 0 <= nested < close:
        return f"The tool call is not closed with {closing}."
    extra = text[at:close].strip()[:MAX_SHOWN]
    if extra.startswith("{"):
        return f"Two calls stand in one {opening}: the first is not closed with {closing} before the second."
    return f'"{extra}" follows the JSON of the tool call, which is not closed with {closing} where it ends.'


COMMAND_NAMES = ("tool_name", "name")
COMMAND = (
    marked("<|START_ACTION|>", "<|END_ACTION|>", many=True, names=COMMAND_NAMES),
    marked("Action: ```json", "```", many=True, names=COMMAND_NAMES),
)
LISTS = (
    marked("<|tool_call|>", "<|/tool_call|>", many=True, close_needed=False),
    marked("<tool_call>", "</tool_call>", many=True, close_needed=False),
    marked("<tool_calls>", "</tool_calls>", many=True),
    marked("<TOOLCALL>", "</TOOLCALL>", many=True),
    marked("<|tools_prefix|>", "<|tools_suffix|>", many=True),
    marked("functools", "", many=True, close_needed=False),
    marked("<|function_call|>", "", many=True, close_needed=False),
    marked("function call<|role_sep|>\n", "", many=True, close_needed=False),
)
MISTRAL = marked("[TOOL_CALLS]", "", many=True, close_needed=False)
