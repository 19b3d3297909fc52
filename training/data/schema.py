"""The internal schema of one dataset row, and how foreign spellings of it are read.

A row holds a conversation under ``messages``, ``conversation``, ``conversations`` or ``prompt`` (the first of these
that it has). Messages have ``role`` and ``content``, or ``from`` and ``value``. Tools are OpenAI function schemas, as
a list or as JSON text of one. Everything else of the row is kept in ``extra``, in its order. sources: SEED 2's
conversation JSONL, the agent rows of ms-swift, ShareGPT, verl's multi-turn rows (`systems.md` 2a).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic import BaseModel, Field

from envs.wire import Message, ToolCall
from training.data.limits import MAX_COLUMNS, MAX_DEPTH, MAX_FIELD_BYTES, MAX_REASON_CHARS

CONVERSATION_KEYS = ("messages", "conversation", "conversations", "prompt")
ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "model": "assistant",
    "tool": "tool", "tool_result": "tool", "tool_response": "tool", "function": "tool", "observation": "tool",
    "tool_call": "assistant", "function_call": "assistant",
}  # fmt: skip
CALL_ROLES = {"tool_call", "function_call"}
_KNOWN_KEYS = {"role", "from", "content", "value", "tool_calls", "tool_call_id", "name"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class RowError(ValueError):
    """Why a row cannot be used, as one plain sentence without its end stop, at most ``MAX_REASON_CHARS`` long."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= MAX_REASON_CHARS else reason[: MAX_REASON_CHARS - 1] + "…")


class Row(BaseModel):
    """One task or demonstration. ``raw`` is the whole row as it stood: what the environment gets as ``task``."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    raw: dict[str, Any] = Field(default_factory=dict, repr=False)

    def normal(self) -> dict[str, Any]:
        """The row in our own spelling, fit for ``rows.jsonl``: messages, tools, then the extras in their order.

        Fields of a message that are not ours stay with it unless several messages were joined into one.
        """
        theirs = self.raw.get(conversation_key(self.raw) or "", [])
        others = theirs if len(theirs) == len(self.messages) else [{}] * len(self.messages)
        row: dict[str, Any] = {
            "messages": [
                message.model_dump(exclude_none=True) | {k: v for k, v in other.items() if k not in _KNOWN_KEYS}
                for message, other in zip(self.messages, others, strict=True)
            ]
        }
        if self.tools is not None:
            row["tools"] = self.tools
        return row | self.extra

    def task(self) -> dict[str, Any]:
        """The task dict for the environment."""
        return self.raw


def conversation_key(raw: dict[str, Any]) -> str | None:
    """Under which key the row's conversation stands, or ``None``."""
    return next((key for key in CONVERSATION_KEYS if raw.get(key) is not None), None)


def row_from_dict(raw: dict[str, Any]) -> Row:
    """A row from decoded JSON that ``check_tree`` has passed. Raises ``RowError``."""
    if len(raw) > MAX_COLUMNS:
        raise RowError(f"the row has {len(raw)} columns; {MAX_COLUMNS} are allowed")
    key = conversation_key(raw)
    if key is None:
        raise RowError("the row has no conversation: expected a list under `conversation` or `messages`")
    items = raw[key]
    if not isinstance(items, list):
        raise RowError(f"`{key}` is {_kind(items)}, not a list of messages")
    if not items:
        raise RowError(f"`{key}` is empty: at least one message is needed")
    messages: list[Message] = []
    joins = False
    for number, item in enumerate(items, 1):
        message, is_call = _message(item, number)
        if is_call and joins:  # calls in consecutive messages were made in one turn
            (messages[-1].tool_calls or []).extend(message.tool_calls or [])
        else:
            messages.append(message)
        joins = is_call
    extra = {name: value for name, value in raw.items() if name not in (key, "tools", "messages")}
    return Row(messages=messages, tools=_tools(raw.get("tools")), extra=extra, raw=raw)


def _message(item: Any, number: int) -> tuple[Message, bool]:
    """One message, and whether it is a bare call that joins the one before it."""
    where = f"message {number}"
    if not isinstance(item, dict):
        raise RowError(f"{where} is {_kind(item)}, not an object with `role` and `content`")
    role = item.get("role", item.get("from"))
    if role is None:
        raise RowError(f"{where} has no role")
    known = ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        raise RowError(f"{where} has the unknown role {_shown(role)}; known are {', '.join(ROLES)}")
    content = item.get("content", item.get("value"))
    if role in CALL_ROLES:
        return Message(role="assistant", tool_calls=[_call(content, f"{where} (a {role})", f"call_{number}")]), True
    calls = _calls(item.get("tool_calls"), where) if known == "assistant" else None
    if content is None and calls:
        content = ""
    if content is None:
        raise RowError(f"{where} has no content")
    if not isinstance(content, str):
        raise RowError(f"the content of {where} is {_kind(content)}, not text")
    ids = {name: _text_or_none(item.get(name), f"`{name}` of {where}") for name in ("name", "tool_call_id")}
    return Message(role=known, content=content, tool_calls=calls, **ids), False  # type: ignore[arg-type]


def _calls(value: Any, where: str) -> list[ToolCall] | None:
    """The calls of an assistant message, in OpenAI's spelling or ours."""
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise RowError(f"`tool_calls` of {where} is {_kind(value)}, not a list")
    return [_call(item, f"call {i} of {where}", f"call_{i}") for i, item in enumerate(value, 1)]


def _call(value: Any, where: str, default_id: str) -> ToolCall:
    """One call from an object or its JSON text: name and arguments, maybe wrapped in `function`."""
    value = _parsed(value, where)
    if not isinstance(value, dict):
        raise RowError(f"{where} is {_kind(value)}, not an object with `name` and `arguments`")
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    name, arguments = inner.get("name"), inner.get("arguments")
    if not isinstance(name, str) or not name:
        raise RowError(f"{where} has no tool name")
    arguments = {} if arguments in (None, "") else _parsed(arguments, f"`arguments` of {where}")
    if not isinstance(arguments, dict):
        raise RowError(f"`arguments` of {where} is {_kind(arguments)}, not an object")
    return ToolCall(id=_text_or_none(value.get("id"), f"`id` of {where}") or default_id, name=name, arguments=arguments)


def _tools(value: Any) -> list[dict[str, Any]] | None:
    """The tool schemas of a row; ``None`` when it brings none."""
    if value is None or value == "":
        return None
    value = _parsed(value, "`tools`")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RowError("`tools` is not a list of function schemas")
    return value


def _parsed(value: Any, where: str) -> Any:
    """``value``, decoded when it is JSON text. The text obeys the same rules as the file."""
    if not isinstance(value, str):
        return value
    try:
        return strict_loads(value)
    except RowError as exc:
        raise RowError(f"{where}: {exc}") from exc


def strict_loads(text: str) -> Any:
    """Decode JSON, refusing what would be lost or break later. Raises ``RowError``.

    Refused: duplicate keys (the last would win silently), NaN and infinities (also as 1e999), numbers of thousands of
    digits, NUL and lone surrogates (PostgreSQL stores neither), deep nesting, fields above ``MAX_FIELD_BYTES``.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except RowError:
        raise
    except RecursionError:
        raise RowError(f"nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as exc:
        raise RowError(f"not valid JSON: {exc.msg} at character {exc.pos + 1}") from None
    except ValueError:
        raise RowError("holds a number with too many digits") from None
    if "\\u" in text or len(text) > MAX_FIELD_BYTES // 4 or text.count("[") + text.count("{") > MAX_DEPTH:
        check_tree(value)  # otherwise nothing that it looks for can be there
    return value


def check_tree(value: Any) -> None:
    """Refuse what no row may hold at any depth. Raises ``RowError``; does not recurse."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, str):
            _check_text(node)
        elif isinstance(node, dict | list):
            if depth > MAX_DEPTH:
                raise RowError(f"nested deeper than {MAX_DEPTH} levels")
            if isinstance(node, dict):
                for key in node:
                    _check_text(key)
            stack += [(child, depth + 1) for child in (node.values() if isinstance(node, dict) else node)]
        elif isinstance(node, float):
            if not math.isfinite(node):
                raise RowError("holds NaN or an infinity, which are not numbers in JSON")
        elif node is not None and not isinstance(node, bool | int):
            raise RowError(f"holds a value of type {type(node).__name__}, which JSON cannot carry; store it as text")


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise RowError(f"holds a key of type {type(text).__name__}")
    if "\0" in text:
        raise RowError("holds a NUL character (\\u0000)")
    if not text.isascii() and _SURROGATE.search(text):
        raise RowError("holds half of a surrogate pair (\\ud800 to \\udfff), which is not a character")
    size = len(text) if text.isascii() or len(text) > MAX_FIELD_BYTES else len(text.encode())
    if size > MAX_FIELD_BYTES:
        raise RowError(f"a field is longer than {MAX_FIELD_BYTES >> 10} KB")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1) if len(keys) < 1000 else "…"
        raise RowError(f"the key {_shown(twice)} stands twice in one object")
    return result


def _constant(name: str) -> NoReturn:
    raise RowError(f"holds {name}, which is not a number in JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("holds a number too large to store, such as 1e999")
    return value


def _text_or_none(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise RowError(f"{where} is {_kind(value)}, not text")


def _shown(value: Any) -> str:
    """A short, printable echo of a value."""
    text = ascii(value) if not isinstance(value, str) else repr(value.encode(errors="replace").decode())
    return text if len(text) <= 40 else text[:39] + "…"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else kinds.get(type(value), type(value).__name__)
