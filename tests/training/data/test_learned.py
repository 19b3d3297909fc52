"""What of a row is learned, read from each spelling that says so, and what a check says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.data.test_nothing_lost import SAYS, USER, checked, lines
from training.data.formats import FORMATS
from training.data.learned import lesson_of, pair_of
from training.data.making.conversion import Losses
from training.data.problems import FACTS
from training.data.reader import load_rows
from training.data.schema import Row, row_from_dict
from training.words import sentence

SAID = {"role": "assistant", "content": "b"}


def row(*turns: dict[str, Any], **extra: Any) -> Row:
    return row_from_dict({"messages": [USER, *turns], **extra})


@pytest.mark.parametrize(
    ("field", "value", "learned"),
    [
        ("weight", 0, False),
        ("weight", 0.0, False),
        ("weight", -1, False),
        ("weight", 1, True),
        ("weight", 0.01, True),
        ("weight", None, True),
        ("weight", "0", False),
        ("weight", "1.0", True),
        ("loss", False, False),
        ("loss", True, True),
        ("loss", "False", False),
        ("loss", "high", True),
        ("loss_weight", 0.0, False),
        ("loss_scale", 0, False),
        ("trainable", False, False),
        ("trainable", True, True),
        ("train", False, False),
        ("training", False, False),
        ("loss_mask", 0, False),
        ("loss_mask", [0, 1], True),
        ("step_loss_mask", 0, False),
        ("mask", 0, True),
        ("score", 0, True),
    ],
)
def test_a_turn_is_learned_unless_a_field_of_it_says_no(field: str, value: Any, learned: bool) -> None:
    lesson = lesson_of(row(SAYS | {field: value}, USER, SAID))
    assert lesson == ([False, learned, False, True], "")


@pytest.mark.parametrize(
    ("turns", "extra", "why_not"),
    [
        ([SAYS], {"label": False}, "bad"),
        ([SAYS], {"kto_tag": False}, "bad"),
        ([SAYS], {"label": True}, ""),
        ([SAYS], {"label": 0}, ""),  # a class of a classifier
        ([SAYS], {"weight": 0}, "unweighted"),
        ([SAYS], {"trainable": False}, "unweighted"),
        ([SAYS], {"loss": 0.0}, ""),  # measured
        ([SAYS | {"weight": 0}], {}, "unlearned"),
        ([], {}, "mute"),
        ([SAYS | {"weight": 0}], {"label": False}, "bad"),
    ],
)
def test_a_row_of_which_nothing_is_learned_has_a_reason(
    turns: list[dict[str, Any]], extra: dict[str, Any], why_not: str
) -> None:
    lesson = lesson_of(row(*turns, **extra))
    assert lesson.why_not == why_not and any(lesson.turns) == (not why_not)


def facts_of(tmp_path: Path, *rows: dict[str, Any]) -> set[str]:
    """The facts that a check of these rows says, by their code."""
    report, _kept = checked(tmp_path, lines(*rows))
    assert report.rows == len(rows)
    return {
        code
        for code, text in FACTS.items()
        if any(sentence(text, count=count) in report.format.evidence for count in range(1, len(rows) + 1))
    }


def test_a_check_counts_what_is_not_learned(tmp_path: Path) -> None:
    cases: list[tuple[set[str], dict[str, Any]]] = [
        (set(), {"messages": [USER, SAYS]}),
        ({"reasoning"}, {"messages": [USER, SAYS | {"thinking": "hm"}]}),
        ({"turns_off"}, {"messages": [USER, SAYS | {"weight": 0}, USER, SAID | {"weight": 1}]}),
        ({"unlearned"}, {"messages": [USER, SAYS | {"loss": False}]}),
        ({"bad"}, {"messages": [USER, SAYS], "label": False}),
        ({"unweighted"}, {"messages": [USER, SAYS], "weight": 0}),
        ({"fractions"}, {"messages": [USER, SAYS | {"weight": 0.5}]}),
        ({"fractions"}, {"messages": [USER, SAYS], "weight": 2}),
        ({"others_on"}, {"messages": [USER | {"weight": 1}, SAYS]}),
        (set(), {"messages": [USER | {"weight": 0}, SAYS | {"weight": 1.0}]}),
        ({"mask"}, {"messages": [USER, SAYS | {"mask": 1}]}),
        ({"turns_off"}, {"messages": [USER, SAYS | {"loss": 0}, USER, SAID], "label": True}),
    ]
    for expected, value in cases:
        assert facts_of(tmp_path, value) == expected, value
    report, _kept = checked(tmp_path, lines(*(value for _expected, value in cases)))
    assert "2 rows have weights other than 0 and 1. SFT learns such a turn in full." in report.format.evidence


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking", "thought"])
def test_reasoning_is_read_from_its_field_and_written_back_under_its_name(tmp_path: Path, name: str) -> None:
    value = {"messages": [USER, {"role": "assistant", "content": "a", name: "because"}]}
    report, kept = checked(tmp_path, lines(value))
    assert kept == [value] and report.codes == {}
    read = load_rows(tmp_path / "in")[0]
    assert [message.reasoning for message in read.messages] == [None, "because"]
    for form in ("conversation", "openai", "swift", "sharegpt", "verl"):
        write = FORMATS[form].write
        assert write is not None and Losses(FORMATS[form]).of(read, write(read)) == [], form


def test_reasoning_without_a_field_of_its_own_is_written_as_reasoning_content() -> None:
    made = Row(messages=row(SAYS).messages)
    made.messages[1].reasoning = "because"
    assert made.normal()["messages"][1] == {"role": "assistant", "content": "a", "reasoning_content": "because"}


@pytest.mark.parametrize(
    ("item", "reasoning", "content"),
    [
        ({"content": None, "reasoning_content": "only thought"}, "only thought", ""),
        ({"content": "a", "reasoning_content": " \n"}, None, "a"),
        ({"content": "a", "reasoning_content": "", "thinking": "then this"}, "then this", "a"),
        ({"content": "a", "reasoning": {"steps": 3}}, None, "a"),
        ({"content": "<think>x</think>a", "reasoning_content": "x"}, None, "<think>x</think>a"),
    ],
)
def test_reasoning_is_a_text_that_the_content_has_not(item: dict[str, Any], reasoning: Any, content: str) -> None:
    value = {"messages": [USER, {"role": "assistant", **item}]}
    message = row_from_dict(value).messages[1]
    assert (message.reasoning, message.content) == (reasoning, content)


def test_only_the_assistant_reasons() -> None:
    assert row_from_dict({"messages": [USER | {"thinking": "x"}, SAYS]}).messages[0].reasoning is None


def test_calls_in_messages_of_their_own_keep_reasoning_and_weight() -> None:
    call = {"role": "tool_call", "content": '{"name": "f", "arguments": {}}'}
    read = row_from_dict({"messages": [USER, call | {"reasoning_content": "why", "loss": False}, SAYS]})
    assert read.messages[1].reasoning == "why" and lesson_of(read).turns == [False, False, True]
    for form in ("swift", "sharegpt"):
        write = FORMATS[form].write
        assert write is not None and Losses(FORMATS[form]).of(read, write(read)) == [], form


def test_rows_that_differ_by_reasoning_are_no_duplicates_and_an_empty_turn_that_reasons_is_no_empty_turn(
    tmp_path: Path,
) -> None:
    values = [{"messages": [USER, {"role": "assistant", "content": "", "thinking": text}]} for text in ("one", "two")]
    report, _kept = checked(tmp_path, lines(*values))
    assert report.codes == {}


def test_a_pair_keeps_what_is_learned_of_its_answers() -> None:
    chosen = [SAYS | {"weight": 0}, USER, SAID]
    pair = pair_of(row(chosen=chosen, rejected=[SAID]))
    assert pair is not None and pair.turns == ([False, False, True], [True])
    repeated = pair_of(row(chosen=[USER, SAYS | {"loss": True}], rejected=[USER, SAID]))
    assert repeated is not None and (len(repeated.chosen), repeated.turns) == (1, ([True], [True]))
    assert pair_of(row(chosen=[SAYS | {"weight": 0}], rejected=[SAID])) is None
    assert pair_of(row(chosen=[SAYS], rejected=[SAID], weight=0)) is None
