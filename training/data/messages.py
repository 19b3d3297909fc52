"""How messages and tools are spelled, by OpenAI, ShareGPT, ms-swift and others, and what they become here."""

from __future__ import annotations

from typing import Any, cast

from envs.wire import Message, Role, ToolCall
from training.data.problems import RowError, kind, shown
from training.data.strict import strict_loads

TEXT_PARTS = {"text", "input_text", "output_text"}
"""Types of content parts that are text, in OpenAI's two APIs."""
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "tool_result": "tool",
    "tool_response": "tool",
    "function": "tool",
    "observation": "tool",
    "tool_call": "assistant",
    "function_call": "assistant",
}
CALL_ROLES = {"tool_call", "function_call"}
REASONING = ("reasoning_content", "reasoning", "thinking", "thought")
"""Fields in which the reasoning of an assistant's turn stands; the first that holds text is read."""
_OURS = {"role", "content", "tool_calls", "tool_call_id", "name"}
_CHAT_ROLES = {"system", "user", "assistant", "tool"}
_PLAIN = {"role", "content"}
_set = object.__setattr__
_NOTHING: dict[str, Any] = {}
_EMPTY: dict[str, Any] = dict.fromkeys(Message.model_fields)
Messages = tuple[list[Message], list[dict[str, Any]], list[str]]
"""Messages, the fields of each that are not ours, and the roles as they stood."""


def plain(role: Role, content: str) -> Message:
    """A message of known good parts, without pydantic's checks."""
    made = object.__new__(Message)
    values = dict(_EMPTY, role=role, content=content)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", _PLAIN)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def plain_messages(items: list[Any]) -> Messages | None:
    """What ``messages_of`` gives where every message has a known role and a text and nothing else; nearly all have."""
    messages: list[Message] = []
    roles: list[str] = []
    for item in items:
        if type(item) is not dict or len(item) != 2:
            return None
        role, content = item.get("role"), item.get("content")
        if type(content) is not str or type(role) is not str or role not in _CHAT_ROLES:
            return None
        messages.append(plain(cast("Role", role), content))
        roles.append(role)
    return messages, [], roles


def messages_of(items: list[Any]) -> Messages:
    """Messages, the fields of each that are not ours, and the roles as they stood. Raises ``RowError``."""
    messages: list[Message] = []
    others: list[dict[str, Any]] = []
    roles: list[str] = []
    joins = False
    for number, item in enumerate(items, 1):
        message, is_call = _message(item, number)
        if is_call and joins:  # calls in consecutive messages were made in one turn
            (messages[-1].tool_calls or []).extend(message.tool_calls or [])
            if len(item) > 2:
                others[-1] = _others(item) | others[-1]
        else:
            messages.append(message)
            others.append(_NOTHING if len(item) == 2 else _others(item))
            roles.append(item.get("role", item.get("from")))
        joins = is_call
    return messages, others, roles


def _others(item: dict[str, Any]) -> dict[str, Any]:
    taken = _OURS | ({"from"} if "role" not in item else set()) | ({"value"} if "content" not in item else set())
    if ROLES[item.get("role") or item["from"]] != "assistant" and item.get("tool_calls"):
        taken = taken - {"tool_calls"}
    elif isinstance(item.get("function_call"), dict) and not item.get("tool_calls"):
        taken = taken | {"function_call"}
    return {name: value for name, value in item.items() if name not in taken}


def _message(item: Any, number: int) -> tuple[Message, bool]:
    """One message, and whether it is a bare call that joins the one before it."""
    where = f"message {number}"
    if not isinstance(item, dict):
        raise RowError("message_type", where=where, kind=kind(item))
    role = item.get("role", item.get("from"))
    if role is None:
        raise RowError("role_missing", where=where)
    known = cast("Role | None", ROLES.get(role) if isinstance(role, str) else None)
    if known is None:
        raise RowError("role_unknown", where=where, role=shown(role), known=", ".join(ROLES))
    content = item.get("content", item.get("value"))
    if len(item) == 2 and isinstance(content, str) and role not in CALL_ROLES:
        return plain(known, content), False
    reasoning = reasoning_of(item) if known == "assistant" else None
    if role in CALL_ROLES:
        call = _call(content, f"{where} (a {role})", f"call_{number}")
        return Message(role="assistant", reasoning=reasoning, tool_calls=[call]), True
    calls = _calls(item.get("tool_calls"), where) if known == "assistant" else None
    if calls is None and known == "assistant" and isinstance(item.get("function_call"), dict):
        calls = [_call(item["function_call"], f"the call of {where}", f"call_{number}")]  # before tool_calls came
    if content is None and (calls or reasoning):
        content = ""
    if content is None:
        raise RowError("content_missing", where=where)
    if isinstance(content, list):
        content = joined_parts(content, where)
    if not isinstance(content, str):
        raise RowError("content_type", where=where, kind=kind(content))
    ids = {name: _text_or_none(item.get(name), f"`{name}` of {where}") for name in ("name", "tool_call_id")}
    if reasoning and "</think>" in content:
        reasoning = None  # it stands in the text already
    return Message(role=known, content=content, reasoning=reasoning, tool_calls=calls, **ids), False  # type: ignore[arg-type]


def reasoning_of(item: dict[str, Any]) -> str | None:
    """What the model thought before it spoke, from a field of its own; ``None`` without a text."""
    found = (item.get(name) for name in REASONING)
    return next((text for text in found if isinstance(text, str) and text.strip()), None)


def joined_parts(parts: list[Any], where: str) -> str:
    """The text of OpenAI's content parts, one after the other as chat templates put them. Raises ``RowError``."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise RowError("content_type", where=where, kind=kind(part))
        if part.get("type", "text") not in TEXT_PARTS:
            raise RowError("content_part", where=where, type=shown(part.get("type")))
        if not isinstance(part.get("text"), str):
            raise RowError("content_missing", where=where)
        texts.append(part["text"])
    return "".join(texts)


def _calls(value: Any, where: str) -> list[ToolCall] | None:
    """The calls of an assistant message, in OpenAI's spelling or ours."""
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise RowError("calls_type", where=where, kind=kind(value))
    return [_call(item, f"call {i} of {where}", f"call_{i}") for i, item in enumerate(value, 1)]


def _call(value: Any, where: str, default_id: str) -> ToolCall:
    """One call from an object or its JSON text: name and arguments, maybe wrapped in `function`."""
    value = _parsed(value, where)
    if not isinstance(value, dict):
        raise RowError("call_type", where=where, kind=kind(value))
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    name, arguments = inner.get("name"), inner.get("arguments")
    if not isinstance(name, str) or not name:
        raise RowError("call_name", where=where)
    arguments = {} if arguments in (None, "") else _parsed(arguments, f"`arguments` of {where}")
    if not isinstance(arguments, dict):
        raise RowError("call_arguments", where=where, kind=kind(arguments))
    return ToolCall(id=_text_or_none(value.get("id"), f"`id` of {where}") or default_id, name=name, arguments=arguments)


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """The tool schemas of a row; ``None`` when it brings none."""
    if value is None or value == "":
        return None
    value = _parsed(value, "`tools`")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RowError("tools_type")
    return value


def _parsed(value: Any, where: str) -> Any:
    """``value``, decoded when it is JSON text. The text obeys the same rules as the file."""
    if not isinstance(value, str):
        return value
    try:
        return strict_loads(value)
    except RowError as exc:
        raise exc.within(where) from exc


def _text_or_none(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise RowError("text_type", where=where, kind=kind(value))
