"""Texts as environments' own protocols have them: BFCL's calls, ToolBench's actions, WebShop's clicks, plain text."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from envs.wire import ToolCall
from training.dialects.base import (
    Found,
    ParsedTurn,
    Tools,
    Unreadable,
    checked,
    json_decoder,
    json_reason,
    split_thought,
)
from training.dialects.reading import UNCLOSED
from training.plain import json_problem

# BFCL's dialect: a list of Python calls, ``[cd(folder="a"), ls(a=True)]``, or a single one.
#
# The list is read as a syntax tree and never run: only names, keywords and literal values pass. Nothing a model writes
# raises.

MAX_CALLS, MAX_CHARS = 64, 65_536
_START = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_SINGLE = re.compile(r"[A-Za-z_][\w.]*\(")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def parse_bfcl(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …"""
    thought, body, closed = split_thought(text, in_thought=in_thought)
    if not closed:
        drafted = _START.search(text) is not None
        return ParsedTurn("", parse_error=UNCLOSED.format(mark="</think>") if drafted else None, reasoning=thought)
    before, written, after = _cut(body)
    if not written:
        return ParsedTurn(body.strip(), reasoning=thought)
    spoken = "\n".join(part for part in (before.strip(), after.strip()) if part)
    try:
        found = python_calls(written)
    except Unreadable as exc:
        return ParsedTurn(spoken, parse_error=str(exc), reasoning=thought)
    calls = [ToolCall(id=f"{call_prefix}{n}", name=name, arguments=values) for n, (name, values) in enumerate(found)]
    return ParsedTurn(spoken, calls, reasoning=thought)


def python_calls(written: str) -> list[Found]:
    """The calls of a list in Python's syntax. Raises ``Unreadable``."""
    return [_call_bfcl(node) for node in _nodes(written)]


def _cut(body: str) -> tuple[str, str, str]:
    """The text before the calls, the calls as written, the text after them."""
    start = _START.search(body)
    if start is not None:
        end = body.rfind("]") + 1
        end = end if end > start.start() else len(body)
        return body[: start.start()], body[start.start() : end], _without_fence(body[end:])
    stripped = body.strip().strip("`").strip()
    if _SINGLE.match(stripped) and stripped.endswith(")"):
        return "", f"[{stripped}]", ""
    return body, "", ""


def _without_fence(text: str) -> str:
    return "" if text.strip() == "```" else text


def _nodes(written: str) -> list[ast.expr]:
    if len(written) > MAX_CHARS:
        raise Unreadable("The list of calls is too long.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's strings may hold escapes that Python warns of
            node = ast.parse(written, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        reason = exc.msg if isinstance(exc, SyntaxError) else type(exc).__name__
        raise Unreadable(f"The list of calls cannot be read: {str(reason)[:120]}.") from exc
    if not isinstance(node, ast.List):
        raise Unreadable("The calls are not one list.")
    if len(node.elts) > MAX_CALLS:
        raise Unreadable(f"More than {MAX_CALLS} tool calls in one turn.")
    return node.elts


def _call_bfcl(node: ast.expr) -> Found:
    if not isinstance(node, ast.Call):
        raise Unreadable("The list holds something that is not a call.")
    name = _name(node.func)
    if node.args:
        raise Unreadable(f"{name[:64]} has an argument without a name; write name=value.")
    values: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise Unreadable(f"{name[:64]} unpacks its arguments; write name=value.")
        values[keyword.arg] = _literal_value(keyword.value, name)
    return checked(name, values)


def _name(node: ast.expr) -> str:
    """A name, with the class before it if there is one; other environments have dots in names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or len(parts) > 4:
        raise Unreadable("A call has no plain name.")
    return ".".join([node.id, *reversed(parts)])


def _literal_value(node: ast.expr, name: str, depth: int = 0) -> Any:
    """A literal as JSON has it."""
    if depth > 32:
        raise Unreadable(f"An argument of {name[:64]} is nested too deeply.")
    match node:
        case ast.Constant(value=str() as text):
            return _paired(text)
        case ast.Constant(value=int() | float() | bool() | None as value) if value == value:
            if not isinstance(value, float) or abs(value) != float("inf"):
                return value
        case ast.Name(id=word) if word in _WORDS:
            return _WORDS[word]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
            if not isinstance(value, bool) and abs(value) != float("inf"):
                return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal_value(item, name, depth + 1) for item in items]
        case ast.Dict(keys=keys, values=items):
            if all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys):
                pairs = zip(keys, items, strict=True)
                return {str(getattr(key, "value", "")): _literal_value(item, name, depth + 1) for key, item in pairs}
    raise Unreadable(f"An argument of {name[:64]} is not a plain value.")


def _paired(text: str) -> str:
    """Escapes of JSON write a character beyond the basic plane as two halves, which Python does not join."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text  # half of a pair: refused with the whole call


# ToolBench's dialect: ``Thought:``, ``Action:`` and ``Action Input:`` with a JSON object, one call a turn.
#
# The input ends where its JSON ends: what a model writes after it, such as an ``Observation:`` of its own, is not
# read. Nothing a model writes raises.

_THOUGHT = re.compile(r"^\s*Thought:[ \t]*")
_ACTION = re.compile(r"(?:^|\n)[ \t]*Action:[ \t]*([^\n]*)")
_INPUT = re.compile(r"[ \t]*Action Input:[ \t]*")


def parse_toolbench(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into its thought and its call, which gets the id ``<call_prefix>0``."""
    reasoning, body, closed = split_thought(text, in_thought=in_thought)
    if not closed:
        return ParsedTurn("", parse_error=UNCLOSED.format(mark="</think>"), reasoning=reasoning)
    action = _ACTION.search(body)
    thought = _THOUGHT.sub("", body if action is None else body[: action.start()]).strip()
    try:
        name, given = _call_toolbench(body, action)
    except Unreadable as exc:
        return ParsedTurn(thought, parse_error=str(exc), reasoning=reasoning)
    return ParsedTurn(thought, [ToolCall(id=f"{call_prefix}0", name=name, arguments=given)], reasoning=reasoning)


def _call_toolbench(body: str, action: re.Match[str] | None) -> Found:
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


# WebShop's dialect: ``search[words]`` and ``click[value]``, as calls of the tools of those names.
#
# The last action after the last ``Action:`` counts, else the last one anywhere: it is what the model ended on. A turn
# without one is a message, which the shop answers in its own words.

ARGUMENTS = {"search": "keywords", "click": "value"}
# Values of options may hold one level of brackets themselves.
_CALL = re.compile(r"\b(search|click)\[((?:[^\[\]\n]|\[[^\[\]\n]*\])+)\]", re.IGNORECASE)
_MARK = re.compile(r"action\s*:", re.IGNORECASE)


def parse_webshop(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
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


# No calls: all of what the model wrote is its message.


def parse_text(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """The whole completion as a message."""
    return ParsedTurn(text=text.strip())
