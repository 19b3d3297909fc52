"""Values that stand as text in a row: JSON, or what Python's ``str`` makes of a value."""

from __future__ import annotations

from typing import Any

from training.data.problems import RowError
from training.data.strict import check_tree, strict_loads
from training.plain import LiteralError, literal


def decoded(value: Any, where: str, *, python: bool = False) -> Any:
    """``value``, decoded when it is JSON text, or with ``python`` a Python literal.

    The text obeys the same rules as the file. Raises ``RowError``.
    """
    if not isinstance(value, str):
        return value
    try:
        return strict_loads(value)
    except RowError as exc:
        if python:
            try:
                return read_literal(value.strip())
            except LiteralError:
                pass
        raise exc.within(where) from exc


def read_literal(text: str) -> Any:
    """A Python literal that a row may hold. Raises ``LiteralError``."""
    value = literal(text)
    try:
        check_tree(value)
    except RowError as exc:
        raise LiteralError(str(exc)) from None
    return value
