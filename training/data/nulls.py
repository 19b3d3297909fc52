"""Arrow's nulls: what parquet, and JSON that went through Arrow, put into tools and calls that had no such part.

A column of structs has one set of fields for all rows, so every tool gets the parameters of all tools as null, every
call the arguments of all calls, and verl's ``tools_kwargs`` the names of all tools. Such nulls are taken out again,
against the row's own schemas. A null that means something stays: one that a schema allows or requires, and a default.
"""

from __future__ import annotations

from typing import Any

from training.data.messages import SCHEMA_KEYS
from training.data.schema import Message, Row

_DATA = ("default", "const")
"""Keywords of JSON schema where null is a value."""
_NAMED = {"properties", "patternProperties", "$defs", "definitions"}
"""Keywords that hold schemas by name."""
_UNIONS = ("anyOf", "oneOf", "allOf")
_INNER = {*_UNIONS, "items", "prefixItems", "contains", "additionalProperties", "not", "if", "then", "else"}
"""Keywords that hold a schema, or a list of them."""
_HOLDERS = {"tools_kwargs", "extra_info"}
Value = dict[str, Any]


def without_nulls(row: Row, raw: Value) -> Row:
    """The row without Arrow's nulls; its ``facts`` say where there were some. ``raw`` is what it was made of."""
    found = []
    if row.tools:
        tools = [_tool(tool) for tool in row.tools]
        if tools != row.tools:
            row.tools = tools
            found.append("null_tools")
    if not row.as_written and clean_calls(row.messages, row.tools, raw.get(row.spelling.key)):
        found.append("null_arguments")
    if not row.extra.keys().isdisjoint(_HOLDERS) and _clean_kwargs(row):
        found.append("null_kwargs")
    if found:
        row.facts = (*row.facts, *found)
        row.made, row.as_written = True, False
        row.raw = row.normal()
    return row


def _is_of_arrow(items: Any) -> bool:
    """Whether messages have the marks of a column of structs: all have the same fields, some of them null."""
    if not isinstance(items, list) or len(items) < 2 or not all(isinstance(item, dict) for item in items):
        return False
    return all(item.keys() == items[0].keys() for item in items) and any(None in item.values() for item in items)


def clean_calls(messages: list[Message], tools: list[Value] | None, items: Any) -> bool:
    """Take the nulls out of the calls' arguments that are no arguments of their tools; whether there were any.

    ``items`` are the messages as in the file.
    """
    calls = [call for message in messages for call in message.tool_calls or []]
    if not calls:
        return False
    schemas = {name: schema for name, schema in map(_named, tools or []) if isinstance(name, str)}
    of_arrow, changed = _is_of_arrow(items), False
    for call in calls:
        arguments = _arguments(call.arguments, schemas.get(call.name), of_arrow)
        changed = changed or arguments != call.arguments
        call.arguments = arguments
    return changed


def _named(tool: Value) -> tuple[Any, Value]:
    """A tool's name, and the schema of its arguments; a tool that says nothing of arguments takes none."""
    inner = tool["function"] if isinstance(tool.get("function"), dict) else tool
    schema: Value = next((inner[key] for key in SCHEMA_KEYS if isinstance(inner.get(key), dict)), {})
    return inner.get("name"), schema if _properties(schema) is not None else {"properties": {}}


# --- Tools ------------------------------------------------------------------------------------------------------------
def _tool(tool: Value) -> Value:
    """A tool without null fields, and its schemas without null definitions."""
    made: Value = {}
    for key, value in tool.items():
        if key == "function" and isinstance(value, dict):
            made[key] = _tool(value)
        elif key in SCHEMA_KEYS and isinstance(value, dict):
            made[key] = _schema(value)
        elif value is not None:
            made[key] = value
    return made


def _schema(schema: Value) -> Value:
    made: Value = {}
    for key, value in schema.items():
        if value is None:
            made |= {key: None} if key in _DATA else {}
        elif key in _NAMED and isinstance(value, dict):
            kept = {name: each for name, each in value.items() if not _is_no_schema(each)}
            made[key] = {name: _inner(each) for name, each in kept.items()}
        elif key in _INNER:
            made[key] = [_inner(each) for each in value] if isinstance(value, list) else _inner(value)
        else:
            made[key] = value
    if len(made) < len(schema) and not allows_null(made, by_data=False):
        return {key: value for key, value in made.items() if value is not None}  # they came with the others
    return made


def _inner(schema: Any) -> Any:
    return _schema(schema) if isinstance(schema, dict) else schema


def _is_no_schema(value: Any) -> bool:
    return value is None or (_is_nothing(value) and len(value) > 1)


def _is_nothing(value: Any) -> bool:
    """Null, or an object of nothing but nulls, which some programs make of a missing struct."""
    return value is None or (isinstance(value, dict) and bool(value) and all(map(_is_nothing, value.values())))


def allows_null(schema: Any, *, by_data: bool = True) -> bool:
    """Whether null is a value that a schema allows. One that says nothing of types allows everything; ``by_data`` says
    whether a default of null counts."""
    if not isinstance(schema, dict):
        return True
    if by_data and any(key in schema and schema[key] is None for key in _DATA):
        return True
    if schema.get("nullable") is True or None in _listed(schema, "enum"):
        return True
    if unions := [each for key in _UNIONS for each in _listed(schema, key)]:
        return any(allows_null(each) for each in unions)
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    if all(name is None for name in names):
        return "enum" not in schema
    return any(str(name).casefold() in ("null", "none", "any") for name in names)


# --- Arguments --------------------------------------------------------------------------------------------------------
def _arguments(given: Value, schema: Any, of_arrow: bool) -> Value:
    """An object without the nulls that its schema does not know. Without a schema nulls go where they are Arrow's."""
    properties = _properties(schema)
    made: Value = {}
    for name, value in given.items():
        kept = _without_nulls(value, (properties or {}).get(name), of_arrow)
        unknown = properties is not None and name not in properties
        is_null = value is None or (_is_nothing(value) and (unknown or not kept))
        if not is_null or _means_something(name, schema, properties, of_arrow):
            made[name] = kept
    return made


def _means_something(name: str, schema: Any, properties: Value | None, of_arrow: bool) -> bool:
    """Whether a null argument is one that the schema asks for or allows."""
    if properties is None:
        return not of_arrow
    return name in properties and (name in _listed(schema, "required") or allows_null(properties[name]))


def _properties(schema: Any) -> Value | None:
    """The properties that a schema names, itself or in one of its alternatives; ``None`` where it names none."""
    if not isinstance(schema, dict):
        return None
    if isinstance(schema.get("properties"), dict):
        return dict(schema["properties"])
    inner = [found for key in _UNIONS for each in _listed(schema, key) if (found := _properties(each)) is not None]
    return {name: each for found in inner for name, each in found.items()} if inner else None


def _listed(schema: Value, key: str) -> list[Any]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _without_nulls(value: Any, schema: Any, of_arrow: bool) -> Any:
    if isinstance(value, dict):
        return _arguments(value, schema, of_arrow)
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [_without_nulls(item, items, of_arrow) if isinstance(item, dict | list) else item for item in value]
    return value


# --- verl -------------------------------------------------------------------------------------------------------------
def _clean_kwargs(row: Row) -> bool:
    """Take tools out of ``tools_kwargs`` that other rows have; whether there were any."""
    extra, changed = _kwargs(row.extra)
    info = extra.get("extra_info")
    if isinstance(info, dict):
        info, of_info = _kwargs(info)
        extra, changed = (extra | {"extra_info": info}, True) if of_info else (extra, changed)
    row.extra = extra
    return changed


def _kwargs(holder: Value) -> tuple[Value, bool]:
    given = holder.get("tools_kwargs")
    if not isinstance(given, dict):
        return holder, False
    rest = not all(map(_is_nothing, given.values()))
    kept = {name: each for name, each in given.items() if each is not None and not (rest and _is_nothing(each))}
    made = {
        name: {key: value for key, value in each.items() if value is not None or not key.endswith("kwargs")}
        if isinstance(each, dict)
        else each
        for name, each in kept.items()
    }
    return (holder | {"tools_kwargs": made}, True) if made != given else (holder, False)
