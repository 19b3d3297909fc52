"""Places in a row of a table: a column, a field in a column's object, or a text that is made of several of them.

``question`` is a column, ``payload.ask`` a field of the object in column ``payload`` (or of the JSON text there), and
``turns.0.text`` one of a list's first item. ``{payload.ask} ({payload.lang})`` is a text with fields put in; ``{{`` and
``}}`` are braces. A column that has the whole name comes first, whatever its name holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from training.data.formats.base import Value
from training.plain import number_in

MAX_DEPTH = 4
MAX_TEXT = 100_000
"""Characters of a column's text that may be JSON with fields of its own."""
_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def missing_in(row: Value, place: str) -> str:
    """The field that a place names and the row has not; empty where it has all."""
    try:
        value_at(row, place)
    except KeyError as exc:
        return str(exc.args[0])
    return ""


def value_at(row: Value, place: str) -> Any:
    """The value at a place; of a template its text. Raises ``KeyError`` with the field that is missing."""
    if place in row:
        return row[place]
    if _is_template(place):
        return _PARTS.sub(lambda part: _put_in(row, part), place)
    return _field(row, place)


def value_or_none(row: Value, place: str | None) -> Any:
    """The value at a place, ``None`` without a place and where a field is missing."""
    try:
        return value_at(row, place) if place else None
    except KeyError:
        return None


def fields_in(row: Value) -> Iterator[tuple[str, Any]]:
    """The columns of a row, and after each one the fields of its object, with their values."""
    for name, value in row.items():
        yield name, value
        yield from _fields_below(name, value, 1)


def _fields_below(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    found = _opened(value)
    if isinstance(found, dict) and depth < MAX_DEPTH:
        for key, item in found.items():
            if key and "." not in key:
                yield f"{name}.{key}", item
                yield from _fields_below(f"{name}.{key}", item, depth + 1)


def _is_template(place: str) -> bool:
    return any(part[1] for part in _PARTS.finditer(place))


def _put_in(row: Value, part: re.Match[str]) -> str:
    if part[1] is None:
        return part[0][0]
    value = row[part[1]] if part[1] in row else _field(row, part[1])
    if value is None:
        raise KeyError(part[1])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(row: Value, path: str) -> Any:
    value: Any = row
    for key in path.split("."):
        value = _opened(value)
        number = number_in(key, 6) if isinstance(value, list) else None
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif number is not None and number < len(value):
            value = value[number]
        else:
            raise KeyError(path)
    return value


def _opened(value: Any) -> Any:
    """What a text is as JSON, where it is an object or a list; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[") or len(value) > MAX_TEXT:
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value
