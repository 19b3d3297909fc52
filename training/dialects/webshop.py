"""WebShop's dialect: ``search[words]`` and ``click[value]``, as calls of the tools of those names.

The last action after the last ``Action:`` counts, else the last one anywhere: it is what the model ended on. A turn
without one is a message, which the shop answers in its own words.
"""

from __future__ import annotations

import re

from envs.wire import ToolCall
from training.dialects.base import ParsedTurn, Tools
from training.dialects.thoughts import split_thought
from training.plain import json_problem

ARGUMENTS = {"search": "keywords", "click": "value"}
# Values of options may hold one level of brackets themselves.
_CALL = re.compile(r"\b(search|click)\[((?:[^\[\]\n]|\[[^\[\]\n]*\])+)\]", re.IGNORECASE)
_MARK = re.compile(r"action\s*:", re.IGNORECASE)


def parse(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """The completion's last action as a call with the id ``<call_prefix>0``; the rest is its message."""
    reasoning, body, _closed = split_thought(text, in_thought=in_thought)
    marks = list(_MARK.finditer(body))
    start = marks[-1].end() if marks else 0
    found = list(_CALL.finditer(body, start)) or list(_CALL.finditer(body))
    if not found:
        return ParsedTurn(body.strip(), reasoning=reasoning)
    name, value = found[-1][1].lower(), found[-1][2].strip()
    message = body[: found[-1].start()].strip()
    if (problem := json_problem(value)) is not None:
        return ParsedTurn(message, parse_error=f"The action cannot be used: {problem}.", reasoning=reasoning)
    call = ToolCall(id=f"{call_prefix}0", name=name, arguments={ARGUMENTS[name]: value})
    return ParsedTurn(message, [call], reasoning=reasoning)
