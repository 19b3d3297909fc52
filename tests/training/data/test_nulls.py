"""Arrow's nulls go, nulls that mean something stay: by value, in parquet and in JSON that went through Arrow."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.data.test_nothing_lost import SAYS, USER, checked, lines
from training.data.learned import pair_of
from training.data.reader import load_rows

Value = dict[str, Any]


def tool(name: str, properties: Value | None = None, **schema: Any) -> Value:
    parameters = {"type": "object", "properties": properties or {}, **schema}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def calls(*made: tuple[str, Value]) -> Value:
    items = [{"id": f"c{n}", "function": {"name": name, "arguments": given}} for n, (name, given) in enumerate(made)]
    return {"role": "assistant", "content": "", "tool_calls": items}


def row(tools: list[Value] | None, *made: tuple[str, Value], **extra: Any) -> Value:
    value: Value = {"messages": [USER, calls(*made), {"role": "tool", "content": "ok", "tool_call_id": "c0"}, SAYS]}
    return value | ({"tools": tools} if tools is not None else {}) | extra


def through_arrow(rows: list[Value]) -> list[Value]:
    """What a column of structs makes of rows."""
    return pa.Table.from_pylist(copy.deepcopy(rows)).to_pylist()


def read(tmp_path: Path, rows: list[Value], *, parquet: bool = False) -> tuple[list[Any], list[list[Value]], list[str]]:
    """Tools and arguments of each row that is kept, and what the report says of nulls."""
    data = lines(*rows)
    if parquet:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p")
        data = (tmp_path / "p").read_bytes()
    report, kept = checked(tmp_path, data)
    assert report.verdict == "ok" and report.codes.keys() <= {"tools_missing", "role_order"}, report.findings
    given = [[call["arguments"] for m in r["messages"] for call in m.get("tool_calls", [])] for r in kept]
    remarks = [text for text in report.format.evidence if "Arrow" in text]
    again = load_rows(tmp_path / "rows.jsonl")
    assert [[c.arguments for m in r.messages for c in m.tool_calls or []] for r in again] == given
    return [r.get("tools") for r in kept], given, remarks


FLAG = {"type": "boolean"}
CITY = {"type": "string", "description": "Where."}
MIXED = [
    row(
        [tool("weather", {"city": CITY, "unit": {"type": "string", "enum": ["C", "F"]}}, required=["city"])],
        ("weather", {"city": "Oslo"}),
    ),
    row(
        [
            tool("sum", {"values": {"type": "array", "items": {"type": "number"}}}, required=["values"]),
            tool("clock"),
        ],
        ("sum", {"values": [1.0, 2.5]}),
        ("clock", {"zone": "utc"}),
    ),
    row(
        [
            tool(
                "book",
                {
                    "guest": {"type": "object", "properties": {"name": CITY, "age": {"type": "integer"}}},
                    "rooms": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"beds": {"type": "integer"}, "sea": {"type": "boolean"}},
                        },
                    },
                },
            )
        ],
        ("book", {"guest": {"name": "Ann"}, "rooms": [{"beds": 2}, {"sea": True}]}),
        ("book", {"guest": {"age": 3}, "rooms": []}),
    ),
]
MIXED[1]["tools"][1]["function"]["parameters"]["properties"] = {"zone": {"type": "string"}}


@pytest.mark.parametrize("parquet", [True, False])
def test_structs_come_back_as_they_were_before_arrow(tmp_path: Path, parquet: bool) -> None:
    tools, given, remarks = read(tmp_path, MIXED if parquet else through_arrow(MIXED), parquet=parquet)
    assert tools == [each["tools"] for each in MIXED]
    before = [[c["function"]["arguments"] for c in each["messages"][1]["tool_calls"]] for each in MIXED]
    assert given == before
    assert [text.split(" rows")[0] for text in remarks] == ["3", "3"]


def test_a_file_without_nulls_says_nothing_and_stays(tmp_path: Path) -> None:
    tools, _given, remarks = read(tmp_path, MIXED)
    assert tools == [each["tools"] for each in MIXED] and remarks == []


NULLABLE: dict[str, Any] = {
    "a": {"type": ["string", "null"]},
    "b": {"type": "string", "nullable": True},
    "c": {"enum": ["x", None]},
    "d": {"type": "string", "default": None},
    "e": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "f": {"const": None},
    "g": {"type": "null"},
    "h": {},
    "i": {"description": "no type"},
    "j": {"oneOf": [{"type": "integer"}, {"$ref": "#/x"}]},
}


def test_nulls_that_a_schema_allows_or_requires_stay(tmp_path: Path) -> None:
    given = dict.fromkeys(NULLABLE)
    tools, arguments, remarks = read(tmp_path, [row([tool("f", NULLABLE)], ("f", given))])
    assert (tools, arguments, remarks) == ([[tool("f", NULLABLE)]], [[given]], [])
    needed = [tool("f", {"n": {"type": ["integer", "null"]}}, required=["n"])]
    assert read(tmp_path, [row(needed, ("f", {"n": None}))])[1:] == ([[{"n": None}]], [])


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string"}, False),
        ({"type": ["string", "integer"]}, False),
        ({"enum": ["x", "y"]}, False),
        ({"type": "string", "default": "x"}, False),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
        ({"type": "string", "default": None}, True),
        ({"type": "string", "default": None, "enum": None}, False),  # the default came with the enum
        ({"type": ["string", "null"], "default": None, "enum": None}, True),
        ({"type": "any"}, True),
    ],
)
def test_an_optional_null_stays_where_its_type_allows_it(tmp_path: Path, schema: Value, kept: bool) -> None:
    tools = [tool("f", {"x": schema, "y": CITY})]
    _tools, arguments, _remarks = read(tmp_path, [row(tools, ("f", {"x": None, "y": "1"}))])
    assert arguments == [[{"x": None, "y": "1"} if kept else {"y": "1"}]]


def test_a_required_null_that_breaks_the_schema_is_a_remark_and_stays(tmp_path: Path) -> None:
    tools = [tool("f", {"x": {"type": "string"}}, required=["x"])]
    report, kept = checked(tmp_path, lines(row(tools, ("f", {"x": None}))))
    assert report.codes == {"call_breaks_schema": 1}
    assert kept[0]["messages"][1]["tool_calls"][0]["arguments"] == {"x": None}


SAME = {"properties": {"b": {"type": "string", "enum": ["x", None], "examples": [None], "x-own": {"a": None}}}}


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        (None, None),
        ({"type": "object", "properties": {"a": None}}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None, "required": None}, {"type": "object"}),
        (
            {"properties": {"a": {"type": None, "description": None}, "b": {"type": "string", "items": None}}},
            {"properties": {"b": {"type": "string"}}},
        ),
        (
            {"properties": {"b": {"anyOf": [{"type": "array", "items": {"type": "string", "enum": None}}, None]}}},
            {"properties": {"b": {"anyOf": [{"type": "array", "items": {"type": "string"}}, None]}}},
        ),
        (
            {"$defs": {"p": {"type": "object", "properties": {"q": None}}, "r": None}},
            {"$defs": {"p": {"type": "object", "properties": {}}}},
        ),
        (
            SAME := {
                "properties": {"b": {"type": "string", "enum": ["x", None], "examples": [None], "x-o": {"a": None}}}
            },
            SAME,
        ),
    ],
)
def test_null_parts_of_a_tool(tmp_path: Path, parameters: Any, wanted: Value | None) -> None:
    given: Value = {"name": "f", "parameters": parameters}
    clean = {"name": "f"} | ({"parameters": wanted} if wanted else {})
    has_nulls = given != clean
    for value, reported in (
        (given, has_nulls),
        (given | {"description": None}, True),
        ({"type": "function", "function": given}, has_nulls),
        ({"type": "function", "function": given, "strict": None}, True),
    ):
        tools, _given, remarks = read(tmp_path, [{"messages": [USER, SAYS], "tools": [value]}])
        assert tools == [[{"type": "function", "function": clean}]] and len(remarks) == reported


def test_without_a_schema_nulls_go_only_where_the_messages_are_structs(tmp_path: Path) -> None:
    rows = [row(None, ("f", {"x": "1"}), ("g", {"y": {"z": 2}})), row(None, ("g", {"w": [{"a": 1}, {"b": 2}]}))]
    assert read(tmp_path, rows, parquet=True)[1] == [[{"x": "1"}, {"y": {"z": 2}}], [{"w": [{"a": 1}, {"b": 2}]}]]
    assert read(tmp_path, [row(None, ("f", {"x": None}))])[1:] == ([[{"x": None}]], [])


def test_messages_of_equal_fields_without_a_null_are_not_arrow_s(tmp_path: Path) -> None:
    turns = [USER | {"tool_calls": []}, calls(("f", {"x": None})), SAYS | {"tool_calls": []}]
    assert read(tmp_path, [{"messages": turns}])[1:] == ([[{"x": None}]], [])


def test_an_object_of_nulls_that_no_tool_takes_goes(tmp_path: Path) -> None:
    tools = [tool("f", {"x": CITY, "place": {"type": "object", "properties": {"lat": {"type": "number"}}}})]
    given = {"x": "1", "y": {"z": None}, "place": {"lat": None}}
    assert read(tmp_path, [row(tools, ("f", given))])[1] == [[{"x": "1"}]]
    tools[0]["function"]["parameters"]["required"] = ["place"]
    assert read(tmp_path, [row(tools, ("f", given))])[1] == [[{"x": "1", "place": {}}]]


def test_a_free_form_object_keeps_its_nulls_in_plain_json(tmp_path: Path) -> None:
    tools = [tool("f", {"body": {"type": "object"}, "list": {"type": "array"}})]
    given = {"body": {"a": None, "b": {"c": None}}, "list": [{"d": None}]}
    assert read(tmp_path, [row(tools, ("f", given))])[1:] == ([[given]], [])
    # In structs it cannot be distinguished from what others have.
    structs = through_arrow([row(tools, ("f", given))])
    assert read(tmp_path, structs)[1] == [[{"list": [{}]}]]


def verl(kwargs: Any, **extra: Any) -> Value:
    info = {"index": 0, "need_tools_kwargs": True, "tools_kwargs": kwargs}
    return {"data_source": "x", "prompt": [USER], "reward_model": {"ground_truth": "1"}, "extra_info": info, **extra}


CALC = {"calc": {"create_kwargs": {"answer": "1"}}}


@pytest.mark.parametrize(
    ("kwargs", "wanted"),
    [
        (CALC | {"find": None}, CALC),
        (CALC | {"find": {"create_kwargs": {"q": None}}}, CALC),
        ({"calc": {"create_kwargs": {"answer": None}}}, {"calc": {"create_kwargs": {"answer": None}}}),
        ({"calc": {"create_kwargs": {"a": 1}, "release_kwargs": None}}, {"calc": {"create_kwargs": {"a": 1}}}),
        ({"calc": {"create_kwargs": {"a": 1}, "note": None}}, {"calc": {"create_kwargs": {"a": 1}, "note": None}}),
        ({"calc": {"create_kwargs": {"a": 1, "b": None}}}, {"calc": {"create_kwargs": {"a": 1, "b": None}}}),
        ({"calc": {}, "find": {"create_kwargs": {}}}, {"calc": {}, "find": {"create_kwargs": {}}}),
        ({"calc": None, "find": None}, {}),
        ("calc", "calc"),
        (None, None),
    ],
)
def test_tools_kwargs_name_only_the_row_s_own_tools(tmp_path: Path, kwargs: Any, wanted: Any) -> None:
    report, kept = checked(tmp_path, lines(verl(kwargs)))
    assert kept[0]["extra_info"]["tools_kwargs"] == wanted
    remarks = [text for text in report.format.evidence if "Arrow" in text]
    assert bool(remarks) == (kwargs != wanted)
    assert load_rows(tmp_path / "in")[0].task()["extra_info"]["tools_kwargs"] == wanted
    direct = {"messages": [USER], "tools_kwargs": kwargs}
    assert checked(tmp_path, lines(direct))[1][0]["tools_kwargs"] == wanted


def test_calls_of_preference_pairs_lose_their_nulls_too(tmp_path: Path) -> None:
    tools = [tool("f", {"x": CITY})]
    given = {"x": "1", "y": None}
    value = {"prompt": [USER], "chosen": [calls(("f", given)), SAYS], "rejected": [SAYS], "tools": tools}
    checked(tmp_path, lines(value))
    pair = pair_of(load_rows(tmp_path / "rows.jsonl")[0])
    assert pair is not None and pair.chosen[0].tool_calls is not None
    assert pair.chosen[0].tool_calls[0].arguments == {"x": "1"}


def test_a_tool_without_a_usable_name_is_no_schema_of_a_call(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": ["f"], "parameters": {}}}, {"x": None}]
    report, _kept = checked(tmp_path, lines(row(tools, ("f", {"x": None}))))
    assert report.rows == 1
