"""Whether a call's arguments keep to the schema of its tool: types, required ones, choices. No patterns, no references.

A schema comes from a file that somebody uploaded, so nothing of it is fetched and no expression of it is run.
"""

from __future__ import annotations

from typing import Any

from training.data.nulls import allows_null
from training.data.problems import kind, shown
from training.words import _, sentence

MAX_DEPTH = 16
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "dict": (dict,),
    "array": (list,),
    "list": (list,),
    "tuple": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "float": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def functions_of(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Name → parameters of every tool that has a name."""
    found: dict[str, Any] = {}
    for tool in tools:
        inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            found[inner["name"]] = inner.get("parameters")
    return found


def schema_is_valid(parameters: Any) -> bool:
    """Whether parameters are a schema of an object, or left out."""
    if parameters is None or parameters == {}:
        return True
    if not isinstance(parameters, dict) or parameters.get("type", "object") not in ("object", "dict"):
        return False
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    return isinstance(properties, dict) and isinstance(required, list)


def fault_of(arguments: dict[str, Any], parameters: Any) -> str | None:
    """The first way in which arguments break a schema, in words; ``None`` where they keep to it."""
    if not schema_is_valid(parameters) or not parameters:
        return None
    for name in parameters.get("required", []):
        if isinstance(name, str) and name not in arguments:
            return sentence(_("{name} is missing"), name=shown(name))
    properties = parameters.get("properties", {})
    for name, value in arguments.items():
        if name in properties:
            if fault := _fault(value, properties[name], shown(name), 1):
                return fault
        elif parameters.get("additionalProperties") is False or properties:
            return sentence(_("there is no argument {name}"), name=shown(name))
    return None


def _fault(value: Any, schema: Any, where: str, depth: int) -> str | None:
    if not isinstance(schema, dict) or depth > MAX_DEPTH or (value is None and allows_null(schema)):
        return None
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    known = [name for name in names if isinstance(name, str) and name in _TYPES]
    if known and not any(_is(value, name) for name in known):
        return sentence(_("{name} is {kind}, not {types}"), name=where, kind=kind(value), types=" or ".join(known))
    choices = schema.get("enum")
    if isinstance(choices, list) and choices and value not in choices:
        return sentence(_("{name} is not one of its choices"), name=where)
    if isinstance(value, list):
        faults = (_fault(item, schema.get("items"), f"an item of {where}", depth + 1) for item in value)
        return next((fault for fault in faults if fault), None)
    if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
        for name, inner in schema["properties"].items():
            if name in value and (fault := _fault(value[name], inner, f"{where}.{name}"[:60], depth + 1)):
                return fault
    return None


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())
