"""JSON from untrusted text, and one text for equal arguments.

Cache files key a response by its arguments: as Python's ``str(dict)`` (upstream's server) or as JSON (other writers of
the same files). Both become one canonical text that the order of arguments does not change, nested ones included.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, NoReturn

MAX_DEPTH = 48
MAX_TEXT_LENGTH = 65_536


# A string that does not end goes to the end of the text, so that no start of one is looked at twice.
_STRING = re.compile(r""" "(?:[^"\\]|\\.)*+(?:"|\\?\Z) | '(?:[^'\\]|\\.)*+(?:'|\\?\Z) """, re.DOTALL | re.VERBOSE)
_BRACKET = re.compile(r"[\[{(\]})]")


class ValueFault(ValueError):
    """A text or value that is not accepted; says why without showing it."""


def load_json(text: str, *, limit: int = MAX_TEXT_LENGTH) -> Any:
    """JSON of at most ``limit`` characters; raises ``ValueFault`` on NaN and deep nesting too.

    Line breaks inside strings are let through: models write them.
    """
    return load_leading_json(text, limit=limit, whole=True)


def load_leading_json(text: str, *, limit: int = MAX_TEXT_LENGTH, whole: bool = False) -> Any:
    """The JSON value at the start of a text, whatever comes after it (unless ``whole``)."""
    text = text.strip()
    _check(text, limit)
    try:
        value, end = _DECODER.raw_decode(text)
        if whole and end < len(text):
            raise ValueFault("Extra data")
        return _repaired(value) if "\\u" in text else value
    except RecursionError:
        raise ValueFault("Nested too deeply") from None
    except ValueFault:
        raise
    except ValueError as error:
        raise ValueFault(getattr(error, "msg", "A number has too many digits")) from None


def canonical(arguments: Any) -> str:
    """Equal text for equal arguments; raises ``ValueFault`` where they are too large or hold NaN."""
    try:
        text = json.dumps(arguments, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        raise ValueFault("Not a JSON value") from None
    if len(text) > MAX_TEXT_LENGTH:
        raise ValueFault("Too long")
    return text


def parse_key(key: str) -> dict[str, Any]:
    """The arguments that a cache file's key holds; raises ``ValueFault``. Nothing is ever evaluated."""
    _check(key, MAX_TEXT_LENGTH)
    try:
        value = ast.literal_eval(key)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = load_json(key)
    if not isinstance(value, dict):
        raise ValueFault("Not an object")
    plain = _plain(value)
    return plain if isinstance(plain, dict) else {}


def _check(text: str, limit: int) -> None:
    """Counting brackets is an upper bound of the depth; only texts with many are walked."""
    if len(text) > limit:
        raise ValueFault("Too long")
    if text.count("[") + text.count("{") + text.count("(") > MAX_DEPTH and _is_deep(text):
        raise ValueFault("Nested too deeply")


def _is_deep(text: str) -> bool:
    """Whether brackets outside of strings nest too deeply."""
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{(" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def _plain(value: Any) -> Any:
    """A literal of Python as JSON has it."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


def _repaired(value: Any) -> Any:
    """Put U+FFFD for lone surrogates, which cannot be sent."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    return [_repaired(item) for item in value] if isinstance(value, list) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueFault(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)
