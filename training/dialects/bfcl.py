"""BFCL's dialect: a list of Python calls, ``[cd(folder="a"), ls(a=True)]``, or a single one.

The list is read as a syntax tree and never run: only names, keywords and literal values pass. Nothing a model writes
raises.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from envs.wire import ToolCall
from training.dialects.base import Found, ParsedTurn, Tools, Unreadable, checked
from training.dialects.reading import UNCLOSED
from training.dialects.thoughts import split_thought

MAX_CALLS, MAX_CHARS = 64, 65_536
_START = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_SINGLE = re.compile(r"[A-Za-z_][\w.]*\(")
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def parse(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """Split a completion into text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …"""
    thought, body, closed = split_thought(text, in_thought=in_thought)
    if not closed:
        drafted = _START.search(text) is not None
        return ParsedTurn("", parse_error=UNCLOSED.format(mark="</think>") if drafted else None, reasoning=thought)
    before, written, after = _cut(body)
    if not written:
        return ParsedTurn(body.strip(), reasoning=thought)
    said = "\n".join(part for part in (before.strip(), after.strip()) if part)
    try:
        found = python_calls(written)
    except Unreadable as exc:
        return ParsedTurn(said, parse_error=str(exc), reasoning=thought)
    calls = [ToolCall(id=f"{call_prefix}{n}", name=name, arguments=values) for n, (name, values) in enumerate(found)]
    return ParsedTurn(said, calls, reasoning=thought)


def python_calls(written: str) -> list[Found]:
    """The calls of a list in Python's syntax. Raises ``Unreadable``."""
    return [_call(node) for node in _nodes(written)]


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


def _call(node: ast.expr) -> Found:
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
