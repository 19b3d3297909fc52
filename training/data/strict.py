"""Decode JSON, refusing what would be lost or break later.

Refused: duplicate keys (the last would win silently), NaN and infinities (also as 1e999), numbers of thousands of
digits, NUL and lone surrogates (PostgreSQL stores neither), deep nesting, fields above ``MAX_FIELD_BYTES``. A column
that a row can do without is kept out of it, and reported, where JSON cannot carry its value (``usable``).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from training.data.problems import IGNORED, MAX_DEPTH, MAX_FIELD_BYTES, Ignored, RowError, shown
from training.plain import LiteralError, json_reason, literal
from training.words import _, sentence

_SURROGATE = re.compile("[\ud800-\udfff]")
NEEDED = frozenset(
    {"messages", "conversation", "conversations", "prompt", "completion", "system", "system_prompt", "history"}
    | {"question", "query", "instruction", "input", "output", "answer", "response", "solution", "target", "text"}
    | {"problem", "chosen", "rejected", "ground_truth", "reward_model", "extra_info", "tools", "functions"}
    | {"initial_config", "env_config", "responses_create_params", "answer_generation"}
)
"""Columns without which a row would be another one: a value there that JSON cannot carry refuses the row."""


def strict_loads(text: str) -> Any:
    """The value of a JSON text. Raises ``RowError``."""
    try:
        value = DECODER.decode(text)
    except RowError:
        raise
    except RecursionError:
        raise RowError("deep", limit=MAX_DEPTH) from None
    except json.JSONDecodeError as exc:
        raise RowError(
            "json", detail=sentence(_("{problem} at character {place}"), problem=json_reason(exc), place=exc.pos + 1)
        ) from None
    except ValueError:
        raise RowError("digits") from None
    check_decoded(value, text)
    return value


def row_loads(text: str) -> tuple[Any, tuple[Ignored, ...]]:
    """The value of a row's JSON text, and the columns that were kept out of it. Raises ``RowError``."""
    try:
        return strict_loads(text), ()
    except RowError as exc:
        if exc.code not in ("constant", "deep"):
            raise
        return usable(_lenient(text, exc), exc)


def _lenient(text: str, error: RowError) -> Any:
    try:
        return LENIENT.decode(text)
    except (ValueError, RecursionError):
        raise error from None


def usable(value: Any, error: RowError) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """A row without the columns whose values JSON cannot carry. Raises ``error`` where one of those is ``NEEDED``."""
    if not isinstance(value, dict):
        raise error
    kept: dict[str, Any] = {}
    ignored: list[Ignored] = []
    for name, item in value.items():
        _check_text(name)
        try:
            check_tree(item, 2)
        except RowError as exc:
            if exc.code not in IGNORED or name in NEEDED:
                raise error if exc.code == "not_finite" else exc from None
            ignored.append(Ignored(name[:200], exc.code, str(exc.values.get("type", exc.values.get("limit", "")))))
        else:
            kept[name] = item
    return kept, tuple(ignored)


def check_decoded(value: Any, text: str) -> None:
    """``check_tree`` where what it looks for can be in the text that ``value`` was decoded from."""
    if "\\u" in text or len(text) > MAX_FIELD_BYTES // 4 or text.count("[") + text.count("{") > MAX_DEPTH:
        check_tree(value)


def check_tree(value: Any, depth: int = 1) -> None:
    """Refuse what no row may hold at any depth. Raises ``RowError``; does not recurse."""
    stack: list[tuple[Any, int]] = [(value, depth)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, str):
            _check_text(node)
        elif isinstance(node, dict | list):
            if depth > MAX_DEPTH:
                raise RowError("deep", limit=MAX_DEPTH)
            if isinstance(node, dict):
                for key in node:
                    _check_text(key)
            stack += [(child, depth + 1) for child in (node.values() if isinstance(node, dict) else node)]
        elif isinstance(node, float):
            if not math.isfinite(node):
                raise RowError("not_finite")
        elif node is not None and not isinstance(node, bool | int):
            raise RowError("value_type", type=type(node).__name__)


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise RowError("key_type", type=type(text).__name__)
    if "\0" in text:
        raise RowError("nul")
    if not text.isascii() and _SURROGATE.search(text):
        raise RowError("surrogate")
    size = len(text) if text.isascii() or len(text) > MAX_FIELD_BYTES else len(text.encode())
    if size > MAX_FIELD_BYTES:
        raise RowError("field_long", limit=MAX_FIELD_BYTES >> 20)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1) if len(keys) < 1000 else "…"
        raise RowError("key_twice", key=shown(twice))
    return result


def _constant(name: str) -> NoReturn:
    raise RowError("constant", name=name)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("number_large")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
LENIENT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=float, parse_float=_float)
"""Reads NaN and Infinity as numbers, for ``usable`` to find."""


# Values that are text in a row: JSON, or what Python's ``str`` makes of a value.


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
