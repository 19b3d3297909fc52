"""BFCL's function documents as OpenAI tools: its types ``dict``, ``float`` and ``any`` are not JSON Schema's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
