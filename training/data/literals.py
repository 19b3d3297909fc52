"""Python literals that programs left in texts, read without running anything and within limits."""

from __future__ import annotations

import ast
from typing import Any

from training.data.limits import MAX_DEPTH, MAX_LITERAL_CHARS
from training.data.problems import RowError
from training.data.strict import check_tree


class LiteralError(ValueError):
    """Why a text is no literal that may be read."""


def literal(text: str) -> Any:
    """The value of a Python literal made of what JSON can carry too. Raises ``LiteralError``.

    ``ast.literal_eval`` builds only constants and containers; its parser is kept from deep nesting and long texts.
    """
    if len(text) > MAX_LITERAL_CHARS:
        raise LiteralError("it is too long")
    if _depth(text) > MAX_DEPTH:
        raise LiteralError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        value = ast.literal_eval(text)
        check_tree(value)
    except RowError as exc:
        raise LiteralError(str(exc)) from None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise LiteralError("it is no list that Python could have written") from None
    return value


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
