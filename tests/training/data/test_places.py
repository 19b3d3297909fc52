"""Places in the rows of a table: columns, fields of their objects, and texts made of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.data.formats.columns import MAX_DEPTH, fields_in, mapped_row, missing_in, value_at, value_or_none
from training.data.options import ColumnMapping, ReadOptions
from training.data.problems import RowError
from training.data.reader import open_dataset

ROW: dict[str, Any] = {
    "qid": 7,
    "payload": {"ask": "二加三?", "lang": "zh", "n": 3, "ok": True, "none": None},
    "gold": {"value": "5", "all": ["5", "five"]},
    "turns": [{"text": "hi"}, {"text": "ho"}],
    "packed": '{"q": "inner", "list": [1, 2]}',
    "a.b": "a column with a dot",
    "{payload.ask}": "a column with braces",
    "text": "{not json",
}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("qid", 7),
        ("payload.ask", "二加三?"),
        ("payload.ok", True),
        ("payload.none", None),
        ("gold.all", ["5", "five"]),
        ("gold.all.1", "five"),
        ("turns.1.text", "ho"),
        ("packed.q", "inner"),  # JSON text, as in CSV and Parquet
        ("packed.list.0", 1),
        ("a.b", "a column with a dot"),
        ("{payload.ask}", "a column with braces"),
        ("{payload.lang}: {payload.ask}", "zh: 二加三?"),
        ("{payload.n}/{payload.ok}/{gold.all}", '3/true/["5", "five"]'),
        ("{{{payload.lang}}}", "{zh}"),
        ("{a.b}!", "a column with a dot!"),
    ],
)
def test_a_place_has_a_value(place: str, value: Any) -> None:
    assert value_at(ROW, place) == value and missing_in(ROW, place) == ""


@pytest.mark.parametrize(
    ("place", "missing"),
    [
        ("nothing", "nothing"),
        ("payload.gone", "payload.gone"),
        ("payload.ask.deeper", "payload.ask.deeper"),
        ("turns.2.text", "turns.2.text"),
        ("turns.-1.text", "turns.-1.text"),
        ("text.x", "text.x"),
        ("{payload.ask} {payload.gone}", "payload.gone"),
        ("{payload.none}!", "payload.none"),  # a text would say "None!"
        ("{}", "{}"),
        ("{{plain}}", "{{plain}}"),
    ],
)
def test_a_field_that_is_missing_is_named(place: str, missing: str) -> None:
    assert missing_in(ROW, place) == missing and value_or_none(ROW, place) is None


def test_columns_and_the_fields_below_them_are_listed() -> None:
    deep = {"a": {"b": {"c": {"d": {"e": 1}}}}, "p": '{"q": "x"}', "l": [{"x": 1}]}
    assert [name for name, _value in fields_in(deep)] == ["a", "a.b", "a.b.c", "a.b.c.d", "p", "p.q", "l"]
    assert MAX_DEPTH == 4


def test_a_nested_row_is_mapped() -> None:
    mapping = ColumnMapping(prompt="{payload.ask} ({payload.lang})", answer="gold.value", system="packed.q")
    row = mapped_row(ROW, mapping, "sft")
    assert [(message.role, message.content) for message in row.messages] == [
        ("system", "inner"), ("user", "二加三? (zh)"), ("assistant", "5"),
    ]  # fmt: skip
    assert row.extra["ground_truth"] == "5" and row.extra["payload"] == ROW["payload"]


@pytest.mark.parametrize("part", ["system", "input", "history"])
def test_places_of_optional_parts_may_be_missing(part: str) -> None:
    row = mapped_row({"q": "hi", "x": {}}, ColumnMapping.model_validate({"prompt": "q", part: "x.y"}), "rl")
    assert [(message.role, message.content) for message in row.messages] == [("user", "hi")]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("payload", "`payload` is an object, not text: name one of its fields, such as `payload.ask`"),
        ("payload.n", "`payload.n` is a number, not text"),
        ("payload.gone", "there is no column `payload.gone`"),
        ("{payload.gone}?", "there is no column `payload.gone`"),
        ("gold.all", "`gold.all` is a list, not text"),
    ],
)
def test_what_cannot_be_mapped_is_said(prompt: str, words: str) -> None:
    with pytest.raises(RowError) as caught:
        mapped_row(ROW, ColumnMapping(prompt=prompt), "rl")
    assert words in str(caught.value)


# Shapes of public data sets: SQuAD's answers, HotpotQA's facts, OpenAI evals' ideal answers, a table with JSON columns.
SQUAD = {
    "id": "5",
    "title": "Oak",
    "question": "How tall?",
    "answers": {"text": ["20 m", "20"], "answer_start": [3, 9]},
}
HOTPOT = {
    "_id": "a", "question": "Which is older?", "answer": "Arthur's", "supporting_facts": [["Arthur's", 0]],
    "context": [["Arthur's", ["Founded in 1844."]], ["First", ["Founded in 1989."]]],
}  # fmt: skip
EVALS = {"input": [{"role": "user", "content": "2+2?"}], "ideal": "4", "metadata": {"level": {"name": "easy"}}}
PACKED = {"prompt": '[{"role": "user", "content": "hi"}]', "reward_model": '{"style": "rule", "ground_truth": "42"}'}


@pytest.mark.parametrize(
    ("row", "mapping", "asked", "truth"),
    [
        (SQUAD, {"prompt": "{title}: {question}", "answer": "answers.text.0"}, "Oak: How tall?", "20 m"),
        (HOTPOT, {"prompt": "{question} {context.0.1.0}", "answer": "answer"},
         "Which is older? Founded in 1844.", "Arthur's"),
        (EVALS, {"messages": "input", "answer": "ideal", "category": "metadata.level.name"}, "2+2?", "4"),
        (PACKED, {"prompt": "prompt.0.content", "answer": "reward_model.ground_truth"}, "hi", "42"),
    ],
)  # fmt: skip
def test_public_shapes_are_mapped(
    tmp_path: Path, row: dict[str, Any], mapping: dict[str, str], asked: str, truth: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    source = open_dataset(path, ReadOptions.model_validate({"format": "columns", "mapping": mapping}))
    (record,) = source.records()
    assert record.row is not None, record
    assert record.row.messages[-1].content == asked and record.row.extra["ground_truth"] == truth
    names = {column.name for column in source.recognised.columns}
    assert {place for place in mapping.values() if "{" not in place and ".0" not in place} <= names
