"""Calls of functions: how they are read from untrusted text and JSON, and their limits. Nothing is ever evaluated."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MAX_CALLS = 64  # in one message; the longest gold turn has 34
MAX_ARGUMENT_CHARS = 16_384  # of one call, as JSON
MAX_CALL_TEXT = 65_536
MAX_NAME = 64
# BFCL's own list of names that it never runs; none of them is a function of its classes.
FORBIDDEN = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})


class CallError(ValueError):
    """A call that cannot be read; the text is a sentence for the model that wrote it."""


@dataclass(frozen=True)
class Call:
    """One call with literal arguments."""

    name: str
    keywords: dict[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()

    def too_large(self) -> bool:
        """Whether the arguments exceed what a call may carry; a megabyte in a file would be kept and shown again."""
        return self.size() > MAX_ARGUMENT_CHARS

    def size(self) -> int:
        """Characters of the arguments, counted only until there are more than a call may carry."""
        return _size([self.positional, self.keywords])


def _size(value: Any) -> int:
    """Characters of a JSON-like value, counted only until the limit is passed."""
    total, waiting = 0, [value]
    while waiting and total <= MAX_ARGUMENT_CHARS:
        item = waiting.pop()
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set):
            waiting += item
        elif isinstance(item, int):
            total += item.bit_length() // 3
        total += 1
    return total


def parse_call(text: str) -> Call:
    """A call as BFCL's answers write it, ``cd(folder='x')`` or ``sort('x')``; only a bare name and literals."""
    if len(text) > MAX_CALL_TEXT:
        raise CallError("The call is too long.")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CallError(f"{text[:MAX_NAME]!r} is not a call.") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise CallError(f"{text[:MAX_NAME]!r} is not a call of a plain name.")
    keywords: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise CallError(f"{text[:MAX_NAME]!r} unpacks its arguments.")
        keywords[keyword.arg] = _literal(keyword.value, text)
    return Call(node.func.id, keywords, tuple(_literal(item, text) for item in node.args))


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise CallError(f"{text[:MAX_NAME]!r} has an argument that is not a literal.") from None


def calls_from_json(text: str) -> list[Call]:
    """The calls inside ``<tool_call>``: an object or a list of them. Raises ``json.JSONDecodeError``.

    Like upstream: what is not an object with a name is skipped, and arguments that are no object are none.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("Nested too deeply", "", 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError:
        raise json.JSONDecodeError("A number has too many digits", "", 0) from None
    return list(_readable(value if isinstance(value, list) else [value]))


def _readable(items: Iterable[Any]) -> Iterable[Call]:
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name.strip():
            arguments = item.get("arguments")
            yield Call(name.strip(), arguments if isinstance(arguments, dict) else {})


# --- Schemas --------------------------------------------------------------------------------------------------------
# BFCL's function documents as OpenAI tools: its types ``dict``, ``float`` and ``any`` are not JSON Schema's.

TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


def tool_schemas(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI function schemas; what the functions return is left out, as BFCL does for native calls."""
    return [
        {
            "type": "function",
            "function": {
                "name": document["name"],
                "description": document["description"],
                "parameters": _mapped(document["parameters"]),
            },
        }
        for document in documents
    ]


def _mapped(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy with JSON Schema's types, all the way down. A property may itself be called ``type``."""
    mapped = dict(schema)
    if isinstance(mapped.get("type"), str):
        mapped["type"] = TYPES.get(mapped["type"], mapped["type"])
    if isinstance(mapped.get("properties"), dict):
        mapped["properties"] = {name: _mapped(value) for name, value in mapped["properties"].items()}
    if isinstance(mapped.get("items"), dict):
        mapped["items"] = _mapped(mapped["items"])
    return mapped
