"""Python literals that programs left in texts, read without running anything and within limits."""

from __future__ import annotations

import ast
from typing import Any

from training.plain import MAX_DEPTH, json_problem

MAX_CHARS = 64 << 10
"""Longest text that is parsed: its syntax tree takes some 200 times its size."""


class LiteralError(ValueError):
    """Why a text is no literal that may be read."""


def literal(text: str) -> Any:
    """The value of a Python literal made of what JSON can carry too. Raises ``LiteralError``.

    ``ast.literal_eval`` builds only constants and containers; its parser is kept from deep nesting and long texts.
    """
    if len(text) > MAX_CHARS:
        raise LiteralError("it is too long")
    if _depth(text) > MAX_DEPTH:
        raise LiteralError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise LiteralError("it is no list that Python could have written") from None
    if (problem := _other_type(value) or json_problem(value)) is not None:
        raise LiteralError(problem)
    return value


def _other_type(value: Any) -> str | None:
    """What JSON has no type for, such as a set, as a reason; ``None`` without any."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [*node, *node.values()]
            if not all(isinstance(key, str) for key in node):
                return "a key of it is no text"
        elif isinstance(node, list):
            stack += node
        elif node is not None and not isinstance(node, str | bool | int | float):
            return f"it contains a value of the type {type(node).__name__}"
    return None


def _depth(text: str) -> int:
    """Deepest nesting of brackets and of signs, counting also those within texts: an upper bound."""
    deepest = depth = signs = 0
    for mark in text:
        if mark in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]})":
            depth = max(0, depth - 1)
        signs = signs + 1 if mark in "+-~ " else 0
        deepest = max(deepest, signs if mark != " " else 0)
    return deepest
