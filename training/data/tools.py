"""How tools are spelled, by OpenAI, Anthropic, MCP and Gemini, and what they become: OpenAI function schemas."""

from __future__ import annotations

from typing import Any

from envs.wire import ToolCall
from training.data.decoding import decoded
from training.data.problems import RowError, kind

TOOL_KEYS = ("tools", "tool_defs", "functions", "tool_definitions", "available_tools", "tool_schemas")
"""Columns that hold a row's tools: OpenAI's, that of prime-rl and verifiers, OpenAI's older one, and others."""
_OTHERS = {*TOOL_KEYS[1:]}
SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")
"""Where the schema of the arguments stands: with OpenAI, Anthropic, MCP."""
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
"""Where the arguments of a call stand: with OpenAI, Llama, Anthropic, LangChain."""
THINK, THOUGHT = "<think>", "</think>"


def calls_of(value: Any, where: str) -> list[ToolCall] | None:
    """The calls of an assistant message, in OpenAI's spelling or ours. Raises ``RowError``."""
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise RowError("calls_type", where=where, kind=kind(value))
    return [call_of(item, f"call {i} of {where}", f"call_{i}") for i, item in enumerate(value, 1)]


def bare_calls(content: Any, where: str, default_id: str) -> tuple[str | None, list[ToolCall]]:
    """The calls of a message that is nothing else, and the reasoning before them. Raises ``RowError``.

    The content is a call or a list of calls, or JSON text of either; reasoning stands in ``<think>`` before it.
    """
    reasoning = None
    if isinstance(content, str) and content.lstrip().startswith(THINK):
        thought, closed, rest = content.lstrip().removeprefix(THINK).partition(THOUGHT)
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
