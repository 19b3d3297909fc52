"""Values of arguments that are written as bare text, by the types that the tool's schema allows."""

from __future__ import annotations

from typing import Any

import pytest

from training.dialects.base import Unreadable
from training.dialects.tags import typed, types_of

NONE: set[str] = set()


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("3", {"string"}, "3"),
        ("3", {"integer"}, 3),
        ("3", {"number"}, 3),
        ("3", {"number", "string"}, 3),
        ("3.5", {"integer", "string"}, "3.5"),
        ("3", {"boolean"}, 3),
        ("3", {"boolean", "string"}, "3"),
        ("[1]", {"integer"}, [1]),
        ("true", {"boolean", "string"}, True),
        ("True", {"boolean"}, True),
        ("null", {"string", "null"}, None),
        ("None", {"integer", "null"}, None),
        ("null", {"string", "integer"}, "null"),
        ("{'a': 1}", {"object"}, {"a": 1}),
        ("('a', 1)", {"object"}, "('a', 1)"),
        (" 3 ", {"integer"}, 3),
        (" 3 ", {"string"}, " 3 "),
        ("Oslo", {"integer"}, "Oslo"),
        ("3", NONE, 3),
        ('"3"', NONE, '"3"'),
        ("[1, 2]", NONE, [1, 2]),
        ("NaN", {"number", "string"}, "NaN"),
        ("NaN", NONE, "NaN"),
    ],
)
def test_a_text_is_the_value_that_its_schema_allows(text: str, types: set[str], value: Any) -> None:
    found = typed(text, types)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_is_refused_where_a_number_is_due(text: str) -> None:
    with pytest.raises(Unreadable, match="cannot be used"):
        typed(text, {"number"})


def schema(value: Any, **definitions: Any) -> dict[str, Any]:
    return {"properties": {"x": value}, "$defs": definitions}


@pytest.mark.parametrize(
    ("parameters", "types"),
    [
        (schema({"type": "integer"}), {"integer"}),
        (schema({"type": ["integer", "null"]}), {"integer", "null"}),
        (schema({"type": "integer", "nullable": True}), {"integer", "null"}),
        (schema({"nullable": True}), NONE),
        (schema({"type": "integer", "nullable": False}), {"integer"}),
        (schema({"anyOf": [{"type": "integer"}, {"type": "string"}]}), {"integer", "string"}),
        (schema({"enum": ["a", 1, None]}), {"string", "integer", "null"}),
        (schema({"const": 2.5}), {"number"}),
        (schema({"$ref": "#/$defs/size"}, size={"type": "number"}), {"number"}),
        (schema({"$ref": "#/$defs/none"}), NONE),
        (schema({"$ref": "elsewhere.json"}), NONE),
        (schema({"$ref": "size"}) | {"size": {"type": "number"}}, NONE),
        (schema({"$ref": "#/properties/x"}), NONE),
        ({"properties": ["x"]}, NONE),
        ({}, NONE),
    ],
)
def test_the_types_that_a_schema_says(parameters: dict[str, Any], types: set[str]) -> None:
    assert types_of(parameters, "x") == types


@pytest.mark.parametrize(("deep", "types"), [(8, {"integer"}), (9, NONE)])
def test_how_deep_a_schema_is_looked_into(deep: int, types: set[str]) -> None:
    value: dict[str, Any] = {"type": "integer"}
    for _ in range(deep):
        value = {"anyOf": [value]}
    assert types_of(schema(value), "x") == types
