"""Tools, calls and results in the spellings of other programs, each by the value that it has in a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.data.test_nothing_lost import SAYS, USER, checked, lines, turns_of
from training.data.formats import FORMATS
from training.data.learned import pair_of
from training.data.reader import load_rows
from training.data.schema import row_from_dict

Value = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
STOCK = {"name": "stock", "description": "Counts.", "parameters": SCHEMA}
WRAPPED = {"type": "function", "function": STOCK}
WEB = {"type": "web_search", "name": "web", "max_uses": 3}
ASKS = {"role": "assistant", "content": "", "tool_calls": [{"id": "k", "name": "stock", "arguments": {"item": "lamp"}}]}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "k"}


def spelled(tmp_path: Path, *rows: Value, **options: Any) -> tuple[list[Value], dict[str, int], list[str]]:
    """The rows that are kept, the codes of remarks and the evidence."""
    report, kept = checked(tmp_path, lines(*rows), **options)
    assert len(kept) == len(rows), report.bad
    again = [row.normal() for row in load_rows(tmp_path / "rows.jsonl")]
    assert again == kept  # what is written is read as the same
    return kept, report.codes, report.format.evidence


# --- Tools ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["tools", "tool_defs", "functions", "tool_definitions", "available_tools"])
@pytest.mark.parametrize(
    "tool",
    [
        WRAPPED,
        STOCK,
        {"function": STOCK},
        {"type": "function", **STOCK},
        {"name": "stock", "description": "Counts.", "input_schema": SCHEMA},
        {"type": "custom", "name": "stock", "description": "Counts.", "input_schema": SCHEMA},
        {"name": "stock", "description": "Counts.", "inputSchema": SCHEMA},
        json.dumps(WRAPPED),
        json.dumps(STOCK),
        str(STOCK),
        {"type": "function", "function": json.dumps(STOCK)},
        {"name": "stock", "description": "Counts.", "parameters": json.dumps(SCHEMA)},
        {"functionDeclarations": [STOCK]},
    ],
)
def test_a_tool_is_an_openai_function_however_it_is_spelled(tmp_path: Path, name: str, tool: Any) -> None:
    for value in ([tool], json.dumps([tool]), str([tool]), tool if isinstance(tool, dict) else [tool]):
        row = {"messages": [USER, ASKS, RESULT, SAYS], **({"tools": None} if name != "tools" else {}), name: value}
        kept, codes, evidence = spelled(tmp_path, row)
        wanted = {key: each for key, each in kept[0]["tools"][0].items() if key != "type"}
        assert (wanted, len(kept[0]["tools"]), codes) == ({"function": STOCK}, 1, {}), value
        assert any("in a column of another name" in text for text in evidence) == (name != "tools")
        assert name == "tools" or name not in kept[0]


def test_tools_are_written_back_into_their_column() -> None:
    row = {"messages": [USER, ASKS, RESULT, SAYS], "tool_defs": [WRAPPED]}
    write = FORMATS["conversation"].write
    assert write is not None and write(row_from_dict(row)) == row


@pytest.mark.parametrize(
    "value",
    [["sin"], "sin, cos", [{"id": 1}], {"sin": 1}, [STOCK, 3], [{"type": "function", "function": {}}], [STOCK, WEB], 7],
)
def test_a_column_that_holds_no_tools_stays_a_column(tmp_path: Path, value: Any) -> None:
    kept, _codes, _evidence = spelled(tmp_path, {"messages": [USER, SAYS], "functions": value})
    assert kept[0]["functions"] == value and "tools" not in kept[0]


def test_tools_win_over_a_column_of_another_name(tmp_path: Path) -> None:
    other = [{"name": "other", "parameters": {}}]
    kept, _codes, evidence = spelled(tmp_path, {"messages": [USER, SAYS], "tools": [WRAPPED], "functions": other})
    assert kept[0]["tools"] == [WRAPPED] and kept[0]["functions"] == other
    assert not any("another name" in text for text in evidence)


def test_a_tool_that_is_no_function_stays_as_it_is(tmp_path: Path) -> None:
    tools = [WEB, WRAPPED]
    assert spelled(tmp_path, {"messages": [USER, SAYS], "tools": tools})[0][0]["tools"] == tools


@pytest.mark.parametrize("value", [["no tool"], "no tool", [3], 3, [[STOCK]]])
def test_what_is_no_tool_under_tools_is_refused(tmp_path: Path, value: Any) -> None:
    report, _kept = checked(tmp_path, lines({"messages": [USER], "tools": value}))
    assert report.rows == 0 and report.bad[0].code in ("tools_type", "json")


@pytest.mark.parametrize(
    ("row", "codes"),
    [
        ({"messages": [USER, ASKS, RESULT, SAYS]}, {"tools_missing": 1}),
        ({"messages": [USER, ASKS, RESULT, SAYS], "tools": []}, {"tools_missing": 1}),
        ({"messages": [USER, ASKS, RESULT, SAYS], "tools": [WRAPPED]}, {}),
        (
            {"messages": [USER, ASKS, RESULT, SAYS], "tools": [WRAPPED | {"function": STOCK | {"name": "x"}}]},
            {"call_unknown": 1},
        ),
        ({"messages": [{"role": "system", "content": "You have stock(item)."}, USER, ASKS, RESULT, SAYS]}, {}),
        ({"messages": [{"role": "system", "content": "Be brief."}, USER, ASKS, RESULT, SAYS]}, {"tools_missing": 1}),
        ({"messages": [USER, SAYS]}, {}),
    ],
)
def test_calls_of_tools_that_the_row_does_not_offer_are_remarked(tmp_path: Path, row: Value, codes: Value) -> None:
    assert spelled(tmp_path, row)[1] == codes


# --- Calls ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["arguments", "parameters", "input", "args"])
def test_arguments_have_several_names(name: str) -> None:
    call = {"name": "stock", name: {"item": "lamp"}}
    for given in (call, {"function": call}, {"name": "stock", name: '{"item": "lamp"}'}):
        row = row_from_dict({"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [given]}]})
        assert row.messages[1].tool_calls is not None and row.messages[1].tool_calls[0].arguments == {"item": "lamp"}


@pytest.mark.parametrize("role", ["function_call", "tool_call"])
@pytest.mark.parametrize(
    ("value", "thought", "items"),
    [
        ('{"name": "stock", "arguments": {"item": "lamp"}}', None, ["lamp"]),
        ('<think>\nAsk.\n</think>\n\n{"name": "stock", "arguments": {"item": "lamp"}}', "Ask.", ["lamp"]),
        ('<think></think>{"name": "stock", "arguments": {"item": "lamp"}}', None, ["lamp"]),
        (
            '[{"name": "stock", "arguments": {"item": "lamp"}}, {"name": "stock", "arguments": {"item": "rug"}}]',
            None,
            ["lamp", "rug"],
        ),
        ('<think>Two.</think>[{"name": "stock", "arguments": "{\\"item\\": \\"rug\\"}"}]', "Two.", ["rug"]),
    ],
)
def test_calls_in_messages_of_their_own(role: str, value: str, thought: str | None, items: list[str]) -> None:
    for result in ("observation", "tool"):
        turns = [{"from": "human", "value": "q"}, {"from": role, "value": value}, {"from": result, "value": "4"}]
        row = row_from_dict({"conversations": turns})
        assert [message.role for message in row.messages] == ["user", "assistant", "tool"]
        made = row.messages[1]
        assert made.reasoning == thought
        assert [call.arguments["item"] for call in made.tool_calls or []] == items
        assert len({call.id for call in made.tool_calls or []}) == len(items)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("<think>never ends", "json"),
        ("[]", "call_type"),
        ("[1]", "call_type"),
        ("words", "json"),
        ('{"arguments": {}}', "call_name"),
    ],
)
def test_a_message_that_is_no_call_is_refused(tmp_path: Path, value: str, code: str) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "function_call", "value": value}]
    report, _kept = checked(tmp_path, lines({"conversations": turns}))
    assert report.bad[0].code == code


def test_words_before_calls_in_messages_of_their_own_are_one_turn() -> None:
    """As ms-swift joins them."""
    call = {"role": "tool_call", "content": '{"name": "stock", "arguments": {}}'}
    looks = {"role": "assistant", "content": "Let me look.", "loss": False, "thinking": "hm"}
    row = row_from_dict({"messages": [USER, looks, call, call, {"role": "tool_response", "content": "4"}, SAYS]})
    assert [message.role for message in row.messages] == ["user", "assistant", "tool", "assistant"]
    turn = row.messages[1]
    assert (turn.content, turn.reasoning, len(turn.tool_calls or [])) == ("Let me look.", "hm", 2)
    assert row.others is not None and row.others[1] == {"loss": False, "thinking": "hm"}


def test_turns_of_one_assistant_with_nothing_between_are_remarked(tmp_path: Path) -> None:
    """Calls in two messages of OpenAI's spelling are two turns; the first has no result."""
    row = {"messages": [USER, ASKS, ASKS, RESULT, SAYS], "tools": [WRAPPED]}
    assert spelled(tmp_path, row)[1] == {"role_order": 1}


# --- The Responses API ------------------------------------------------------------------------------------------------
def nemo(*items: Value, **fields: Any) -> Value:
    return {"responses_create_params": {"input": list(items), **fields}}


def item_call(call_id: str, item: str) -> Value:
    return {"type": "function_call", "call_id": call_id, "name": "stock", "arguments": json.dumps({"item": item})}


def item_result(call_id: str) -> Value:
    return {"type": "function_call_output", "call_id": call_id, "output": "4"}


def test_items_that_follow_each_other_without_a_result_are_one_turn(tmp_path: Path) -> None:
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Two "}], "content": []}
    more = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "items."}]}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    items = [
        USER,
        thought,
        more,
        words,
        item_call("a", "lamp"),
        item_call("b", "rug"),
        item_result("a"),
        item_result("b"),
    ]
    kept, codes, _evidence = spelled(
        tmp_path, nemo(*items, item_call("c", "fan"), item_result("c"), hidden, SAYS, tools=[STOCK])
    )
    turns = kept[0]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert (turns[1]["content"], turns[1]["reasoning_content"]) == ("Looking.", "Two items.")
    assert [[call["id"] for call in turn.get("tool_calls", [])] for turn in turns[1::3]] == [["a", "b"], ["c"]]
    assert "reasoning_content" not in turns[6] and codes == {}
    assert kept[0]["tools"] == [WRAPPED]


# --- Calls and results as text ----------------------------------------------------------------------------------------
def hermes(call: str, result: str = "<tool_response>\n4\n</tool_response>", **extra: Any) -> Value:
    texts = (("human", "q"), ("gpt", call), ("tool", result), ("gpt", "Four."))
    return {"conversations": [{"from": role, "value": text} for role, text in texts], "tools": [STOCK], **extra}


LAMP = {"name": "stock", "arguments": {"item": "lamp"}}


@pytest.mark.parametrize(
    ("text", "content", "items"),
    [
        (f"<tool_call>\n{json.dumps(LAMP)}\n</tool_call>", "", ["lamp"]),
        (f"<tool_call>{LAMP}</tool_call>", "", ["lamp"]),
        ("<tool_call>\n{'arguments': {'item': \"o'clock\"}, 'name': 'stock'}\n</tool_call>", "", ["o'clock"]),
        (f"Look.\n<tool_call>{json.dumps(LAMP)}</tool_call>\n<tool_call>{LAMP}</tool_call>", "Look.", ["lamp", "lamp"]),
        (f"<tool_call>{json.dumps([LAMP, LAMP])}</tool_call>", "", ["lamp", "lamp"]),
        (
            f"<think>\nhm <tool_call>x</tool_call>\n</think>\n<tool_call>{LAMP}</tool_call>",
            "<think>\nhm <tool_call>x</tool_call>\n</think>",
            ["lamp"],
        ),
    ],
)
def test_calls_in_texts_become_calls(tmp_path: Path, text: str, content: str, items: list[str]) -> None:
    kept, codes, evidence = spelled(tmp_path, hermes(text))
    turn = kept[0]["messages"][1]
    assert turn["content"].strip() == content and [call["arguments"]["item"] for call in turn["tool_calls"]] == items
    assert kept[0]["messages"][2] == {"role": "tool", "content": "4"} and codes == {}
    assert any("1 rows have calls in their texts" in line for line in evidence)
    assert any("1 rows have results of tools between" in line for line in evidence)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{'name': 'stock'",
        "<tool_call>not a call</tool_call>",
        "<tool_call>{'arguments': {}}</tool_call>",
        f"<tool_call>{LAMP}</tool_call><tool_call>broken</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>__import__('os')</tool_call>",
        "<tool_call>[]</tool_call>",
        '<functioncall> {"name": "stock", "arguments": \'{"item": "lamp"}\'}',
        '[TOOL_CALLS] [{"name": "stock"}]',
        "<|python_tag|>stock.call()",
        "<function=stock>{}</function>",
    ],
)
def test_a_call_that_is_not_read_stays_text_and_is_remarked(tmp_path: Path, text: str) -> None:
    kept, codes, evidence = spelled(tmp_path, {"messages": [USER, {"role": "assistant", "content": text}]})
    assert kept[0]["messages"][1] == {"role": "assistant", "content": text}
    assert codes == {"call_as_text": 1} and not any("calls in their texts" in line for line in evidence)


def test_marks_that_a_program_has_escaped_are_marks(tmp_path: Path) -> None:
    row = {"messages": [USER, {"role": "assistant", "content": f"<tool_call>{json.dumps(LAMP)}</tool_call>"}]}
    for less in ("\\u003c", "\\u003C"):
        report, kept = checked(tmp_path, lines(row).replace(b"<", less.encode()))
        assert report.rows == 1 and kept[0]["messages"][1]["tool_calls"][0]["name"] == "stock"


def test_a_draft_of_a_call_is_no_call(tmp_path: Path) -> None:
    text = f"<think>maybe <tool_call>{json.dumps(LAMP)}</tool_call></think>No need."
    kept, codes, evidence = spelled(tmp_path, {"messages": [USER, {"role": "assistant", "content": text}]})
    assert kept[0]["messages"][1]["content"] == text and not any("calls in their texts" in line for line in evidence)
    assert codes == {}


@pytest.mark.parametrize(
    ("role", "text", "wanted"),
    [
        ("tool", "<tool_response>\n4\n</tool_response>", [("tool", "4")]),
        ("user", "<tool_response>\n4\n</tool_response>", [("tool", "4")]),
        ("tool", "<tool_response>4</tool_response>\n<tool_response>5</tool_response>", [("tool", "4"), ("tool", "5")]),
        ("tool", "It is <tool_response>4</tool_response>", [("tool", "It is <tool_response>4</tool_response>")]),
        ("tool", "<tool_response>4</tool_response> kg", [("tool", "<tool_response>4</tool_response> kg")]),
        ("tool", "<tool_response>4", [("tool", "<tool_response>4")]),
        ("user", "What does <tool_response> mean?", [("user", "What does <tool_response> mean?")]),
    ],
)
def test_results_lose_their_wrap(tmp_path: Path, role: str, text: str, wanted: list[tuple[str, str]]) -> None:
    row = {"messages": [USER, ASKS, {"role": role, "content": text, "score": 1}, SAYS], "tools": [WRAPPED]}
    kept, _codes, _evidence = spelled(tmp_path, row)
    assert turns_of(kept[0])[2:-1] == wanted
    assert [turn.get("score") for turn in kept[0]["messages"]][2:4] == [1, None]
    no_call = {"messages": [USER, SAYS, {"role": "user", "content": "<tool_response>4</tool_response>"}, SAYS]}
    assert turns_of(spelled(tmp_path, no_call)[0][0])[2][0] == "user"


def test_results_in_a_completion_are_split_where_they_are() -> None:
    results = {"role": "tool", "content": "<tool_response>4</tool_response><tool_response>5</tool_response>"}
    from training.data.native import read_native
    from training.data.schema import as_it_stood

    row = read_native(row_from_dict({"prompt": [USER], "completion": [ASKS, results, SAYS]}))
    assert row.spelling.completion == 4 and len(as_it_stood(row).messages) == 1


def test_tools_that_a_system_text_lists_are_offered(tmp_path: Path) -> None:
    system = {"from": "system", "value": f"Call functions. <tools>{[WRAPPED]}</tools>"}
    turns = [system, *hermes(f"<tool_call>{LAMP}</tool_call>")["conversations"]]
    report, _kept = checked(tmp_path, lines({"conversations": turns}))
    assert report.codes == {} and report.tools == {"1": 1}
    unknown = [system, *hermes("<tool_call>{'name': 'sell', 'arguments': {}}</tool_call>")["conversations"]]
    report, _kept = checked(tmp_path, lines({"conversations": unknown}))
    assert report.codes == {"tools_missing": 1}


def test_pairs_read_calls_in_texts_too(tmp_path: Path) -> None:
    chosen = [{"role": "assistant", "content": f"<tool_call>{LAMP}</tool_call>", "weight": 1}]
    checked(tmp_path, lines({"prompt": [USER], "chosen": chosen, "rejected": [SAYS]}))
    pair = pair_of(load_rows(tmp_path / "rows.jsonl")[0])
    assert pair is not None and pair.chosen[0].tool_calls is not None and pair.turns == ([True], [True])


def test_tools_of_a_table_are_tools_whatever_is_mapped(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a", "tools": [STOCK], "n": 1}
    kept, _codes, _evidence = spelled(tmp_path, row)
    assert kept[0]["tools"] == [WRAPPED] and kept[0]["n"] == 1
    report, _kept = checked(tmp_path, lines(row, row | {"tools": "hammer, saw"}))
    assert (report.rows, report.bad[0].code) == (1, "json")


def test_tools_next_to_a_format_that_reads_none_are_tools(tmp_path: Path) -> None:
    kept, _codes, _evidence = spelled(tmp_path, {"question": "1 + 1?", "answer": "2 #### 2", "tools": [STOCK]})
    assert kept[0]["tools"] == [WRAPPED]


HOSTILE: list[Value] = [
    {"id": "Step 1", "conversations": [{"from": "system", "value": "You are AutoGPT, hi"}], "tools": ["x"]},
    {"item_id": "webshop_1", "conversations": None, "tools": "hammer"},
    {"messages": [{"role": {}, "content": "q"}], "tools": [STOCK]},
    {"messages": [USER, {"role": "assistant", "content": [{"type": [1], "text": "x"}]}]},
    {"messages": [USER, ASKS, RESULT, SAYS], "tools": [STOCK | {"parameters": {"required": [[]], "properties": {}}}]},
    {"id": "simple_0", "question": [[USER]], "function": [{"name": "f", "parameters": "x"}]},
    {"messages": [USER, SAYS], "tools": [{"function": {"name": {}, "parameters": []}}, {"function": None}]},
    {"messages": {"role": [{}], "content": ["q"]}},
]


@pytest.mark.parametrize("row", HOSTILE)
def test_what_is_of_no_usable_type_is_a_bad_row_or_read_again(tmp_path: Path, row: Value) -> None:
    report, kept = checked(tmp_path, lines(row))
    assert report.rows + report.bad_rows == 1
    assert len(kept) == report.rows and (not kept or len(load_rows(tmp_path / "rows.jsonl")) == 1)
