"""The Hermes dialect on what models really write: never an exception, always text, calls or a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.growth import assert_linear
from training.dialects import DIALECTS, json_calls

C, E = "<tool_call>", "</tool_call>"
A = '{"name": "a", "arguments": {"x": 1}}'
Calls = list[tuple[str, dict[str, Any]]]

GOOD: list[tuple[str, str, Calls]] = [
    ("plain answer", "plain answer", []),
    ("", "", []),
    ("   spaced \n", "spaced", []),
    (f"{C}{A}{E}", "", [("a", {"x": 1})]),
    (f"{C}\n{A}\n{E}", "", [("a", {"x": 1})]),
    (f"{C}\t {A}  \r\n{E}\n", "", [("a", {"x": 1})]),
    (f"I look.\n{C}{A}{E}", "I look.", [("a", {"x": 1})]),
    (f"{C}{A}{E} after", "after", [("a", {"x": 1})]),
    (f"{C}{A}{E}{C}{A}{E}", "", [("a", {"x": 1}), ("a", {"x": 1})]),
    (f"one {C}{A}{E} two {C}{A}{E} three", "one  two  three", [("a", {"x": 1}), ("a", {"x": 1})]),
    (
        C + '{"name": "a", "arguments": {"q": {"deep": {"er": [1, {"b": {}}]}}}}' + E,
        "",
        [("a", {"q": {"deep": {"er": [1, {"b": {}}]}}})],
    ),
    (C + '{"name": "a", "arguments": {"x": "}}{{"}}' + E, "", [("a", {"x": "}}{{"})]),
    (C + '{"name": "a", "arguments": {"x": "</tool_call>"}}' + E, "", [("a", {"x": "</tool_call>"})]),
    (C + '{"name": "a", "arguments": {"x": "<tool_call>"}}' + E, "", [("a", {"x": "<tool_call>"})]),
    (C + '{"name": "a", "arguments": "{\\"x\\": 2}"}' + E, "", [("a", {"x": 2})]),
    (C + '{"name": "a", "arguments": ""}' + E, "", [("a", {})]),
    (C + '{"name": "a", "arguments": null}' + E, "", [("a", {})]),
    (C + '{"name": "a"}' + E, "", [("a", {})]),
    (C + '{"arguments": {"x": 1}, "name": "a"}' + E, "", [("a", {"x": 1})]),
    (C + '{"name": " a ", "arguments": {}}' + E, "", [("a", {})]),
    (C + '{"name": "天气", "arguments": {"城市": "北京"}}' + E, "", [("天气", {"城市": "北京"})]),
    (C + '{"name": "a", "arguments": {"x": "\\u5317"}}' + E, "", [("a", {"x": "北"})]),
    (C + '{"name": "a", "arguments": {}, "id": "z", "extra": [1]}' + E, "", [("a", {})]),
    (f"<think>maybe {{</think>\n{C}{A}{E}", "", [("a", {"x": 1})]),
    ('{"name": "a", "arguments": {}}', '{"name": "a", "arguments": {}}', []),
    ("<tool_cal>{}", "<tool_cal>{}", []),
    ("2 < 3 and 4 > 1", "2 < 3 and 4 > 1", []),
]

BROKEN: list[tuple[str, str, Calls]] = [
    (f"{C}{E}", "not valid JSON", []),
    (C, "not valid JSON", []),
    (f"{C}{A}", "not closed", []),
    (f"text {C}{A}", "not closed", []),
    (f"{C}not json{E}", "not valid JSON", []),
    (C + '{"name": "a", "arguments": {"x": 1}' + E, "not valid JSON", []),
    (C + "{'name': 'a', 'arguments': {}}" + E, "not valid JSON", []),
    (f"{C}[{A}]{E}", "not a JSON object", []),
    (f'{C}"a"{E}', "not a JSON object", []),
    (f"{C}12{E}", "not a JSON object", []),
    (C + '{"arguments": {}}' + E, 'no "name"', []),
    (C + '{"name": "", "arguments": {}}' + E, 'no "name"', []),
    (C + '{"name": 5, "arguments": {}}' + E, 'no "name"', []),
    (C + '{"name": "a", "arguments": [1]}' + E, "not a JSON object", []),
    (C + '{"name": "a", "arguments": 7}' + E, "not a JSON object", []),
    (C + '{"name": "a", "arguments": "{broken"}' + E, "not valid JSON", []),
    (C + '{"name": "a", "arguments": "[1]"}' + E, "not a JSON object", []),
    (C + '{"name": "a", "arguments": {"x": NaN}}' + E, "not valid JSON", []),
    (C + '{"name": "a", "arguments": {"x": Infinity}}' + E, "not valid JSON", []),
    (C + '{"name": "a", "arguments": {"x": "\\ud800"}}' + E, "surrogate", []),
    (C + '{"name": "a", "arguments": ' + '{"x": ' * 60 + "1" + "}" * 61 + E, "nested deeper", []),
    (C + "[" * 50_000 + E, "", []),
    (C + '{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}" + E, "", []),
    (f"{C}{A}{C}{A}{E}", "not closed", [("a", {"x": 1})]),
    (f"{C}oops{E}{C}{A}{E}", "not valid JSON", [("a", {"x": 1})]),
    (f"{C}{A}{E}{C}oops", "not valid JSON", [("a", {"x": 1})]),
    (f"{C}{A} trailing{E}", "not closed", []),
    (f"{A}{E}", "without <tool_call>", []),
    (E, "without <tool_call>", []),
    (f"{C}{C}{A}{E}{E}", "", [("a", {"x": 1})]),
]


@pytest.mark.parametrize(("text", "words", "calls"), GOOD)
def test_well_formed_turns_are_read(text: str, words: str, calls: Calls) -> None:
    turn = json_calls.parse_hermes(text, "c")
    assert turn.parse_error is None
    assert turn.text == words
    assert [(call.name, call.arguments) for call in turn.tool_calls] == calls


@pytest.mark.parametrize(("text", "problem", "calls"), BROKEN)
def test_broken_calls_become_a_sentence_and_spare_the_whole_ones(text: str, problem: str, calls: Calls) -> None:
    turn = json_calls.parse_hermes(text, "c")
    assert turn.parse_error is not None and problem in turn.parse_error and turn.parse_error.endswith(".")
    assert len(turn.parse_error) < 300
    assert [(call.name, call.arguments) for call in turn.tool_calls] == calls


def test_call_ids_are_unique_and_begin_with_the_prefix() -> None:
    turn = json_calls.parse_hermes(f"{C}{A}{E}" * 3, "call_2_")
    assert [call.id for call in turn.tool_calls] == ["call_2_0", "call_2_1", "call_2_2"]


@pytest.mark.parametrize(("written", "made"), [(16, 16), (17, 16), (100, 16)])
def test_a_flood_of_calls_is_cut(written: int, made: int) -> None:
    turn = json_calls.parse_hermes(f"{C}{A}{E}" * written, "c")
    assert len(turn.tool_calls) == made and (turn.parse_error is not None) == (written > made)


def test_the_dialect_is_registered() -> None:
    assert DIALECTS["hermes"] is json_calls.parse_hermes


def test_thousands_of_broken_calls_are_read_in_linear_time() -> None:
    """Each broken call looked at the whole rest of the text: 128 KB of them took 0.4 s, and twice as many 3.5 times."""

    def parse(count: int) -> None:
        turn = json_calls.parse_hermes("<tool_call>" * count, "c")
        assert turn.tool_calls == [] and turn.parse_error is not None

    assert_linear(lambda count: lambda: parse(count), 64_000, limit_s=0.1)
