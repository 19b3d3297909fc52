"""Corners of single dialects that no ordinary call reaches, and both sides of their limits, each by value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.training.dialects.test_thoughts import calls_of
from training.dialects import ANYONE, DIALECTS, ParsedTurn
from training.dialects.base import opens_thought
from training.plain import LiteralError, json_problem, literal


def read(dialect: str, text: str, *tools: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    turn = DIALECTS[dialect](text, "c", list(tools))
    assert turn.parse_error is None, turn.parse_error
    return calls_of(turn)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}


def nested(depth: int) -> Any:
    """So many lists in one another."""
    return [nested(depth - 1)] if depth else 1


def test_any_number_of_objects_may_follow_each_other() -> None:
    lines = "\n".join(f'{{"name": "{name}", "arguments": {{}}}}' for name in "abcd")
    assert read("json-list", f"<TOOLCALL>{lines}</TOOLCALL>") == [(name, {}) for name in "abcd"]


@pytest.mark.parametrize("key", ["id", "type", "index", "tool_call_id"])
def test_what_numbers_a_call_is_no_argument_of_it(key: str) -> None:
    assert read("hermes", f'<tool_call>{{"name": "a", "{key}": "0"}}</tool_call>') == [("a", {})]


def test_a_comma_ends_no_mapping_of_gemma() -> None:
    turn = DIALECTS["gemma"]("<|tool_call>call:f{a:1,}<tool_call|>", "c")
    assert (turn.tool_calls, turn.parse_error) == ([], "An argument of the tool call has no name.")
    listed = DIALECTS["gemma"]("<|tool_call>call:f{a:[1,],b:{}}<tool_call|>", "c")
    assert (listed.tool_calls, listed.parse_error) == ([], "An argument of the tool call has no value.")


@pytest.mark.parametrize(("depth", "passes"), [(30, True), (31, False)])
def test_arguments_of_gemma_may_be_so_deep(depth: int, passes: bool) -> None:
    turn = DIALECTS["gemma"](f"<|tool_call>call:f{{a:{'[' * depth}1{']' * depth}}}<tool_call|>", "c")
    assert bool(turn.tool_calls) == passes and (turn.parse_error is None) == passes


@pytest.mark.parametrize(("written", "value"), [("null", None), ("3.5", 3.5), ("3", 3), ("Oslo", "Oslo")])
def test_a_value_that_is_marked_as_no_text_is_none_where_it_can_be_read(written: str, value: Any) -> None:
    parameter = f'<parameter name="x" string="false">{written}</parameter>'
    text = f'<invoke name="f">{parameter}</invoke>'
    (call,) = read("invoke", text, tool("f", x={"type": ["string", "integer"]}))
    assert call == ("f", {"x": value})


def test_a_quote_behind_a_backslash_ends_no_text_in_a_list() -> None:
    text = r"""<|tool_call_start|>[f(a=["x\"], (", 2], b={'k': 'it\'s, )'}, c=1)]<|tool_call_end|>"""
    assert read("lfm2-raw", text) == [("f", {"a": ['x"], (', 2], "b": {"k": "it's, )"}, "c": 1})]


def test_of_several_broken_readings_the_more_particular_one_counts() -> None:
    turn = ANYONE("<tool_call>\n<function=f>\n<parameter=a>\n1", "c", [tool("f")])
    assert turn.parse_error == "The call of f is not closed with </tool_call>."


@pytest.mark.parametrize(
    ("prompt", "open_"),
    [("<think>", True), ("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("x</think>", False), ("", False),
     ("<think>a</think><think>", True), ("[THINK]a[/THINK]", False)],
)  # fmt: skip
def test_a_prompt_ends_inside_the_thought_that_it_does_not_close(prompt: str, open_: bool) -> None:
    assert opens_thought(f"<|im_start|>assistant\n{prompt}") is open_


@pytest.mark.parametrize(("depth", "problem"), [(32, None), (33, "it is nested deeper than 32 levels")])
def test_json_may_be_so_deep(depth: int, problem: str | None) -> None:
    assert json_problem(nested(depth)) == problem


def test_literals_may_be_so_long_and_so_deep() -> None:
    assert literal('"' + "x" * 65_534 + '"') == "x" * 65_534
    with pytest.raises(LiteralError, match="too long"):
        literal('"' + "x" * 65_535 + '"')
    assert literal("[" * 32 + "1" + "]" * 32) == nested(32)
    with pytest.raises(LiteralError, match="deeper than 32"):
        literal("[" * 33 + "1" + "]" * 33)


def test_a_model_may_open_again_the_thought_that_its_prompt_began() -> None:
    call = '<tool_call>{"name": "a", "arguments": {}}</tool_call>'
    turn = DIALECTS["hermes"](f"<think>hm</think>{call}", "c", in_thought=True)
    assert (calls_of(turn), turn.reasoning, turn.parse_error) == ([("a", {})], "hm", None)
    turn = DIALECTS["hermes"](f"hm{call}", "c", in_thought=True)
    assert (calls_of(turn), turn.reasoning) == ([], f"hm{call}") and turn.parse_error is not None


def test_the_first_of_two_errors_is_reported() -> None:
    text = '<tool_call>x</tool_call><think><tool_call>{"name": "a", "arguments": {}}</tool_call>'
    error = DIALECTS["hermes"](text, "c").parse_error
    assert error is not None and error.startswith("The tool call is not valid JSON")


def test_the_whole_text_is_kept_only_where_a_broken_call_took_some_of_it() -> None:
    broken = ParsedTurn("so", parse_error="It is broken.")
    assert broken.read_from("so <tool_call>").wrote == "so <tool_call>"
    assert broken.read_from(" so\n").wrote is None
    assert ParsedTurn("so").read_from("so <tool_call>").wrote is None


@pytest.mark.parametrize("key", ["tool_name", "name"])
def test_command_writes_a_name_under_two_keys(key: str) -> None:
    text = f'<|START_ACTION|>[{{"{key}": "f", "parameters": {{"x": 1}}}}]<|END_ACTION|>'
    assert read("command", text) == [("f", {"x": 1})]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("json-list", '<TOOLCALL>[{"name": "f"}]</TOOLCALL>'),
        ("json-list", '<TOOLCALL>[{"f": {}}]</TOOLCALL>'),
        ("kimi", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|><|tool_call_end|>"),
        ("kimi", "<|tool_call_begin|>f<|tool_call_argument_begin|> <|tool_call_end|>"),
        ("function-tag", "<function=f></function>"),
        ("mistral", "[TOOL_CALLS]f[ARGS]"),
        ("deepseek", "<｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜>"),
        ("lfm2", "<|tool_call_start|>f()<|tool_call_end|>"),
    ],
)
def test_a_call_may_have_no_arguments(dialect: str, text: str) -> None:
    assert read(dialect, text) == [("f", {})]


def listed(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


@pytest.mark.parametrize(
    ("written", "calls"),
    [
        ("[" + ", ".join(["f()"] * 64) + "]", 64),
        ("[" + ", ".join(["f()"] * 65) + "]", 0),
        ("[a.b.c.d.e(x=1)]", 1),
        ("[a.b.c.d.e.f(x=1)]", 0),
        (f"[f(x={listed(30)})]", 1),
        (f"[f(x={listed(31)})]", 0),
        (f"[f(x='{'y' * (65_536 - 9)}')]", 1),
        (f"[f(x='{'y' * (65_536 - 8)}')]", 0),
    ],
)
def test_python_calls_may_be_so_many_so_deep_and_so_long(written: str, calls: int) -> None:
    turn = DIALECTS["bfcl"](written, "c")
    assert len(turn.tool_calls) == calls and (turn.parse_error is None) == bool(calls)


def test_semicolons_between_calls_of_llama_are_no_text() -> None:
    one, two = ('{"name": "%s", "parameters": {}}' % name for name in "ab")  # noqa: UP031 - braces
    for between in (";", "; ", "\n"):
        turn = DIALECTS["llama"](f"{one}{between}{two}", "c")
        assert (calls_of(turn), turn.text) == ([("a", {}), ("b", {})], "")


@pytest.mark.parametrize(("objects", "error"), [(64, None), (65, "More than 64 tool calls in one turn.")])
def test_an_answer_may_hold_so_many_objects(objects: int, error: str | None) -> None:
    answer = '{"type": 1} ' * objects
    turn = DIALECTS["llama"](answer, "c")
    assert (turn.text, turn.tool_calls, turn.parse_error) == (answer.strip(), [], error)


def test_a_value_in_cdata_is_what_is_inside() -> None:
    text = '<invoke name="f"><parameter name="x"><![CDATA[<a> 3 ]]></parameter></invoke>'
    assert read("invoke", text, tool("f", x={"type": "integer"})) == [("f", {"x": "<a> 3 "})]


NOT_FINITE, HALF = "it contains a number that is not finite", "it contains half of a surrogate pair"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1e999]", NOT_FINITE),
        ("[-1E+400]", NOT_FINITE),
        ("[NaN]", NOT_FINITE),
        ("[-Infinity]", NOT_FINITE),
        (f"[{'9' * 200}e150]", NOT_FINITE),
        ("[1e22, 0.5]", None),
        ('["\\ud83d"]', HALF),
        ('["\\ud83d\\ude00"]', None),
        ('["NaN 1e999"]', None),
    ],
)
def test_numbers_and_letters_that_json_cannot_pass_on_are_seen_by_its_text(text: str, problem: str | None) -> None:
    value = json.loads(text)
    assert json_problem(value, text) == json_problem(value) == problem
