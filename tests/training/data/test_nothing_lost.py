"""What a file holds is in its rows or in the report: columns, common spellings, containers, encodings, duplicates."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.data.test_faults import ROWS, WAYS
from training.data.__main__ import main
from training.data.checking.check import check_file
from training.data.checking.report import Report
from training.data.formats import FORMATS
from training.data.options import ReadOptions
from training.data.reader import load_rows, open_dataset

USER, SAYS = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def checked(folder: Path, data: bytes, **options: Any) -> tuple[Report, list[dict[str, Any]]]:
    """The report of a file and the rows that were kept."""
    (folder / "in").write_bytes(data)
    report = check_file(folder / "in", folder, **options)
    kept = folder / "rows.jsonl"
    return report, [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def turns_of(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in row["messages"]]


def test_a_sharegpt_system_column_is_the_first_message(tmp_path: Path) -> None:
    row = {"system": "S", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    report, rows = checked(tmp_path, lines(row))
    assert turns_of(rows[0]) == [("system", "S"), ("user", "q"), ("assistant", "a")] and "system" not in report.columns
    assert any("1 rows have a system text in a separate column" in text for text in report.format.evidence)
    write = FORMATS["sharegpt"].write
    assert write is not None and write(load_rows(tmp_path / "in")[0]) == row


def test_two_system_texts_are_both_kept(tmp_path: Path) -> None:
    report, rows = checked(tmp_path, lines({"messages": [{"role": "system", "content": "A"}, USER], "system": "B"}))
    assert turns_of(rows[0]) == [("system", "A"), ("user", "q")] and rows[0]["system"] == "B"
    assert any("another text in a system column" in text for text in report.format.evidence)


def test_alpaca_keeps_input_history_and_system(tmp_path: Path) -> None:
    """Rows that differ by input only were called duplicates, and the input was in no message."""
    row = {"instruction": "Translate.", "output": "Hello", "system": "S", "history": [["one", "eins"]]}
    report, rows = checked(tmp_path, lines(row | {"input": "Hallo"}, row | {"input": "Guten Tag"}))
    assert report.format.rows == "alpaca" and report.codes == {}
    assert turns_of(rows[1]) == [
        ("system", "S"),
        ("user", "one"),
        ("assistant", "eins"),
        ("user", "Translate.\nGuten Tag"),
    ]
    assert rows[1]["ground_truth"] == "Hello"
    _report, rows = checked(tmp_path, lines(row | {"input": ""}), reading=ReadOptions(shape="sft"))
    assert turns_of(rows[0])[-2:] == [("user", "Translate."), ("assistant", "Hello")]


def test_mapped_tables_take_input_and_history(tmp_path: Path) -> None:
    row = {"query": "q", "response": "r", "history": [["a", "b"]], "input": "i"}
    _report, rows = checked(tmp_path, lines(row))
    assert turns_of(rows[0]) == [("user", "a"), ("assistant", "b"), ("user", "q\ni")]
    report, rows = checked(tmp_path, lines(row | {"history": [["a"]]}))
    assert report.bad[0].reason.endswith("`history` is not a list of questions with their answers")


def test_an_answer_does_not_overwrite_a_ground_truth(tmp_path: Path) -> None:
    _report, rows = checked(tmp_path, lines({"question": "q", "answer": "long", "ground_truth": "4"}))
    assert (rows[0]["ground_truth"], rows[0]["answer"]) == ("4", "long")


def test_trl_completions_are_turns(tmp_path: Path) -> None:
    row = {"prompt": [USER], "completion": [SAYS, USER, SAYS], "id": 3}
    report, rows = checked(tmp_path, lines(row))
    assert [role for role, _text in turns_of(rows[0])] == ["user", "assistant", "user", "assistant"]
    assert "completion" not in report.columns and rows[0]["id"] == 3
    write = FORMATS["conversation"].write
    assert write is not None and write(load_rows(tmp_path / "in")[0]) == row
    _report, rows = checked(tmp_path, lines({"prompt": [USER], "completion": [SAYS], "label": False}))
    assert turns_of(rows[0]) == [("user", "q")] and rows[0]["completion"] == [SAYS]


def test_content_parts_are_one_text_and_pictures_are_refused(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}]
    picture = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    report, rows = checked(
        tmp_path,
        lines({"messages": [{"role": "user", "content": parts}]}, {"messages": [{"role": "user", "content": picture}]}),
    )
    assert turns_of(rows[0]) == [("user", "Look here")] and report.rows == 1
    assert report.bad[0].reason == "message 1 has a part of type 'image_url'; only parts of text can be trained on"


def test_calls_before_tool_calls_came_are_calls(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}
    _report, rows = checked(tmp_path, lines({"messages": [USER, call]}))
    assert rows[0]["messages"][1]["tool_calls"] == [{"id": "call_2", "name": "f", "arguments": {"x": 1}}]


def test_preference_pairs_are_kept_and_reported(tmp_path: Path) -> None:
    with_prompt = {"prompt": [USER], "chosen": [SAYS], "rejected": [{"role": "assistant", "content": "b"}]}
    implicit = {name: [USER, *with_prompt[name]] for name in ("chosen", "rejected")}
    texts = {name: f"\n\nHuman: q\n\nAssistant: {name}" for name in ("chosen", "rejected")}
    report, rows = checked(tmp_path, lines(with_prompt, implicit, texts))
    assert [turns_of(row) for row in rows] == [[("user", "q")]] * 3
    assert [row["chosen"] for row in rows] == [row["chosen"] for row in (with_prompt, implicit, texts)]
    assert any(text.startswith("3 rows hold a preference pair") for text in report.format.evidence)
    write = FORMATS["preference"].write
    assert write is not None and [write(row) for row in load_rows(tmp_path / "in")] == [with_prompt, implicit, texts]


def test_nemo_gym_rows(tmp_path: Path) -> None:
    """The Responses API: instructions, calls and their outputs as items, tools without a wrapper."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}], "type": "message"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
    ]
    tool = {
        "type": "function",
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    }
    params = {"input": items, "instructions": "S", "tools": [tool], "parallel_tool_calls": False}
    row = {"responses_create_params": params, "expected_answer": "4", "agent_ref": {"name": "x"}}
    report, rows = checked(tmp_path, lines(row))
    assert report.format.rows == "nemo_gym" and report.codes == {}
    assert turns_of(rows[0]) == [("system", "S"), ("user", "2+2?"), ("assistant", ""), ("tool", "4")]
    assert rows[0]["tools"][0]["function"]["name"] == "add" and rows[0]["ground_truth"] == "4"
    assert rows[0]["messages"][2]["tool_calls"] == [{"id": "c", "name": "add", "arguments": {"a": 2}}]
    write = FORMATS["nemo_gym"].write
    assert write is not None and write(load_rows(tmp_path / "in")[0]) == row


def test_toolbench_answer_files(seed_data: Path, tmp_path: Path) -> None:
    """15 searches of ToolBench and 6 of StableToolBench, each a file; the path that answered is the conversation."""
    folder = seed_data / "seed0_toolbench"
    report = check_file(folder / "toolbench/answer", tmp_path)
    assert (report.verdict, report.rows, report.format.rows) == ("ok", 15, "toolbench_answers")
    assert {each.column: each.rows for each in report.ignored}["tree"] == 15
    assert any(text.startswith("2 rows hold a search that found no valid answer") for text in report.format.evidence)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    given = json.loads((folder / "toolbench/answer/G1_answer/10_ChatGPT_DFS_woFilter_w2.json").read_text())
    path = given["answer_generation"]["train_messages"][-1]
    assert [message["role"] for message in rows[0]["messages"]] == [
        {"function": "tool"}.get(message["role"], message["role"]) for message in path
    ]
    calls = [call["name"] for message in rows[0]["messages"] for call in message.get("tool_calls", [])]
    assert calls == ["transitaires_for_transitaires", "transitaire_for_transitaires", "Finish"]
    assert len(rows[0]["tools"]) == len(given["answer_generation"]["function"])
    both = [open_dataset(path) for path in sorted((folder / "stabletoolbench/data_example/answer").rglob("*.json"))]
    assert len(both) == 6 and {each.format.name for each in both} == {"toolbench_answers"}
    assert all(record.row is not None for each in both for record in each.records())


@pytest.mark.parametrize("name", ROWS)
def test_no_column_of_any_format_goes_in_silence(tmp_path: Path, name: str) -> None:
    """Columns that no format knows, of every kind: in the row, or listed as kept or ignored; never gone."""
    unknown = {"x_text": "字", "x_number": 5, "x_list": [1, [2]], "x_object": {"a": {"b": None}}, "x_null": None}
    row = ROWS[name] | unknown
    bad = '"x_nan": NaN, "x_deep": ' + "[" * 40 + "]" * 40
    data = (json.dumps(row)[:-1] + ", " + bad + "}\n").encode()
    report, rows = checked(tmp_path, data, reading=WAYS[name])
    assert report.verdict == "ok", report
    assert {key: rows[0][key] for key in unknown} == unknown
    assert {each.column: (each.code, each.rows) for each in report.ignored} == {
        "x_nan": ("not_finite", 1),
        "x_deep": ("deep", 1),
    }
    text = json.dumps(rows[0], ensure_ascii=False)
    placed = {key for key in row if key in rows[0] or key in report.columns}
    in_messages = {"conversation", "conversations", "messages", "prompt", "completion", "answer_generation", "ask"}
    assert set(row) - placed <= in_messages and all(value in text for value in ("字",))


def test_columns_that_json_cannot_carry_are_kept_out_and_listed(tmp_path: Path) -> None:
    """Bytes, decimals, dates and NaN in a column that is not needed refused every row of the file."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    row = {
        "messages": [USER],
        "thumb": b"\x89PNG",
        "price": decimal.Decimal("1.5"),
        "made": datetime.datetime(2026, 1, 1),
        "score": float("nan"),
        "id": 7,
    }
    pq.write_table(pa.Table.from_pylist([row, row | {"score": 0.5}]), tmp_path / "p")
    report, rows = checked(tmp_path, (tmp_path / "p").read_bytes())
    assert (report.verdict, report.rows) == ("ok", 2)
    assert rows == [{"messages": [USER], "id": 7}, {"messages": [USER], "score": 0.5, "id": 7}]
    assert {each.column: each.rows for each in report.ignored} == {"thumb": 2, "price": 2, "made": 2, "score": 1}
    assert str(report.ignored[0].told) == (
        "Ignored column `thumb`: 2 rows hold values of type bytes, which JSON cannot carry."
    )


def test_nan_in_what_a_row_needs_still_refuses_it(tmp_path: Path) -> None:
    report, _rows = checked(tmp_path, b'{"messages": [{"role": "user", "content": "q"}], "ground_truth": NaN}\n')
    assert report.rows == 0 and report.bad[0].code == "constant"


def test_a_text_of_a_megabyte_is_read(tmp_path: Path) -> None:
    report, rows = checked(tmp_path, lines({"messages": [{"role": "user", "content": "x" * (1 << 20)}]}))
    assert report.rows == 1 and len(rows[0]["messages"][0]["content"]) == 1 << 20
    report, _rows = checked(tmp_path, lines({"messages": [{"role": "user", "content": "x" * ((1 << 20) + 1)}]}))
    assert report.bad[0].reason == "a field is longer than 1 MB"


@pytest.mark.parametrize("header", ["text", "prompt", "Question", '"instruction"'])
def test_a_table_of_one_column(tmp_path: Path, header: str) -> None:
    report, rows = checked(tmp_path, (header + '\nhello\n"you, too"\n').encode(), reading=None)
    assert (report.format.name, report.format.rows, report.rows) == ("csv", "columns", 2)
    assert [turns_of(row) for row in rows] == [[("user", "hello")], [("user", "you, too")]]


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_under_one_key_of_an_object(tmp_path: Path, indent: int | None) -> None:
    value = {"version": "1.0", "data": [{"messages": [USER], "n": n} for n in range(3)], "licence": ["MIT"]}
    report, rows = checked(tmp_path, json.dumps(value, indent=indent).encode())
    assert (report.verdict, report.format.name) == ("ok", "json") and [row["n"] for row in rows] == [0, 1, 2]
    assert [(each.column, each.code) for each in report.ignored] == [("version", "beside"), ("licence", "beside")]


def test_objects_over_several_lines_one_after_the_other(tmp_path: Path) -> None:
    """Two of five rows were read, and the rest was one complaint."""
    texts = [json.dumps({"messages": [USER], "n": n}, indent=2) for n in range(5)]
    for between in ("\n", "\n\n", ",\n", ""):
        report, rows = checked(tmp_path, between.join(texts).encode())
        assert (report.rows, report.bad_rows) == (5, 0), (between, report.bad)
    texts[2] = texts[2].replace('"n": 2', '"n": nonsense')
    report, rows = checked(tmp_path, "\n".join(texts).encode())
    assert [row["n"] for row in rows] == [0, 1, 3, 4] and [(bad.line, bad.code) for bad in report.bad] == [(3, "json")]


def test_a_chinese_table_in_gbk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "question,answer\n今天天气怎么样？,下雨\n一加一等于几,二\n"
    report, rows = checked(tmp_path, text.encode("gbk"))
    assert report.rows == 2 and turns_of(rows[0]) == [("user", "今天天气怎么样？")] and rows[1]["answer"] == "二"
    assert any("is read as GB18030 (GBK), because 17 of its 17 non-ASCII" in text for text in report.format.evidence)
    assert main(["preview", "--input", str(tmp_path / "in")]) == 0
    assert "今天天气怎么样？" in capsys.readouterr().out


def test_one_broken_byte_does_not_make_utf8_gbk(tmp_path: Path) -> None:
    lines_ = ["question,answer", *(f"今天天气怎么样{n},下雨" for n in range(5))]
    data = "\n".join(lines_).encode() + b"\nbr\xffken,x\n"
    report, _rows = checked(tmp_path, data)
    assert report.rows == 5 and [bad.code for bad in report.bad] == ["utf8_row"]
    latin = "question,answer\n" + "".join(f"à la carte très cher {n},où\n" for n in range(5))
    report, _rows = checked(tmp_path, latin.encode("latin-1"))
    assert report.rows == 0 and "GB18030" not in " ".join(report.format.evidence)


def test_rows_that_differ_by_seed_answer_or_tools_are_no_duplicates(tmp_path: Path) -> None:
    """127 of 128 rows of a game were called duplicates."""
    game = [{"messages": [USER], "env_config": {"name": "lake", "seed": n}} for n in range(128)]
    assert checked(tmp_path, lines(*game))[0].codes == {}
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    rows = [{"messages": [USER], "ground_truth": "1"}, {"messages": [USER], "ground_truth": "2"}]
    assert checked(tmp_path, lines(*rows, {"messages": [USER], "tools": [tool]}))[0].codes == {}
    same = [{"id": n, "messages": [USER], "extra_info": {"index": n, "answer": "4"}} for n in range(3)]
    assert checked(tmp_path, lines(*same))[0].codes == {"duplicate": 2}


def test_frozen_lake_has_no_duplicates(seed_data: Path, tmp_path: Path) -> None:
    report = check_file(seed_data / "seed2_multiturn_tools/ms_swift/frozen_lake.jsonl", tmp_path)
    assert report.rows == 128 and "duplicate" not in report.codes
