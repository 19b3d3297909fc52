"""Calls that are in texts in the form of some family, whose own chat template wrote them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.training.data.test_nothing_lost import checked, lines
from tests.training.rollout.templates import TEMPLATES, random_call, text_of, tokenizer_for, tool_for
from training.data.learned import pair_of
from training.data.native import MAX_SHOWN, read_native, unread_call
from training.data.schema import row_from_dict
from training.rollout.tokens import ChatTemplate, pieces_of

Value = dict[str, Any]
USER = {"role": "user", "content": "Weather in Oslo?"}
RESULT = {"role": "tool", "content": "4"}
SAYS = {"role": "assistant", "content": "4 degrees."}
OSLO = {"city": "Oslo"}
WEATHER = tool_for("weather", OSLO)
FORMS = {
    "hermes": '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "qwen3.5": "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "llama": '{"name": "weather", "parameters": {"city": "Oslo"}}',
    "llama, fenced": '```json\n{"name": "weather", "parameters": {"city": "Oslo"}}\n```',
    "llama, built in": '<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Oslo"}}',
    "llama, tag": '<function=weather>{"city": "Oslo"}</function>',
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}]',
    "mistral, newer": '[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
    '```json\n{"city": "Oslo"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "glm": "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "gpt-oss": '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
    "lfm2": "<|tool_call_start|>[weather(city='Oslo')]<|tool_call_end|>",
    "gemma": '<|tool_call>call:weather{city:<|"|>Oslo<|"|>}<tool_call|>',
    "phi": '<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}]<|/tool_call|>',
    "nemotron": '<TOOLCALL>[{"name": "weather", "arguments": {"city": "Oslo"}}]</TOOLCALL>',
    "functools": 'functools[{"name": "weather", "arguments": {"city": "Oslo"}}]',
}


def row_of(text: str, *after: Value, tools: list[Value] | None = None) -> Value:
    message = {"role": "assistant", "content": text}
    return {"messages": [USER, message, *after], **({"tools": tools} if tools else {})}


def calls_in(row: Value, place: int = 1) -> tuple[str, list[tuple[str, Value]]]:
    message = read_native(row_from_dict(row)).messages[place]
    return message.content, [(call.name, call.arguments) for call in message.tool_calls or []]


@pytest.mark.parametrize("name", FORMS)
def test_a_call_of_any_family_is_a_call_where_a_result_follows_or_its_tool_is_offered(name: str) -> None:
    text = FORMS[name]
    called = [("weather", OSLO)]
    assert calls_in(row_of(text, RESULT, SAYS)) == ("", called)
    assert calls_in(row_of(text, tools=[WEATHER])) == ("", called)
    thought = f"<think>\nhm {text}\n</think>\n"
    assert calls_in(row_of(thought + text, RESULT, SAYS))[1] == called
    assert calls_in(row_of(thought + "Cold.", RESULT, SAYS)) == (thought + "Cold.", [])


@pytest.mark.parametrize("name", [name for name in FORMS if name != "hermes"])
def test_a_call_that_an_answer_shows_stays_text_with_a_remark(tmp_path: Path, name: str) -> None:
    text = FORMS[name]
    assert calls_in(row_of(text)) == (text, [])
    assert calls_in(row_of(text, tools=[tool_for("stock", OSLO)])) == (text, [])
    report, _kept = checked(tmp_path, lines(row_of(text)))
    assert report.codes["call_as_text"] == 1


def test_one_dataset_may_mix_families(tmp_path: Path) -> None:
    rows = [row_of(text, RESULT, SAYS, tools=[WEATHER]) for text in FORMS.values()]
    for number, row in enumerate(rows):
        row["messages"] = [{"role": "user", "content": f"Weather, question {number}?"}, *row["messages"][1:]]
    report, kept = checked(tmp_path, lines(*rows))
    found = [[(call["name"], call["arguments"]) for call in row["messages"][1]["tool_calls"]] for row in kept]
    assert found == [[("weather", OSLO)]] * len(FORMS) and report.codes == {}
    assert [row["messages"][1]["tool_calls"][0]["id"] for row in kept] == ["call_2_1"] * len(FORMS)


def test_words_before_a_call_stay_and_parallel_calls_are_all_read() -> None:
    text = "I look.\n" + FORMS["qwen3.5"] + "\n" + FORMS["qwen3.5"].replace("Oslo", "Rome")
    assert calls_in(row_of(text, RESULT, RESULT, SAYS)) == (
        "I look.",
        [("weather", OSLO), ("weather", {"city": "Rome"})],
    )


@pytest.mark.parametrize(("count", "read"), [(16, 16), (17, 0)])
def test_a_turn_with_more_calls_than_a_rollout_may_make_stays_text(count: int, read: int) -> None:
    assert len(calls_in(row_of(FORMS["mistral, newer"] * count, RESULT))[1]) == read


def test_values_get_the_types_of_the_rows_own_tool() -> None:
    text = FORMS["qwen3.5"].replace("Oslo", "75001")
    offered = [tool_for("weather", {"city": "text"})], [tool_for("weather", {"city": 1})]
    assert [calls_in(row_of(text, RESULT, tools=tools))[1] for tools in offered] == [
        [("weather", {"city": "75001"})],
        [("weather", {"city": 75001})],
    ]


def test_answers_of_a_pair_are_read_with_the_tools_of_the_row() -> None:
    row = {
        "prompt": [USER],
        "chosen": FORMS["qwen3.5"],
        "rejected": FORMS["glm"].replace("Oslo", "Rome"),
        "tools": [WEATHER],
    }
    row |= {key: [{"role": "assistant", "content": row[key]}] for key in ("chosen", "rejected")}
    pair = pair_of(row_from_dict(row))
    assert pair is not None
    assert [[(c.name, c.arguments) for c in side[0].tool_calls or []] for side in (pair.chosen, pair.rejected)] == [
        [("weather", OSLO)],
        [("weather", {"city": "Rome"})],
    ]


@pytest.mark.parametrize(
    ("text", "answer", "mark"),
    [
        ("[weather(city='Oslo')]", "tool", "[weather("),
        ("[weather(city='Oslo')]", "user", ""),
        ("[weather(city='Oslo')]", None, ""),
        (f"[{'w' * 60}(city='Oslo')]", "tool", ("[" + "w" * 60)[:MAX_SHOWN]),
        ('Action: weather\nAction Input: {"city": "Oslo"}', "observed", "Action:"),
        ('Action: weather\nAction Input: {"city": "Oslo"}', "user", ""),
        ('Action: weather\nAction Input: {"city": "Oslo"}', None, ""),
        ('{"name": "weather"}', None, ""),
        ('{"name": "weather", "arguments": 3}', None, '{"name"'),
        ("<think>[weather(city='Oslo')]</think>Cold.", "tool", ""),
    ],
)
def test_which_texts_look_like_calls(text: str, answer: str | None, mark: str) -> None:
    content = "Observation: 4" if answer == "observed" else "4"
    role: Any = "user" if answer == "observed" else answer
    assert unread_call(text, Message(role=role, content=content) if answer else None) == mark


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_a_familys_template_wrote_is_read_from_a_datasets_text(template: str) -> None:
    """As programs store it that sampled a model of the family: its turn as one text."""
    chat = ChatTemplate(tokenizer_for(text_of(template)))
    if not chat.family.dialect or chat.family.dialect in ("bfcl", "lfm2-raw"):
        pytest.skip("it writes no calls, or texts that another template of its family writes in another way")
    dice = random.Random(7)
    for _ in range(20):
        name, arguments = random_call(dice)
        tools = [tool_for(name, arguments)]
        asked, answer = (
            Message(role="user", content="x"),
            Message(role="assistant", tool_calls=[ToolCall(id="call_0", name=name, arguments=arguments)]),
        )
        written = next(piece.text for piece in pieces_of(chat, [asked, answer], tools) if piece.turn is not None)
        row = json.loads(json.dumps(row_of(written, RESULT, SAYS, tools=tools)))
        assert calls_in(row)[1] == [(name, arguments)], written
