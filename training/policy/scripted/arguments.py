"""Tools as a prompt offers them, and the plainest arguments that their schemas allow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_PROMPT_CHARS, MAX_LISTS, MAX_DEPTH = 400_000, 16, 8
TEXT = "test"
_PLAIN: dict[str, Any] = {"string": TEXT, "integer": 1, "number": 1, "boolean": False, "null": None}
_OLD_NAMES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "str": "string", "int": "integer"}
_decoder = json.JSONDecoder()


class Tool(NamedTuple):
    """One function that may be called; ``schema`` is the JSON schema of its arguments."""

    name: str
    schema: dict[str, Any]

    @property
    def needs(self) -> list[str]:
        """Names of the arguments that it cannot do without."""
        required = self.schema.get("required")
        return [str(name) for name in required] if isinstance(required, list) else []


def tools_of(schemas: list[dict[str, Any]] | None, prompt: str) -> list[Tool]:
    """The tools given beside the prompt, else those whose documents stand in it as a JSON list."""
    return list(_tools(schemas)) if schemas else next((found for found in _lists(prompt) if found), [])


def _lists(prompt: str) -> Iterator[list[Tool]]:
    prompt = prompt[:MAX_PROMPT_CHARS]
    at = prompt.find("[{")
    for _try in range(MAX_LISTS):
        if at < 0:
            return
        try:
            value, end = _decoder.raw_decode(prompt, at)
        except (ValueError, RecursionError):
            value, end = [], at + 1
        yield list(_tools(value))
        at = prompt.find("[{", end)


def _tools(items: Any) -> Iterator[Tool]:
    for item in items if isinstance(items, list) else []:
        known = item.get("function", item) if isinstance(item, dict) else None
        if isinstance(known, dict) and isinstance(known.get("name"), str) and "parameters" in known:
            schema = known["parameters"]
            yield Tool(known["name"], schema if isinstance(schema, dict) else {})


def arguments_for(tool: Tool) -> dict[str, Any]:
    """Values for what the tool needs, and nothing more."""
    value = _plainest_value({**tool.schema, "type": "object"})
    return value if isinstance(value, dict) else {}


def _plainest_value(schema: Any, depth: int = 0) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return TEXT
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = _OLD_NAMES.get(str(kind), str(kind))
    if kind == "object":
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        return {name: _plainest_value(known.get(name), depth + 1) for name in Tool("", schema).needs}
    if kind == "array":
        return [_plainest_value(schema.get("items"), depth + 1)]
    if kind in ("integer", "number") and isinstance(schema.get("minimum"), int | float):
        return schema["minimum"]
    return _PLAIN.get(kind, TEXT)
