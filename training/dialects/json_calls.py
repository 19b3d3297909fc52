"""Calls whose arguments are JSON: Hermes, Llama, Mistral, DeepSeek, Kimi, gpt-oss; and any family, for endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from training.dialects import reading
from training.dialects.base import (
    MAX_NAME,
    Found,
    Parse,
    ParsedTurn,
    Tools,
    Unreadable,
    checked,
    json_decoder,
    json_reason,
    skip_spaces,
)
from training.dialects.reading import Block, Form, Marked, after_broken

# Calls as JSON objects that hold their own names: ``{"name": ..., "arguments": {...}}``, alone or in a list.
#
# The JSON is read with a decoder that stops where the value ends, so braces, nested objects and even a closing mark
# inside a string argument do not confuse it.

EXTRA_KEYS = frozenset({"id", "type", "index", "tool_call_id"})
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

    ``names`` are the keys of a name; arguments are under ``arguments`` or, in a list, ``parameters``. Without
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
    """The call that an object writes. Raises ``Unreadable``, also where arguments are in another place."""
    if not isinstance(value, dict):
        raise Unreadable("The tool call is not a JSON object.")
    name = next((value[key] for key in names if key in value), None)
    if not isinstance(name, str) or not name.strip():
        raise Unreadable(f'The tool call has no "{names[0]}".')
    key = next((key for key in keys if key in value), None)
    if key is None and (others := [other for other in value if other not in EXTRA_KEYS and other not in names]):
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
MISTRAL_LIST = marked("[TOOL_CALLS]", "", many=True, close_needed=False)


# Llama 3.1's dialect: a turn that is nothing but ``{"name": ..., "parameters": {...}}``; several are parted by ``;``.
#
# An answer may be JSON too, so an object counts as a call only where it has both keys, or names an offered tool.

_OPENING = re.compile(r'(?:<\|python_tag\|>\s*)?\{(?=\s*"(?:name|type|parameters|arguments)"\s*:)')
BARE_KEYS = ("parameters", "arguments")


def read_bare(text: str, match: re.Match[str], tools: Tools | None) -> Block | None:
    """The call at a brace, ``None`` where the object is no call. Raises ``Unreadable``."""
    try:
        value, end = decode(text, match.end() - 1)
    except Unreadable:
        meant = '"name"' in text and any(f'"{key}"' in text for key in BARE_KEYS)
        if text[: match.start()].strip() or not meant:
            return None  # JSON in the middle of an answer
        raise
    offered = names_of(tools)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    if not any(key in value for key in BARE_KEYS) and value["name"].strip() not in offered:
        return None
    rest = skip_spaces(text, end)
    return Block([call_of(value, keys=BARE_KEYS)], rest + 1 if text.startswith(";", rest) else end)


def names_of(tools: Tools | None) -> set[str]:
    """Names of the tools that are offered."""
    inner = [tool["function"] if isinstance(tool.get("function"), dict) else tool for tool in tools or []]
    return {str(tool.get("name")) for tool in inner}


BARE = (Form(_OPENING, read_bare),)


# Calls whose names come before their arguments, which are JSON: Mistral, DeepSeek, Kimi, gpt-oss and others.

EMPTY = re.compile(r"\s*(?=<|\Z)")


def named(opening: str, closing: str, *, close_needed: bool = True, before_close: str = "") -> Form:
    """``opening`` is a pattern whose group ``name`` is the call's; its JSON and ``before_close`` follow.

    Without ``close_needed`` the mark may be lacking: it is a stop token, which is no text of a turn.
    """

    def read(text: str, match: re.Match[str], tools: Tools | None) -> Block:
        name = match["name"].strip()
        if EMPTY.match(text, match.end()):
            given, end = {}, match.end()
        else:
            value, end = decode(text, match.end())
            given = arguments_of(value, name, "arguments")
        rest = skip_spaces(text, end)
        if before_close and text.startswith(before_close, rest):
            rest = skip_spaces(text, rest + len(before_close))
        if text.startswith(closing, rest):
            return Block([checked(name, given)], rest + len(closing))
        if close_needed:
            raise Unreadable(f"The tool call is not closed with {closing}.")
        return Block([checked(name, given)], end)

    return Form(re.compile(opening), read, closing if close_needed else "")


DEEPSEEK = (
    named(
        r"<｜tool▁call▁begin｜>\s*function\s*<｜tool▁sep｜>(?P<name>[^\n<`]+)\n```(?:json)?\s*",
        "<｜tool▁call▁end｜>",
        before_close="```",
    ),
    named(r"<｜tool▁call▁begin｜>(?P<name>[^<\n]+)<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
)
KIMI = (
    named(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^<\s:]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>",
        "<|tool_call_end|>",
    ),
)
HARMONY = (
    named(
        r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))?\s*to=(?:functions\.)?(?P<name>[^\s<]+)"
        r"\s*(?:<\|channel\|>(?:commentary|analysis))?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*<\|message\|>",
        "<|call|>",
        close_needed=False,
    ),
)
MISTRAL_NAMED = named(
    r"\[TOOL_CALLS\]\s*(?P<name>[A-Za-z_][^\[\]\s{}\"]*)\s*(?:\[CALL_ID\][^\[\]]*)?(?:\[ARGS\])?(?=\s*\{|\s*\Z)",
    "[/TOOL_CALLS]",
    close_needed=False,
)
FUNCTION_TAG = (named(r"<function=(?P<name>[^>\s]+)>(?=\s*(?:\{|</function>))", "</function>"),)
SOLAR = (
    named(
        r"<\|tool_call:begin\|>[^<]*<\|tool_call:name\|>(?P<name>[^<]+)<\|tool_call:args\|>",
        "<|tool_call:end|>",
    ),
)


# The Hermes dialect, also Qwen2.5's and Qwen3's: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = reading.MAX_CALLS
HERMES = (marked(OPEN, CLOSE),)


def parse_hermes(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …"""
    return reading.read_turn(text, call_prefix, HERMES, tools, in_thought=in_thought)


# For a text of any family: for endpoints, whose chat templates are not known here.


class Anyone:
    """Reads a turn by the first dialect that finds calls in it; without any, by the first that finds a broken one.

    ``unmarked`` dialects have no marks: an answer may look like them, so only calls of offered tools count.
    """

    def __init__(self, marked: Sequence[Marked], unmarked: Sequence[Parse], plain: Parse) -> None:
        self._marked, self._unmarked, self._plain = marked, unmarked, plain

    def __call__(
        self, text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False
    ) -> ParsedTurn:
        """Read a turn."""
        broken: ParsedTurn | None = None
        for turn in self._readings(text, call_prefix, tools, in_thought):
            if turn.tool_calls:
                return turn
            broken = broken or (turn if turn.parse_error else None)
        return broken or self._plain(text, call_prefix, tools, in_thought=in_thought)

    def _readings(self, text: str, call_prefix: str, tools: Tools | None, in_thought: bool) -> Iterator[ParsedTurn]:
        for marked in self._marked:
            if marked.opens(text):
                yield marked(text, call_prefix, tools, in_thought=in_thought)
        offered = names_of(tools)
        for parse in self._unmarked:
            turn = parse(text, call_prefix, tools, in_thought=in_thought)
            if {call.name for call in turn.tool_calls} <= offered and turn.tool_calls:
                yield turn
