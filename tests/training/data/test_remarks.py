"""Remarks on rows that are kept: each code once, with its line, its sentence and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.data.checking.check import check_file
from training.data.checking.checks import Checks, fault_of, task_hash
from training.data.checking.runner import run_check
from training.data.options import CheckOptions, ReadOptions
from training.data.problems import PROBLEMS, reason_of
from training.data.schema import Row, row_from_dict
from training.errors import DataError

USER = {"role": "user", "content": "hi"}
SAYS = {"role": "assistant", "content": "ok"}
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "at": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["city"],
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]


def call(name: str = "weather", **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": name, "arguments": arguments}]}


def result(call_id: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": "sunny", **({"tool_call_id": call_id} if call_id else {})}


def report(tmp_path: Path, rows: list[dict[str, Any]], **options: Any) -> Any:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "out").mkdir(exist_ok=True)
    return check_file(path, tmp_path / "out", checking=CheckOptions.model_validate(options))


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "role_order": ({"messages": [USER, SAYS, {"role": "system", "content": "s"}]}, "message 3 (system) may not follow"),
    "assistant first": ({"messages": [SAYS, USER]}, "message 1 (assistant) may not follow the beginning"),
    "turn_empty": ({"messages": [{"role": "user", "content": " \n"}]}, "message 1 (user) has neither text nor calls"),
    "call_unknown": ({"messages": [USER, call("dance")], "tools": TOOLS}, "message 2 calls 'dance', which is not one"),
    "required": ({"messages": [USER, call(days=1)], "tools": TOOLS}, "'city' is missing"),
    "type": ({"messages": [USER, call(city="x", days="2")], "tools": TOOLS}, "'days' is text, not integer"),
    "boolean": ({"messages": [USER, call(city="x", days=True)], "tools": TOOLS}, "true or false, not integer"),
    "enum": ({"messages": [USER, call(city="x", unit="K")], "tools": TOOLS}, "'unit' is not one of its choices"),
    "unknown argument": ({"messages": [USER, call(city="x", y=1)], "tools": TOOLS}, "there is no argument 'y'"),
    "item": ({"messages": [USER, call(city="x", at=[1, "2"])], "tools": TOOLS}, "an item of 'at' is text"),
    "result_without_call": ({"messages": [USER, result("c")], "tools": TOOLS}, "no call asked for it"),
    "result of another": ({"messages": [USER, call(city="x"), result("d")]}, "no call asked for it"),
    "tool_schema": (
        {"messages": [USER, call(city="x")], "tools": [{"name": "weather", "parameters": {"type": "array"}}]},
        "the schema of tool 'weather' is not valid",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_remark_has_line_sentence_and_suggestion(tmp_path: Path, name: str) -> None:
    row, words = CASES[name]
    good = {"messages": [USER, call(city="x", days=2, unit="C", at=[1, 2.5]), result("c"), SAYS], "tools": TOOLS}
    found = report(tmp_path, [good, row])
    assert (found.verdict, found.rows, found.bad_rows) == ("ok", 2, 0)
    remark = next(finding for finding in found.findings if words in finding.reason)
    assert all(finding.line == 2 for finding in found.findings)
    assert (
        remark.suggestion == PROBLEMS[remark.code].suggestion and reason_of(remark.code, remark.values) == remark.reason
    )
    assert found.codes[remark.code] == sum(finding.code == remark.code for finding in found.findings)


def test_answers_categories_windows_and_duplicates(tmp_path: Path) -> None:
    rows = [
        {"messages": [USER], "reward_model": {"ground_truth": "4"}, "category": "a", "id": 1},
        {"messages": [USER], "reward_model": {"ground_truth": "4"}, "category": "a", "id": 2},
        {"messages": [{"role": "user", "content": "word " * 100}], "ground_truth": "", "category": "b", "id": 3},
    ]
    options = {"answer_fields": ["ground_truth", "reward_model.ground_truth"], "categories": ["a"], "window": 50}
    found = report(tmp_path, rows, **options)
    assert [(finding.line, finding.code) for finding in found.findings] == [
        (2, "duplicate"),
        (3, "answer_missing"),
        (3, "category_unknown"),
        (3, "too_long"),
    ]
    assert found.findings[0].values == {"first": 1}
    assert found.findings[3].reason == "the row has 125 tokens (estimated); the window has 50"
    assert found.categories == {"a": 2, "b": 1} and found.tools == {"0": 3} and found.languages == {"latin": 3}


def test_a_remark_can_leave_a_row_out(tmp_path: Path) -> None:
    rows = [{"messages": [USER]}, {"messages": [USER]}, {"messages": [SAYS]}]
    found = report(tmp_path, rows, refuse=["duplicate"])
    assert (found.verdict, found.rows, found.bad_rows) == ("bad_rows", 2, 1)
    assert found.bad[0].code == "duplicate" and found.bad[0].line == 2
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == 2
    assert "There is no check 'luck'" in report(tmp_path, rows, refuse=["luck"]).message


def test_tasks_that_two_datasets_share_are_reported(tmp_path: Path) -> None:
    other = tmp_path / "val.jsonl"
    other.write_text(json.dumps({"messages": [USER, {"role": "assistant", "content": "another answer"}]}) + "\n")
    found = report(tmp_path, [{"messages": [{"role": "user", "content": "new"}]}, {"messages": [USER]}], other=other)
    assert [(finding.line, finding.code) for finding in found.findings] == [(2, "leak")]


def test_the_child_gets_the_choices(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("frage,x\nq,1\nq,1\n")
    reading = ReadOptions.model_validate({"mapping": {"prompt": "frage"}})
    found = run_check(path, tmp_path / "out", reading=reading, checking=CheckOptions(refuse=["duplicate"]))
    assert (found["verdict"], found["rows"], found["codes"]) == ("bad_rows", 1, {"duplicate": 1})
    assert found["format"]["name"] == "csv" and found["format"]["rows"] == "columns"
    assert json.loads((tmp_path / "out" / "rows.jsonl").read_text()) == {
        "messages": [{"role": "user", "content": "q"}],
        "frage": "q",
        "x": "1",
    }


def test_findings_are_listed_up_to_100_and_all_counted(tmp_path: Path) -> None:
    found = report(tmp_path, [{"messages": [USER]}] * 150)
    assert len(found.findings) == 100 and found.codes == {"duplicate": 149}


def test_hostile_schemas_are_only_looked_at(tmp_path: Path) -> None:
    hostile = [
        {"name": "f", "parameters": {"$ref": "http://127.0.0.1:9/x", "properties": {"a": {"pattern": "(a+)+$"}}}},
        {"name": "g", "parameters": {"properties": [], "required": 5}},
    ]
    messages = [USER, call("f", a="a" * 50 + "!"), result("c"), call("g", a=1)]
    found = report(tmp_path, [{"messages": messages, "tools": hostile}])
    assert found.rows == 1 and found.codes == {"tool_schema": 1}


def test_every_code_has_a_sentence_that_can_be_filled() -> None:
    import string

    for code, problem in PROBLEMS.items():
        names = {name for _, name, _, _ in string.Formatter().parse(problem.template) if name}
        assert reason_of(code, dict.fromkeys(names, "x")) and problem.suggestion, code


def test_a_dataset_that_cannot_be_compared_is_a_sentence(tmp_path: Path) -> None:
    found = report(tmp_path, [{"messages": [USER]}], other=tmp_path / "absent")
    assert found.verdict == "rejected" and "cannot be opened" in found.message
    with pytest.raises(DataError, match="There is no format"):
        from training.data.reader import open_dataset

        open_dataset(tmp_path / "in.jsonl", ReadOptions(format="nonsense"))


def row(text: str) -> Row:
    return row_from_dict({"messages": [{"role": "user", "content": text}]})


@pytest.mark.parametrize(("length", "codes"), [(9, []), (10, []), (11, ["too_long"])])
def test_a_row_of_just_the_window_fits(length: int, codes: list[str]) -> None:
    found = Checks(CheckOptions(window=10)).remarks(row("hi"), 1, length)
    assert [code for code, _values in found] == codes


def test_repeats_are_found_of_so_many_rows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is bounded; a row beyond it is not compared."""
    monkeypatch.setattr("training.data.checking.checks.MAX_HASHES", 2)
    checks = Checks(CheckOptions())
    found = [checks.remarks(row(text), line, 1) for line, text in enumerate("abcabc", 1)]
    assert found == [[], [], [], [("duplicate", {"first": 1})], [("duplicate", {"first": 2})], []]


@pytest.mark.parametrize(
    ("schema", "arguments", "fault"),
    [
        ({"type": "object", "additionalProperties": False}, {"x": 1}, "there is no argument 'x'"),
        ({"type": "object"}, {"x": 1}, None),
        ({"type": "object", "additionalProperties": False}, {}, None),
        ({"properties": {"x": {"type": "integer"}}}, {"x": 2.0}, None),
        ({"properties": {"x": {"type": "integer"}}}, {"x": 1.5}, "'x' is a number, not integer"),
        ({"properties": {"x": {"type": "number"}}}, {"x": True}, "'x' is true or false, not number"),
        ({"required": ["x"]}, {}, "'x' is missing"),
        ({"properties": {"x": {"type": "integer"}}}, {"x": None}, "'x' is null, not integer"),
        ({"properties": {"x": {"type": ["integer", "null"]}}}, {"x": None}, None),
        ({"properties": {"x": {"type": "integer", "nullable": True}}}, {"x": None}, None),
    ],
)
def test_the_first_way_in_which_arguments_break_a_schema(schema: Any, arguments: Any, fault: str | None) -> None:
    found = fault_of(arguments, schema)
    assert (found if found is None else str(found)) == fault


def test_spaces_around_a_question_make_no_other_task() -> None:
    assert task_hash(row(" hi\n")) == task_hash(row("hi")) != task_hash(row("h i"))


@pytest.mark.parametrize(("depth", "seen"), [(15, True), (16, False)])
def test_a_schema_is_followed_so_deep(depth: int, seen: bool) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    value: Any = "text"
    for _ in range(depth):
        schema, value = {"type": "array", "items": schema}, [value]
    assert bool(fault_of({"x": value}, {"properties": {"x": schema}})) == seen


def codes_of(value: dict[str, Any], **options: Any) -> list[str]:
    checks = Checks(CheckOptions.model_validate(options))
    return [code for code, _values in checks.remarks(row_from_dict(value), 1, 1)]


@pytest.mark.parametrize(
    ("message", "codes"),
    [
        ({"content": "", "reasoning_content": "hm"}, []),
        ({"content": " ", "reasoning_content": ""}, ["turn_empty"]),
        ({"content": "ok"}, []),
    ],
)
def test_a_turn_that_only_thinks_says_something(message: dict[str, Any], codes: list[str]) -> None:
    assert codes_of({"messages": [USER, {"role": "assistant", **message}]}) == codes


@pytest.mark.parametrize("answer", [None, "", [], {}])
def test_an_answer_that_holds_nothing_is_missing(answer: Any) -> None:
    assert codes_of({"messages": [USER], "answer": answer}, answer_fields=["answer"]) == ["answer_missing"]
    assert codes_of({"messages": [USER], "answer": 0}, answer_fields=["answer"]) == []


def test_tools_that_a_text_offers_are_not_missing() -> None:
    value = {"messages": [USER, call("dance")]}
    assert codes_of(value) == ["tools_missing"]
    assert codes_of({"messages": [{"role": "system", "content": "You may dance."}, *value["messages"]]}) == []
    offered = row_from_dict(value).model_copy(update={"offered": ["dance"]})
    assert Checks(CheckOptions()).remarks(offered, 1, 1) == []


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ({"extra_info": {"answer": "4", "index": 1}}, {"extra_info": {"answer": "4", "index": 2}}, True),
        ({"extra_info": {"answer": "4"}}, {"extra_info": {"answer": "5"}}, False),
        ({"id": 1}, {"id": 2}, True),
        ({"seed": 1}, {"seed": 2}, False),
        ({"extra_info": "a"}, {"extra_info": "b"}, False),
    ],
)
def test_rows_that_only_their_numbers_tell_apart_are_the_same(
    one: dict[str, Any], two: dict[str, Any], same: bool
) -> None:
    checks = Checks(CheckOptions())
    first, second = (row_from_dict({"messages": [USER], **more}) for more in (one, two))
    assert checks.remarks(first, 1, 1) == []
    assert checks.remarks(second, 2, 1) == ([("duplicate", {"first": 1})] if same else [])
