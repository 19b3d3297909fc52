"""Tool calls as OpenAI, ShareGPT, ms-swift, Anthropic and Llama spell them, and the text that some put before them."""

from __future__ import annotations

from typing import Any

from envs.wire import ToolCall
from training.data.decoding import decoded
from training.data.problems import RowError, kind

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
