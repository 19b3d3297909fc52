"""Values of arguments that a dialect writes as bare text, typed by the tool's own schema.

``<parameter=id>75001</parameter>`` may be a text or a number: only the schema tells. Without one, what reads as JSON of
another type than a text is that, and everything else is a text.
"""

from __future__ import annotations

from typing import Any

from training.dialects.base import Tools, Unreadable, json_decoder
from training.plain import LiteralError, literal

_WORDS = {"True": True, "False": False, "None": None}
"""How templates that print a value with Python's ``str`` write these."""
MAX_DEPTH = 8
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def parameters_of(tools: Tools | None, name: str) -> dict[str, Any]:
    """The JSON schema of a tool's arguments; empty where the tool is not offered or declares none."""
    for tool in tools or []:
        inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if isinstance(inner, dict) and inner.get("name") == name:
            schema = inner.get("parameters", inner.get("input_schema"))
            return schema if isinstance(schema, dict) else {}
    return {}


def types_of(parameters: dict[str, Any], key: str) -> set[str]:
    """JSON types that a parameter may have; empty where its schema does not say."""
    properties = parameters.get("properties")
    return _types(properties.get(key) if isinstance(properties, dict) else None, parameters, 0)


def typed(text: str, types: set[str]) -> Any:
    """The value that ``text`` stands for. Raises ``Unreadable`` for a number that is not finite."""
    if types == {"string"}:
        return text
    found, value = _parse_literal(text.strip(), may_be_text="string" in types or not types)
    if not found:
        return text
    if not types:
        return text if isinstance(value, str) else value
    kind = "null" if value is None else _TYPES[type(value)]
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if fits or "string" not in types else text


def _parse_literal(text: str, *, may_be_text: bool) -> tuple[bool, Any]:
    """Whether it is a JSON value, or one as Python prints it, and that value."""
    try:
        return True, json_decoder.decode(text)
    except (ValueError, RecursionError) as exc:
        if not may_be_text and "is not JSON" in str(exc):  # NaN or infinity
            raise Unreadable(f"A value cannot be used: {str(exc)[:80]}.") from exc
    if text in _WORDS:
        return True, _WORDS[text]
    if text[:1] in ("[", "{"):
        return _printed(text)
    return False, None


def _printed(text: str) -> tuple[bool, Any]:
    """A list or mapping as Python prints it."""
    try:
        value = literal(text)
    except LiteralError:
        return False, None
    return isinstance(value, list | dict), value


def _types(schema: Any, root: dict[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return set()
    if isinstance(ref := schema.get("$ref"), str):
        return _types(_at(root, ref), root, depth + 1)
    found: set[str] = set()
    kind = schema.get("type")
    found.update(item for item in (kind if isinstance(kind, list) else [kind]) if isinstance(item, str))
    for name in ("anyOf", "oneOf", "allOf"):
        options = schema.get(name)
        for option in options if isinstance(options, list) else []:
            found |= _types(option, root, depth + 1)
    if not found:
        values = schema.get("enum")
        given = [*(values if isinstance(values, list) else []), *([schema["const"]] if "const" in schema else [])]
        found = {"null" if value is None else _TYPES.get(type(value), "object") for value in given}
    if schema.get("nullable") is True and found:
        found.add("null")
    return found


def _at(root: dict[str, Any], ref: str) -> Any:
    """What a local ``$ref`` points at."""
    place: Any = root
    for part in ref.removeprefix("#/").split("/") if ref.startswith("#/") else [""]:
        place = place.get(part) if isinstance(place, dict) else None
    return place
