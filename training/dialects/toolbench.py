"""ToolBench's dialect: ``Thought:``, ``Action:`` and ``Action Input:`` with a JSON object, one call a turn.

The input ends where its JSON ends: what a model goes on to write, such as an ``Observation:`` of its own, is not read.
Nothing a model writes raises.
"""

from __future__ import annotations

import re
from typing import Any

from envs.wire import ToolCall
from training.dialects.base import Found, ParsedTurn, Tools, Unreadable, checked, json_decoder, json_reason
from training.dialects.reading import UNCLOSED
from training.dialects.thoughts import split_thought

_THOUGHT = re.compile(r"^\s*Thought:[ \t]*")
_ACTION = re.compile(r"(?:^|\n)[ \t]*Action:[ \t]*([^\n]*)")
_INPUT = re.compile(r"[ \t]*Action Input:[ \t]*")


def parse(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into its thought and its call, which gets the id ``<call_prefix>0``."""
    reasoning, body, closed = split_thought(text, in_thought=in_thought)
    if not closed:
        return ParsedTurn("", parse_error=UNCLOSED.format(mark="</think>"), reasoning=reasoning)
    action = _ACTION.search(body)
    thought = _THOUGHT.sub("", body if action is None else body[: action.start()]).strip()
    try:
        name, given = _call(body, action)
    except Unreadable as exc:
        return ParsedTurn(thought, parse_error=str(exc), reasoning=reasoning)
    return ParsedTurn(thought, [ToolCall(id=f"{call_prefix}0", name=name, arguments=given)], reasoning=reasoning)


def _call(body: str, action: re.Match[str] | None) -> Found:
    if action is None:
        raise Unreadable("There is no Action: and Action Input: after the Thought:.")
    name = action[1].strip()
    given = _INPUT.match(body, action.end() + 1)
    if not name or given is None:
        missing = "name after Action:" if not name else "Action Input: after the Action:"
        raise Unreadable(f"There is no {missing}.")
    return checked(name, _arguments(body[given.end() :].lstrip()))


def _arguments(given: str) -> dict[str, Any]:
    try:
        arguments = json_decoder.raw_decode(given)[0] if given else {}
    except (ValueError, RecursionError) as exc:
        raise Unreadable(f"The Action Input is not valid JSON: {json_reason(exc)}.") from exc
    if not isinstance(arguments, dict):
        raise Unreadable("The Action Input is not a JSON object.")
    return arguments
