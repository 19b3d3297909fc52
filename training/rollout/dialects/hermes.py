"""The Hermes dialect, also Qwen's: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

The JSON is read with a decoder that stops where the value ends, so braces, nested objects and even a
``</tool_call>`` inside a string argument do not confuse it. Nothing a model writes raises.
"""

from __future__ import annotations

from typing import Any

from envs.wire import ToolCall
from training.rollout.dialects.base import ParsedTurn, json_decoder, json_reason
from training.rollout.plain import json_problem

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = 16
MAX_TRIED = 64
"""Blocks that are read at most, broken ones included: each may cost a look at the whole rest of the text."""


def parse(text: str, call_prefix: str) -> ParsedTurn:
    """Split a completion into text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …"""
    words: list[str] = []
    calls: list[ToolCall] = []
    error: str | None = None
    position = tried = 0
    while (start := text.find(OPEN, position)) >= 0:
        if tried == MAX_TRIED:
            error = error or f"More than {MAX_TRIED} tool calls in one turn."
            break
        tried += 1
        words.append(text[position:start])
        call, problem, position = _read_call(text, start + len(OPEN), f"{call_prefix}{len(calls)}")
        if call is not None and len(calls) == MAX_CALLS:
            call, problem = None, f"More than {MAX_CALLS} tool calls in one turn."
        if call is not None:
            calls.append(call)
        error = error or problem
    words.append(text[position:])
    rest = "".join(words)
    if CLOSE in rest:
        error = error or f"{CLOSE} without {OPEN}."
    return ParsedTurn(text=rest.strip(), tool_calls=calls, parse_error=error)


def _read_call(text: str, start: int, call_id: str) -> tuple[ToolCall | None, str | None, int]:
    """One call that begins at ``start``: (call or None, problem or None, where reading goes on)."""
    at = start
    while at < len(text) and text[at].isspace():
        at += 1
    try:
        value, end = json_decoder.raw_decode(text, at)
    except (ValueError, RecursionError) as exc:
        return None, f"The tool call is not valid JSON: {json_reason(exc)}.", _after_broken(text, start)
    rest = len(text) - len(text[end:].lstrip())
    closed = text.startswith(CLOSE, rest)
    after = rest + len(CLOSE) if closed else end
    call, problem = _call_of(value, call_id)
    if call is not None and not closed:
        return None, f"The tool call is not closed with {CLOSE}.", _after_broken(text, end)
    return call, problem, after


def _call_of(value: Any, call_id: str) -> tuple[ToolCall | None, str | None]:
    if not isinstance(value, dict):
        return None, "The tool call is not a JSON object."
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return None, 'The tool call has no "name".'
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):  # some models write the arguments as JSON in a string
        try:
            arguments = json_decoder.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as exc:
            return None, f'The "arguments" of {name[:64]} are not valid JSON: {json_reason(exc)}.'
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return None, f'The "arguments" of {name[:64]} are not a JSON object.'
    if (problem := json_problem([name, arguments])) is not None:
        return None, f"The tool call cannot be used: {problem}."
    return ToolCall(id=call_id, name=name.strip(), arguments=arguments), None


def _after_broken(text: str, start: int) -> int:
    """Skip a broken call: past its close tag, or to the next open tag, or to the end."""
    close, nested = text.find(CLOSE, start), text.find(OPEN, start)
    if close >= 0 and (nested < 0 or close < nested):
        return close + len(CLOSE)
    return nested if nested >= 0 else len(text)
