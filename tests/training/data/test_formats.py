"""Formats of which the seeds have no file: recognised, read, written back; tables, cuts and hostile literals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.data.checking.check import preview
from training.data.formats import FORMATS
from training.data.options import Cut, ReadOptions
from training.data.reader import load_rows, open_dataset
from training.errors import DataError
from training.plain import LiteralError, literal

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {
            "messages": [
                {"role": "user", "content": "a"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
                },
                {"role": "tool", "content": "1", "tool_call_id": "c"},
            ],
            "tools": [TOOL],
            "n": 1,
        }
    ],
    "sharegpt": [
        {
            "conversations": [
                {"from": "system", "value": "s"},
                {"from": "human", "value": "a"},
                {"from": "function_call", "value": '{"name": "f", "arguments": {"x": "字"}}'},
                {"from": "observation", "value": "1"},
                {"from": "gpt", "value": "b", "loss": True},
            ],
            "tools": json.dumps([TOOL]),
            "id": "x",
        }
    ],
    "agentgym": [
        {
            "item_id": "webshop_6",
            "conversations": [
                {"from": "human", "loss": None, "value": "You are web shopping."},
                {"from": "gpt", "loss": False, "value": "Ok."},
                {"from": "human", "loss": None, "value": "WebShop [SEP] Search"},
                {"from": "gpt", "loss": True, "value": "Thought:\n…\n\nAction:\nclick[x]"},
            ],
        },
        {"item_id": "webshop_5238", "conversations": None},
        {"item_id": "webshop_0"},
    ],
    "verl": [
        {
            "data_source": "webshop",
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Please help me shop"}],
            "ability": "shopping",
            "reward_model": {"style": "interaction", "ground_truth": ""},
            "extra_info": {"index": 0, "interaction_kwargs": {"name": "webshop", "session_id": 5238}},
        }
    ],
}


def stored(tmp_path: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_recognised_and_written_back(tmp_path: Path, name: str) -> None:
    path = stored(tmp_path, SAMPLES[name])
    source = open_dataset(path)
    assert source.format.name == name
    write = FORMATS[name].write
    assert write is not None
    assert [write(row) for row in load_rows(path)] == SAMPLES[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_in_our_own_spelling_are_read_as_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = load_rows(stored(tmp_path, SAMPLES[name]))
    again = load_rows(stored(tmp_path, [row.normal() for row in rows], "again.jsonl"))
    assert [row.normal() for row in again] == [row.normal() for row in rows]
    assert [row.messages for row in again] == [row.messages for row in rows]


def test_an_id_alone_is_opened_by_the_environment(tmp_path: Path) -> None:
    rows = load_rows(stored(tmp_path, SAMPLES["agentgym"]))
    assert rows[1].messages == [] and rows[1].task() == {"messages": [], "item_id": "webshop_5238"}
    assert [message.role for message in rows[0].messages] == ["user", "assistant", "user", "assistant"]


def test_helloagents_rows_and_shapes(tmp_path: Path) -> None:
    question = {"question": "2 + 3?", "answer": "Add <<2+3=5>>5.\n#### 5"}
    path = stored(tmp_path, [question])
    rl = load_rows(path)[0]
    assert rl.messages[0].content == "Question: 2 + 3?\n\nLet's solve this step by step:"
    assert len(rl.messages) == 1 and rl.extra["ground_truth"] == "5"
    sft = next(open_dataset(path, ReadOptions(shape="sft")).records()).row
    assert sft is not None and sft.messages[1].content == "Add <<2+3=5>>5.\n\nFinal Answer: 5"
    made = {"prompt": "Question: q\n", "completion": "r\n\nFinal Answer: 5", "text": "Question: q\nr"}
    row = load_rows(stored(tmp_path, [made], "sft.jsonl"))[0]
    assert [message.role for message in row.messages] == ["user", "assistant"] and row.extra == {"text": made["text"]}


@pytest.mark.parametrize(("delimiter", "ending"), [(",", "\n"), (";", "\r\n"), ("\t", "\n")])
def test_a_table_maps_by_its_usual_names(tmp_path: Path, delimiter: str, ending: str) -> None:
    lines = [["question", "answer", "category"], ["你好?", '"a""b"', "x"], ["two", "2"], ["", "3", "x"]]
    text = "\ufeff" + "".join(delimiter.join(line) + ending for line in lines)
    (tmp_path / "t.csv").write_bytes(text.encode())
    source = open_dataset(tmp_path / "t.csv")
    assert (source.opened.container, source.format.name) == ("csv", "columns")
    records = list(source.records())
    assert records[0].row is not None
    assert records[0].row.normal() == {
        "messages": [{"role": "user", "content": "你好?"}],
        "question": "你好?",
        "answer": 'a"b',
        "category": "x",
        "ground_truth": 'a"b',
    }
    assert [(record.line, record.reason) for record in records[1:]] == [
        (3, "the row has 2 cells; the header has 3"),
        (4, "the row is not one of the rows that this mapping makes: `question` is empty, not text"),
    ]


def test_a_table_maps_as_a_person_says(tmp_path: Path) -> None:
    rows = [{"frage": "?", "antwort": "!", "rolle": "Be kind."}, {"frage": None, "antwort": "!", "rolle": ""}]
    mapping = {"prompt": "frage", "answer": "antwort", "system": "rolle"}
    options = ReadOptions.model_validate({"mapping": mapping, "shape": "sft"})
    shown = preview(stored(tmp_path, rows), options)
    assert [message["content"] for message in shown.rows[0]["messages"]] == ["Be kind.", "?", "!"]
    assert shown.bad[0].line == 2 and shown.bad[0].code == "shape" and shown.bad[0].suggestion
    (tmp_path / "t.csv").write_text("frage,antwort\n?,!\n")
    with pytest.raises(DataError, match="no conversation column"):
        open_dataset(tmp_path / "t.csv")


@pytest.mark.parametrize("count", [1, 19, 20, 21, 400])
def test_a_table_of_any_length_is_whole(tmp_path: Path, count: int) -> None:
    (tmp_path / "t.csv").write_text("question,answer\n" + "".join(f"q{n},a\n" for n in range(count)))
    rows = load_rows(tmp_path / "t.csv")
    assert [row.messages[0].content for row in rows] == [f"q{n}" for n in range(count)]


def test_broken_csv_loses_no_row_silently(tmp_path: Path) -> None:
    bad = b'question,answer\na,b\n"open,c\nd,e\n' + b'f,"g"h\n' + b"\xff,i\nj,k\n"
    (tmp_path / "t.csv").write_bytes(bad)
    records = list(open_dataset(tmp_path / "t.csv").records())
    assert records[0].row is not None
    assert [record.error.code for record in records if record.error][:1] == ["csv"]


@pytest.mark.parametrize("cut", list(Cut))
def test_cutting_step_prefixes(tmp_path: Path, cut: Cut) -> None:
    roles = ["system", "user", "assistant", "function", "assistant"]
    items = [{"from": role, "value": f"{role} {n} AutoGPT"} for n, role in enumerate(roles)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"id": "Step 2: x", "conversations": items}]))
    record = next(open_dataset(path, ReadOptions(cut=cut)).records())
    assert record.row is not None
    left = {Cut.NONE: 5, Cut.QUERY: 2, Cut.LAST_TURN: 4}[cut]
    assert [message.role for message in record.row.messages] == ["system", "user", "assistant", "tool", "assistant"][
        :left
    ]
    assert len(record.row.task()["messages"]) == left and record.row.extra == {"id": "Step 2: x"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "[i for i in range(9)]",
        "{1, 2}",
        "b'x'",
        "1j",
        "{1: 2}",
        "[1e999]",
        "[" * 10_000,
        "-" * 10_000 + "1",
        "(" * 40 + ")" * 40,
        "[1, 2",
        "'\\ud800'",
        "[" + "1," * 40_000 + "]",
        "lambda: 0",
        "~" * 200 + "1",
        "- " * 300 + "1",
    ],
)
def test_hostile_literals_are_refused(text: str) -> None:
    with pytest.raises(LiteralError):
        value = literal(text)
        json.dumps(value)
        raise AssertionError(f"{text[:30]} was read as {value!r}")


def test_a_literal_is_read() -> None:
    assert literal("[{'name': 'a', 'x': {'y': [1, 2.5, None, True]}}]") == [
        {"name": "a", "x": {"y": [1, 2.5, None, True]}}
    ]


def test_a_list_of_apis_that_cannot_be_read_is_a_remark(tmp_path: Path) -> None:
    system = "You are AutoGPT. … access to the following APIs: [open('/etc/passwd')]"
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"id": "Step 1: x", "conversations": [{"from": "system", "value": system}]}]))
    row = load_rows(path)[0]
    assert row.notes[0][0] == "apis_unreadable" and row.messages[0].content == system
