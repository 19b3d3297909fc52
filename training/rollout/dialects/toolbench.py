"""ToolBench's dialect: ``Thought:``, ``Action:`` and ``Action Input:`` with a JSON object, one call a turn.

The input ends where its JSON ends: what a model goes on to write, such as an ``Observation:`` of its own, is not read.
Nothing a model writes raises.
"""

from __future__ import annotations

import re

from envs.wire import ToolCall
from training.rollout.dialects.base import ParsedTurn, json_decoder, json_reason
from training.rollout.plain import json_problem

_THOUGHT = re.compile(r"^\s*Thought:[ \t]*")
_ACTION = re.compile(r"(?:^|\n)[ \t]*Action:[ \t]*([^\n]*)")
_INPUT = re.compile(r"[ \t]*Action Input:[ \t]*")


def parse(text: str, call_prefix: str) -> ParsedTurn:
    """Split a completion into its thought and its call, which gets the id ``<call_prefix>0``."""
    action = _ACTION.search(text)
    thought = _THOUGHT.sub("", text if action is None else text[: action.start()]).strip()
    if action is None:
        return ParsedTurn(thought, parse_error="There is no Action: and Action Input: after the Thought:.")
    name = action[1].strip()
    given = _INPUT.match(text, action.end() + 1)
    if not name or given is None:
        missing = "name after Action:" if not name else "Action Input: after the Action:"
        return ParsedTurn(thought, parse_error=f"There is no {missing}.")
    call, problem = _call(name, text[given.end() :], f"{call_prefix}0")
    return ParsedTurn(thought, [call] if call is not None else [], problem)


def _call(name: str, given: str, call_id: str) -> tuple[ToolCall | None, str | None]:
    given = given.lstrip()
    try:
        arguments = json_decoder.raw_decode(given)[0] if given else {}
    except (ValueError, RecursionError) as exc:
        return None, f"The Action Input is not valid JSON: {json_reason(exc)}."
    if not isinstance(arguments, dict):
        return None, "The Action Input is not a JSON object."
    if (problem := json_problem([name, arguments])) is not None:
        return None, f"The call cannot be used: {problem}."
    return ToolCall(id=call_id, name=name, arguments=arguments), None
