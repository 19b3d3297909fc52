"""How tools, parts of contents and messages are spelled, by OpenAI and others, and what they become here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from envs.wire import Message, Role, ToolCall
from training.data.problems import RowError, kind, shown
from training.data.strict import decoded
from training.plain import REASONING

# How tools are spelled, by OpenAI, Anthropic, MCP and Gemini, and what they become: OpenAI function schemas.

TOOL_KEYS = ("tools", "tool_defs", "functions", "tool_definitions", "available_tools", "tool_schemas")
"""Columns that hold a row's tools: OpenAI's, that of prime-rl and verifiers, OpenAI's older one, and others."""
_OTHERS = {*TOOL_KEYS[1:]}
SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
"""The keys of the schema of the arguments: with OpenAI, Anthropic, MCP."""
_GROUPS = ("functionDeclarations", "function_declarations")
"""Where Gemini lists the functions of one tool."""
_FUNCTION_TYPES = (None, "function", "custom")
Value = dict[str, Any]


def tools_key(raw: Value) -> str:
    """The column of a row that holds its tools; ``tools`` where none does."""
    own, *others = TOOL_KEYS
    if raw.keys().isdisjoint(_OTHERS) or raw.get(own) not in (None, "", []):  # nearly all rows
        return own
    return next((name for name in others if name in raw and _are_tools(raw[name])), own)


def _are_tools(value: Any) -> bool:
    """Whether a column of another name than ``tools`` holds function schemas and nothing else."""
    try:
        found = tools_of(value) or []
    except RowError:
        return False
    functions = [tool.get("function") for tool in found]
    return bool(found) and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in functions)


def tools_of(value: Any) -> list[Value] | None:
    """The tool schemas of a row; ``None`` when it brings none. Raises ``RowError``."""
    value = decoded(value, "`tools`", python=True) if value != "" else None
    if value is None:
        return None
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list):
        raise RowError("tools_type")
    return [tool for item in value for tool in _tools(item)]


def _tools(item: Any) -> list[Value]:
    """The tools of one item, which may be the text of one."""
    try:
        item = decoded(item, "`tools`", python=True)
    except RowError:
        raise RowError("tools_type") from None
    if not isinstance(item, dict):
        raise RowError("tools_type")
    group = next((item[key] for key in _GROUPS if isinstance(item.get(key), list)), None)
    return [_tool(each) for each in ([item] if group is None else group)]


def _tool(item: Any) -> Value:
    """One tool, its function inside; a tool that is no function, such as a built-in one, stays as it is."""
    if not isinstance(item, dict):
        raise RowError("tools_type")
    if item.get("function") is not None:
        inner = decoded(item["function"], "a function of `tools`", python=True)
        return item | {"function": _function(inner)} if isinstance(inner, dict) else item
    if item.get("type") not in _FUNCTION_TYPES or not isinstance(item.get("name"), str):
        return item
    return {"type": "function", "function": _function(item)}


def _function(given: Value) -> Value:
    """A function whose schema is an object under ``parameters``."""
    key = next((key for key in SCHEMA_KEYS if given.get(key) not in (None, "")), None)
    made = {SCHEMA_KEYS[0] if name == key else name: each for name, each in given.items() if name != "type"}
    if key is not None:
        made[SCHEMA_KEYS[0]] = decoded(given[key], "`parameters` of a tool", python=True)
    return made


# --- Calls ----------------------------------------------------------------------------------------------------------
# Tool calls as OpenAI, ShareGPT, ms-swift, Anthropic and Llama spell them, and the text that some put before them.

ARGUMENTS = ("arguments", "parameters", "input", "args")
"""The keys of the arguments of a call: with OpenAI, Llama, Anthropic, LangChain."""
THINK, THOUGHTS = "<think>", "</think>"


def calls_of(value: Any, where: str) -> list[ToolCall] | None:
    """The calls of an assistant message, in OpenAI's spelling or ours. Raises ``RowError``."""
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise RowError("calls_type", where=where, kind=kind(value))
    return [call_of(item, f"call {i} of {where}", f"call_{i}") for i, item in enumerate(value, 1)]


def bare_calls(content: Any, where: str, default_id: str) -> tuple[str | None, list[ToolCall]]:
    """The calls of a message that is nothing else, and the reasoning before them. Raises ``RowError``.

    The content is a call or a list of calls, or JSON text of either; reasoning is in ``<think>`` before it.
    """
    reasoning = None
    if isinstance(content, str) and content.lstrip().startswith(THINK):
        thought, closed, rest = content.lstrip().removeprefix(THINK).partition(THOUGHTS)
        reasoning, content = (thought.strip() or None, rest) if closed else (None, content)
    value = decoded(content, where)
    if not isinstance(value, list):
        return reasoning, [call_of(value, where, default_id)]
    if not value:
        raise RowError("call_type", where=where, kind=kind(value))
    return reasoning, [call_of(item, where, f"{default_id}_{i}") for i, item in enumerate(value, 1)]


def call_of(value: Any, where: str, default_id: str) -> ToolCall:
    """One call from an object or its JSON text: name and arguments, maybe in `function`. Raises ``RowError``."""
    value = decoded(value, where)
    if not isinstance(value, dict):
        raise RowError("call_type", where=where, kind=kind(value))
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    name = inner.get("name")
    if not isinstance(name, str) or not name:
        raise RowError("call_name", where=where)
    under = next((key for key in ARGUMENTS if inner.get(key) not in (None, "")), None)
    arguments = decoded(inner[under], f"`{under}` of {where}") if under else {}
    if not isinstance(arguments, dict):
        raise RowError("call_arguments", where=where, kind=kind(arguments))
    return ToolCall(id=text_or_none(value.get("id"), f"`id` of {where}") or default_id, name=name, arguments=arguments)


def text_or_none(value: Any, where: str) -> str | None:
    """A text that may be missing. Raises ``RowError``."""
    if value is None or isinstance(value, str):
        return value
    raise RowError("text_type", where=where, kind=kind(value))


# Contents in parts: OpenAI's parts of text, LLaMA-Factory's of text, reasoning and calls, Anthropic's blocks.

TEXT = {"text", "input_text", "output_text"}
"""Types of parts that are text, in OpenAI's two APIs and elsewhere."""
THOUGHT_PARTS = {"reasoning", "thinking", "think", "reasoning_text", "summary_text"}
HIDDEN = {"redacted_thinking"}
"""Types of parts that hold nothing to read."""
CALL = {"tool_use", "tool_call", "function_call"}
RESULT = {"tool_result"}
MEDIA = {"image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "file"}
MEDIA |= {"input_file", "document", "output_audio", "image_file"}
_KNOWN = ", ".join(sorted(TEXT | THOUGHT_PARTS | CALL | RESULT))


@dataclass
class Parts:
    """The text of a content's parts: texts are joined as chat templates put them."""

    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


def parts_of(given: list[Any], where: str) -> Parts:
    """The parts of a message's content. Raises ``RowError``."""
    parts = Parts()
    for part in given:
        if isinstance(part, str):
            parts.text += part
        elif isinstance(part, dict):
            _add(parts, part, where)
        else:
            raise RowError("content_type", where=where, kind=kind(part))
    return parts


def joined_parts(given: list[Any], where: str) -> str:
    """The text of parts that are nothing but text. Raises ``RowError``."""
    parts = parts_of(given, where)
    if parts.reasoning or parts.calls or parts.results:
        raise RowError("part_of_another", where=where, role="text")
    return parts.text


def _add(parts: Parts, part: dict[str, Any], where: str) -> None:
    what = part.get("type") or "text"
    if not isinstance(what, str):
        raise RowError("content_part_unknown", where=where, type=shown(what), known=_KNOWN)
    if what in TEXT:
        parts.text += _words(part, where)
    elif what in THOUGHT_PARTS:
        parts.reasoning += _words(part, where)
    elif what in CALL:
        value = part.get("value") if part.get("value") is not None else part
        parts.calls.append(call_of(value, f"a call of {where}", f"call_{len(parts.calls) + 1}"))
    elif what in RESULT:
        found = part.get("content")
        text = joined_parts(found, where) if isinstance(found, list) else text_or_none(found, f"a result of {where}")
        call_id = text_or_none(part.get("tool_use_id", part.get("tool_call_id")), f"the id of a result of {where}")
        parts.results.append(Message(role="tool", content=text or "", tool_call_id=call_id))
    elif what in MEDIA:
        raise RowError("content_part", where=where, type=shown(what))
    elif what not in HIDDEN:
        raise RowError("content_part_unknown", where=where, type=shown(what), known=_KNOWN)


def _words(part: dict[str, Any], where: str) -> str:
    """The words of a part, under `text`, `value` or its type, there perhaps in parts again. Raises ``RowError``."""
    names = ("text", "value", str(part.get("type")), "summary", "content")
    found = next((part[name] for name in names if part.get(name) is not None), None)
    if isinstance(found, list):
        return joined_parts(found, where)
    if not isinstance(found, str):
        raise RowError("content_missing", where=where)
    return found


# How messages are spelled, by OpenAI, ShareGPT, ms-swift and others, and what they become here.

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
"""Messages, the fields of each that are not ours, and the roles as in the file."""


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
    """Messages, the fields of each that are not ours, and the roles as in the file. Raises ``RowError``."""
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
            written = item.get("role", item.get("from"))
            roles += [written] if len(made) == 1 and written else [message.role for message in made]
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
    spoken = [(ROLES[name], text) for name, text in item.items() if name in ROLES and isinstance(text, str) and text]
    if not {"user", "assistant"} & {role for role, _text in spoken}:
        raise RowError("role_missing", where=where)
    return [plain(cast("Role", role), text) for role, text in spoken]


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
    if reasoning and THOUGHTS in (content or ""):
        reasoning = None  # it is in the text already
    return [*results, Message(role=role, content=content or "", reasoning=reasoning, tool_calls=calls, **ids)]  # type: ignore[arg-type]


def reasoning_of(item: dict[str, Any]) -> str | None:
    """The model's thought before it spoke, from a field of its own; ``None`` without a text."""
    found = (item.get(name) for name in REASONING)
    return next((text for text in found if isinstance(text, str) and text.strip()), None)
