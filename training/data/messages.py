"""How messages are spelled, by OpenAI, ShareGPT, ms-swift and others, and what they become here."""

from __future__ import annotations

from typing import Any, cast

from envs.wire import Message, Role
from training.data.parts import parts_of
from training.data.problems import RowError, kind, shown
from training.data.tools import THOUGHT, bare_calls, call_of, calls_of, text_or_none
from training.reasoning import REASONING

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
    values = _EMPTY.copy()
    values["role"], values["content"] = role, content
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
        made, is_call = _read_item(item, number)
        if is_call and joins:  # calls in messages of their own belong to the turn before them
            _join(messages[-1], made[0])
            others[-1] = _others(item) | others[-1]
        else:
            messages += made
            others += [*[_NOTHING] * (len(made) - 1), _NOTHING if len(item) == 2 else _others(item)]
            stood = item.get("role", item.get("from"))
            roles += [stood] if len(made) == 1 and stood else [message.role for message in made]
        joins = is_call or (made[-1].role == "assistant" and not made[-1].tool_calls)
    return messages, others, roles


def _join(message: Message, call: Message) -> None:
    message.tool_calls = [*(message.tool_calls or []), *(call.tool_calls or [])]
    message.reasoning = message.reasoning or call.reasoning


def _others(item: dict[str, Any]) -> dict[str, Any]:
    if "role" not in item and "from" not in item:
        return {name: value for name, value in item.items() if name not in ROLES}
    taken = _OURS | ({"from"} if "role" not in item else set()) | ({"value"} if "content" not in item else set())
    if ROLES[item.get("role") or item["from"]] != "assistant" and item.get("tool_calls"):
        taken = taken - {"tool_calls"}
    elif isinstance(item.get("function_call"), dict) and not item.get("tool_calls"):
        taken = taken | {"function_call"}
    return {name: value for name, value in item.items() if name not in taken}


def _read_item(item: Any, number: int) -> tuple[list[Message], bool]:
    """The messages of one item, and whether it is a bare call that belongs to the turn before it."""
    where = f"message {number}"
    if not isinstance(item, dict):
        raise RowError("message_type", where=where, kind=kind(item))
    role = item.get("role", item.get("from"))
    if role is None:
        return _by_role(item, where), False
    known = cast("Role | None", ROLES.get(role) if isinstance(role, str) else None)
    if known is None:
        raise RowError("role_unknown", where=where, role=shown(role), known=", ".join(ROLES))
    content = item.get("content", item.get("value"))
    if role in CALL_ROLES:
        thought, calls = bare_calls(content, f"{where} (a {role})", f"call_{number}")
        return [Message(role="assistant", reasoning=reasoning_of(item) or thought, tool_calls=calls)], True
    if len(item) == 2 and isinstance(content, str):
        return [plain(known, content)], False
    return _messages(known, item, content, number), False


def _by_role(item: dict[str, Any], where: str) -> list[Message]:
    """The messages of an item whose keys are roles, as ms-swift's pairs of `human` and `assistant`."""
    said = [(ROLES[name], text) for name, text in item.items() if name in ROLES and isinstance(text, str) and text]
    if not {"user", "assistant"} & {role for role, _text in said}:
        raise RowError("role_missing", where=where)
    return [plain(cast("Role", role), text) for role, text in said]


def _messages(role: Role, item: dict[str, Any], content: Any, number: int) -> list[Message]:
    """The message of an item of more than a role and a text; results in parts are messages of their own."""
    where = f"message {number}"
    speaks = role == "assistant"
    reasoning = reasoning_of(item) if speaks else None
    calls = calls_of(item.get("tool_calls"), where) if speaks else None
    if calls is None and speaks and isinstance(item.get("function_call"), dict):
        calls = [call_of(item["function_call"], f"the call of {where}", f"call_{number}")]  # before tool_calls came
    results: list[Message] = []
    if isinstance(content, list):
        parts = parts_of(content, where)
        content, results = parts.text, parts.results
        if (parts.calls or parts.reasoning) and not speaks:
            raise RowError("part_of_another", where=where, role=role)
        calls, reasoning = [*(calls or []), *parts.calls] or None, reasoning or parts.reasoning or None
    if content is None and not calls and not reasoning:
        raise RowError("content_missing", where=where)
    if content is not None and not isinstance(content, str):
        raise RowError("content_type", where=where, kind=kind(content))
    if results and speaks:
        raise RowError("part_of_another", where=where, role=role)
    if results and not (content or "").strip():
        return results
    ids = {name: text_or_none(item.get(name), f"`{name}` of {where}") for name in ("name", "tool_call_id")}
    if reasoning and THOUGHT in (content or ""):
        reasoning = None  # it stands in the text already
    return [*results, Message(role=role, content=content or "", reasoning=reasoning, tool_calls=calls, **ids)]  # type: ignore[arg-type]


def reasoning_of(item: dict[str, Any]) -> str | None:
    """What the model thought before it spoke, from a field of its own; ``None`` without a text."""
    found = (item.get(name) for name in REASONING)
    return next((text for text in found if isinstance(text, str) and text.strip()), None)
