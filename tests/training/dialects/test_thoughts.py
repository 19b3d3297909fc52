"""Calls that are drafted in a thought are not made, in every dialect; arguments under another name are an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.growth import assert_linear
from training.dialects import ANYONE, DIALECTS, FAMILY_DIALECTS
from training.dialects.base import ParsedTurn

CALLS = {
    "hermes": '<tool_call>\n{{"name": "{name}", "arguments": {{"id": 1}}}}\n</tool_call>',
    "xml": "<tool_call>\n<function={name}>\n<parameter=id>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>{name}\n<arg_key>id</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "mistral": '[TOOL_CALLS]{name}[ARGS]{{"id": 1}}',
    "deepseek": '<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{"id": 1}}<｜tool▁call▁end｜>',
    "kimi": '<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{{"id": 1}}<|tool_call_end|>',
    "harmony": '<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{{"id": 1}}<|call|>',
    "gemma": "<|tool_call>call:{name}{{id:1}}<tool_call|>",
    "invoke": '<minimax:tool_call>\n<invoke name="{name}">\n<parameter name="id">1</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "command": '<|START_ACTION|>[{{"tool_name": "{name}", "parameters": {{"id": 1}}}}]<|END_ACTION|>',
    "lfm2": "<|tool_call_start|>[{name}(id=1)]<|tool_call_end|>",
    "lfm2-raw": "<|tool_call_start|>[{name}(id=1)]<|tool_call_end|>",
    "json-list": '<|tool_call|>[{{"name": "{name}", "arguments": {{"id": 1}}}}]<|/tool_call|>',
    "function-tag": '<function={name}>{{"id": 1}}</function>',
    "solar": '<|tool_call:begin|>x<|tool_call:name|>{name}<|tool_call:args|>{{"id": 1}}<|tool_call:end|>',
    "llama": '{{"name": "{name}", "parameters": {{"id": 1}}}}',
    "bfcl": "[{name}(id=1)]",
    "toolbench": 'Thought: ok\nAction: {name}\nAction Input: {{"id": 1}}',
}
MARKED = [name for name in CALLS if name not in ("llama", "bfcl", "toolbench")]


def call(dialect: str, name: str) -> str:
    return CALLS[dialect].format(name=name)


def calls_of(turn: ParsedTurn) -> list[tuple[str, dict[str, Any]]]:
    return [(found.name, found.arguments) for found in turn.tool_calls]


def test_every_dialect_with_calls_has_an_example() -> None:
    assert CALLS.keys() == DIALECTS.keys() - {"webshop", "text"}


@pytest.mark.parametrize("dialect", CALLS)
def test_a_call_is_read(dialect: str) -> None:
    turn = DIALECTS[dialect](call(dialect, "pay"), "c")
    assert (calls_of(turn), turn.parse_error, turn.reasoning) == ([("pay", {"id": 1})], None, None)


@pytest.mark.parametrize("dialect", CALLS)
def test_a_draft_and_the_real_call(dialect: str) -> None:
    turn = DIALECTS[dialect](f"<think>First {call(dialect, 'delete')}, no.</think>\n{call(dialect, 'pay')}", "c")
    assert (calls_of(turn), turn.parse_error) == ([("pay", {"id": 1})], None)
    assert turn.reasoning == f"First {call(dialect, 'delete')}, no."


@pytest.mark.parametrize("dialect", FAMILY_DIALECTS)
def test_a_call_in_a_thought_alone_is_no_call(dialect: str) -> None:
    turn = DIALECTS[dialect](f"<think>I could {call(dialect, 'delete')} but need not.</think> Nothing to delete.", "c")
    assert (turn.text, turn.tool_calls, turn.parse_error) == ("Nothing to delete.", [], None)


@pytest.mark.parametrize("dialect", FAMILY_DIALECTS)
def test_a_thought_that_the_prompt_began(dialect: str) -> None:
    text = f"I could {call(dialect, 'delete')} but\n</think>\n\n{call(dialect, 'pay')}"
    for in_thought in (True, False):  # a mark that closes nothing closes what the prompt opened
        turn = DIALECTS[dialect](text, "c", in_thought=in_thought)
        assert (calls_of(turn), turn.parse_error) == ([("pay", {"id": 1})], None)


@pytest.mark.parametrize("dialect", MARKED)
def test_a_thought_without_end_makes_no_call(dialect: str) -> None:
    for text, in_thought in ((f"<think>Now {call(dialect, 'pay')}", False), (f"Now {call(dialect, 'pay')}", True)):
        turn = DIALECTS[dialect](text, "c", in_thought=in_thought)
        assert turn.tool_calls == [] and turn.text == "" and "not closed with </think>" in (turn.parse_error or "")
    quiet = DIALECTS[dialect]("<think>Only a thought", "c")
    assert (quiet.text, quiet.parse_error, quiet.reasoning) == ("", None, "Only a thought")


@pytest.mark.parametrize("dialect", MARKED)
def test_a_mention_of_the_mark_in_a_thought_breaks_nothing(dialect: str) -> None:
    opening = call(dialect, "x").split("x")[0]
    turn = DIALECTS[dialect](f"<think>I write {opening} and then</think>{call(dialect, 'pay')}", "c")
    assert (calls_of(turn), turn.parse_error) == ([("pay", {"id": 1})], None)


def test_thoughts_between_and_behind_calls() -> None:
    one, two = call("hermes", "a"), call("hermes", "b")
    text = f"<think>1</think>{one}<think>2 {call('hermes', 'no')}</think>{two}<think>3</think>Done."
    turn = DIALECTS["hermes"](text, "c")
    assert calls_of(turn) == [("a", {"id": 1}), ("b", {"id": 1})]
    assert (turn.text, turn.parse_error) == ("Done.", None)
    assert turn.reasoning == f"1\n\n2 {call('hermes', 'no')}\n\n3"


def test_a_closing_mark_inside_an_argument_closes_no_thought() -> None:
    text = '<tool_call>{"name": "write", "arguments": {"text": "a</think>b"}}</tool_call>'
    turn = DIALECTS["hermes"](text, "c")
    assert (calls_of(turn), turn.reasoning) == ([("write", {"text": "a</think>b"})], None)


def test_in_a_thought_of_the_prompt_the_first_closing_mark_ends_it() -> None:
    drafted = '<tool_call>{"name": "write", "arguments": {"text": "a</think>b"}}</tool_call>'
    turn = DIALECTS["hermes"](drafted, "c", in_thought=True)
    assert turn.tool_calls == [] and turn.reasoning == '<tool_call>{"name": "write", "arguments": {"text": "a'


def test_the_analysis_channel_of_gpt_oss_is_a_thought() -> None:
    text = (
        "<|channel|>analysis<|message|>Call to=functions.rm<|message|>{}?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>No."
    )
    turn = DIALECTS["harmony"](text, "c")
    assert (turn.text, turn.tool_calls, turn.reasoning) == ("No.", [], "Call to=functions.rm<|message|>{}?")
    called = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.ls "
    turn = DIALECTS["harmony"](f'{called}<|constrain|>json<|message|>{{"a": 1}}', "c")
    assert (calls_of(turn), turn.text, turn.reasoning) == ([("ls", {"a": 1})], "", "Hm")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ('{"name": "stock", "parameters": {"item": "lamp"}}', '"parameters"'),
        ('{"name": "stock", "args": {"item": "lamp"}}', '"args"'),
        ('{"name": "stock", "input": {"item": "lamp"}}', '"input"'),
        ('{"name": "stock", "item": "lamp", "count": 3}', '"item", "count"'),
        ('{"item": "lamp", "name": "stock"}', '"item"'),
        ('{"id": "1", "type": "function", "name": "stock", "kwargs": {}}', '"kwargs"'),
    ],
)
def test_arguments_in_another_place_are_an_error_that_says_where_they_belong(given: str, named: str) -> None:
    turn = DIALECTS["hermes"](f"<tool_call>{given}</tool_call>", "c")
    assert turn.tool_calls == []
    assert turn.parse_error == f'The call of stock has no "arguments": what stands at {named} belongs into it.'


def test_llama_takes_the_name_that_others_use_and_answers_in_json_are_answers() -> None:
    tools = [{"type": "function", "function": {"name": "stock"}}]
    read = DIALECTS["llama"]
    assert calls_of(read('{"name": "stock", "arguments": {"n": 1}}', "c", tools)) == [("stock", {"n": 1})]
    two = '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}'
    assert calls_of(read(two, "c", tools)) == [("a", {}), ("b", {})]
    answer = '{"name": "Bob", "age": 3}'
    assert read(answer, "c", tools) == ParsedTurn(answer)
    spread = read('{"name": "stock", "item": "lamp"}', "c", tools)
    assert spread.tool_calls == [] and 'no "parameters"' in (spread.parse_error or "")
    cut = read('{"name": "stock", "parameters": {"item": ', "c", tools)
    assert cut.tool_calls == [] and "not valid JSON" in (cut.parse_error or "")
    assert read('See {"name": "stock", "parameters": ', "c", tools).parse_error is None


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ('{"name": "a", "arguments": {}}{"name": "b", "arguments": {}}', "Two calls stand in one <tool_call>"),
        ('{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}', "Two calls stand in one <tool_call>"),
        ('{"name": "a", "arguments": {}}}', '"}" follows the JSON of the tool call'),
    ],
)
def test_what_is_too_much_in_a_closed_call_is_reported(inside: str, problem: str) -> None:
    turn = DIALECTS["hermes"](f"<tool_call>{inside}</tool_call> and", "c")
    assert turn.parse_error is not None and turn.parse_error.startswith(problem)
    assert (turn.text, turn.tool_calls) == ("and", [])


TYPES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "price": {"type": ["number", "null"]},
    "on": {"type": "boolean"},
    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "maybe": {"type": "string", "nullable": True},
    "kind": {"enum": ["1", "2"]},
    "level": {"enum": [1, 2]},
    "list": {"$ref": "#/$defs/list"},
    "free": {},
}


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("text", "75001", "75001"),
        ("text", "true", "true"),
        ("text", " a ", " a "),
        ("text", '"quoted"', '"quoted"'),
        ("count", "3", 3),
        ("count", "three", "three"),
        ("price", "2.5", 2.5),
        ("price", "None", None),
        ("price", "null", None),
        ("on", "True", True),
        ("on", "false", False),
        ("either", "7", 7),
        ("either", "x", "x"),
        ("either", "1.5", "1.5"),
        ("maybe", "null", None),
        ("maybe", "nothing", "nothing"),
        ("kind", "1", "1"),
        ("level", "1", 1),
        ("list", "[1, 2]", [1, 2]),
        ("list", "['a', None]", ["a", None]),
        ("free", "3", 3),
        ("free", "abc", "abc"),
        ("free", '"abc"', '"abc"'),
        ("unknown", "{'a': 1}", {"a": 1}),
    ],
)
def test_bare_values_have_the_types_of_the_tools_schema(key: str, written: str, value: Any) -> None:
    schema = {"type": "object", "properties": TYPES, "$defs": {"list": {"type": "array"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    text = f"<tool_call>\n<function=f>\n<parameter={key}>\n{written}\n</parameter>\n</function>\n</tool_call>"
    for offered in (tools, [tools[0]["function"]]):
        turn = DIALECTS["xml"](text, "c", offered)  # type: ignore[arg-type]
        assert (calls_of(turn), turn.parse_error) == ([("f", {key: value})], None)


@pytest.mark.parametrize("written", ["NaN", "Infinity", "1e999"])
def test_a_bare_number_that_is_not_finite_is_refused(written: str) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"n": {"type": "number"}}}}]
    text = f"<tool_call><function=f><parameter=n>{written}</parameter></function></tool_call>"
    turn = DIALECTS["xml"](text, "c", tools)
    assert turn.tool_calls == [] and turn.parse_error is not None


@pytest.mark.parametrize("dialect", [name for name in CALLS if name != "toolbench"])
def test_an_endpoint_is_read_in_whatever_family_it_writes(dialect: str) -> None:
    tools = [{"type": "function", "function": {"name": "pay", "parameters": {}}}]
    turn = ANYONE(call(dialect, "pay"), "c", tools)
    assert (calls_of(turn), turn.parse_error) == ([("pay", {"id": 1})], None)
    drafted = ANYONE(f"<think>{call(dialect, 'pay')}</think>No.", "c", tools)
    assert (drafted.text, drafted.tool_calls) == ("No.", [])


def test_an_endpoints_answer_that_looks_like_a_call_of_no_tool_is_an_answer() -> None:
    for text in ("[pay(id=1)]", '{"name": "pay", "parameters": {"id": 1}}'):
        assert ANYONE(text, "c", None) == ParsedTurn(text)
    broken = ANYONE('<tool_call>{"name": ', "c", None)
    assert broken.parse_error is not None and "not valid JSON" in broken.parse_error


@pytest.mark.parametrize("dialect", MARKED)
def test_a_flood_is_read_in_linear_time(dialect: str) -> None:
    opening = call(dialect, "x").split("1")[0]

    def parse(count: int) -> None:
        DIALECTS[dialect]((opening + "<think></think>") * count, "c")
        DIALECTS[dialect](opening * count, "c", in_thought=True)

    assert_linear(lambda count: lambda: parse(count), 4_000, limit_s=0.4, quiet_s=0.05)


@pytest.mark.parametrize(("broken", "made"), [(63, 1), (64, 0)])
def test_so_many_blocks_are_tried_and_no_more(broken: int, made: int) -> None:
    turn = DIALECTS["hermes"]("<tool_call>x</tool_call>" * broken + call("hermes", "last"), "c")
    assert len(turn.tool_calls) == made and turn.parse_error is not None


@pytest.mark.parametrize("dialect", ["bfcl", "toolbench", "webshop"])
def test_a_call_counts_behind_the_last_of_two_thoughts(dialect: str) -> None:
    write = {
        "bfcl": "[{}(a=1)]",
        "toolbench": 'Thought: \nAction: {}\nAction Input: {{"a": 1}}',
        "webshop": "Action: search[{}]",
    }[dialect]
    for marks in (("</think>", "[/THINK]"), ("[/THINK]", "</think>")):
        text = f"hm{marks[0]}{write.format('draft')}{marks[1]}\n{write.format('meant')}"
        turn = DIALECTS[dialect](text, "c")
        assert "draft" in (turn.reasoning or "")
        assert "draft" not in turn.text and not [found for found in turn.tool_calls if found.name == "draft"]
