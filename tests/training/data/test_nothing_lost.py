"""What a file holds is in its rows or in the report: columns, common spellings, containers, encodings, duplicates."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.training.data.test_faults import ROWS, WAYS
from training.data.__main__ import main
from training.data.checking.check import check_file
from training.data.checking.report import Report
from training.data.files.parquet_writer import write_parquet
from training.data.formats import FORMATS
from training.data.options import ReadOptions
from training.data.reader import load_rows, open_dataset
from training.data.run_files import RunFile
from training.errors import DataError

ROOT = Path(__file__).resolve().parents[3]
USER, SAYS = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def checked(folder: Path, data: bytes, **options: Any) -> tuple[Report, list[dict[str, Any]]]:
    """The report of a file and the rows that were kept."""
    (folder / "in").write_bytes(data)
    report = check_file(folder / "in", folder, **options)
    kept = folder / "rows.jsonl"
    return report, [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def said(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in row["messages"]]


def test_a_sharegpt_system_column_is_the_first_message(tmp_path: Path) -> None:
    row = {"system": "S", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    report, rows = checked(tmp_path, lines(row))
    assert said(rows[0]) == [("system", "S"), ("user", "q"), ("assistant", "a")] and "system" not in report.columns
    assert any("1 rows have a system text in a column of its own" in text for text in report.format.evidence)
    write = FORMATS["sharegpt"].write
    assert write is not None and write(load_rows(tmp_path / "in")[0]) == row


def test_two_system_texts_are_both_kept(tmp_path: Path) -> None:
    report, rows = checked(tmp_path, lines({"messages": [{"role": "system", "content": "A"}, USER], "system": "B"}))
    assert said(rows[0]) == [("system", "A"), ("user", "q")] and rows[0]["system"] == "B"
    assert any("another text in a system column" in text for text in report.format.evidence)


def test_alpaca_keeps_input_history_and_system(tmp_path: Path) -> None:
    """Rows that differ by input only were told to be duplicates, and the input was in no message."""
    row = {"instruction": "Translate.", "output": "Hello", "system": "S", "history": [["one", "eins"]]}
    report, rows = checked(tmp_path, lines(row | {"input": "Hallo"}, row | {"input": "Guten Tag"}))
    assert report.format.rows == "alpaca" and report.codes == {}
    assert said(rows[1]) == [
        ("system", "S"),
        ("user", "one"),
        ("assistant", "eins"),
        ("user", "Translate.\nGuten Tag"),
    ]
    assert rows[1]["ground_truth"] == "Hello"
    _report, rows = checked(tmp_path, lines(row | {"input": ""}), reading=ReadOptions(shape="sft"))
    assert said(rows[0])[-2:] == [("user", "Translate."), ("assistant", "Hello")]


def test_mapped_tables_take_input_and_history(tmp_path: Path) -> None:
    row = {"query": "q", "response": "r", "history": [["a", "b"]], "input": "i"}
    _report, rows = checked(tmp_path, lines(row))
    assert said(rows[0]) == [("user", "a"), ("assistant", "b"), ("user", "q\ni")]
    report, rows = checked(tmp_path, lines(row | {"history": [["a"]]}))
    assert report.bad[0].reason.endswith("`history` is not a list of questions with their answers")


def test_an_answer_does_not_overwrite_a_ground_truth(tmp_path: Path) -> None:
    _report, rows = checked(tmp_path, lines({"question": "q", "answer": "long", "ground_truth": "4"}))
    assert (rows[0]["ground_truth"], rows[0]["answer"]) == ("4", "long")


def test_trl_completions_are_turns(tmp_path: Path) -> None:
    row = {"prompt": [USER], "completion": [SAYS, USER, SAYS], "id": 3}
    report, rows = checked(tmp_path, lines(row))
    assert [role for role, _text in said(rows[0])] == ["user", "assistant", "user", "assistant"]
    assert "completion" not in report.columns and rows[0]["id"] == 3
    write = FORMATS["conversation"].write
    assert write is not None and write(load_rows(tmp_path / "in")[0]) == row
    _report, rows = checked(tmp_path, lines({"prompt": [USER], "completion": [SAYS], "label": False}))
    assert said(rows[0]) == [("user", "q")] and rows[0]["completion"] == [SAYS]


def test_content_parts_are_one_text_and_pictures_are_refused(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}]
    picture = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    report, rows = checked(
        tmp_path,
        lines({"messages": [{"role": "user", "content": parts}]}, {"messages": [{"role": "user", "content": picture}]}),
    )
    assert said(rows[0]) == [("user", "Look here")] and report.rows == 1
    assert report.bad[0].reason == "message 1 has a part of type 'image_url'; only parts of text can be trained on"


def test_calls_before_tool_calls_came_are_calls(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}
    _report, rows = checked(tmp_path, lines({"messages": [USER, call]}))
    assert rows[0]["messages"][1]["tool_calls"] == [{"id": "call_2", "name": "f", "arguments": {"x": 1}}]


def test_preference_pairs_are_kept_and_told(tmp_path: Path) -> None:
    with_prompt = {"prompt": [USER], "chosen": [SAYS], "rejected": [{"role": "assistant", "content": "b"}]}
    implicit = {name: [USER, *with_prompt[name]] for name in ("chosen", "rejected")}
    texts = {name: f"\n\nHuman: q\n\nAssistant: {name}" for name in ("chosen", "rejected")}
    report, rows = checked(tmp_path, lines(with_prompt, implicit, texts))
    assert [said(row) for row in rows] == [[("user", "q")]] * 3
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
    assert said(rows[0]) == [("system", "S"), ("user", "2+2?"), ("assistant", ""), ("tool", "4")]
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
    """Bytes, decimals, dates and NaN in a column that nobody needs refused every row of the file."""
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
    assert [said(row) for row in rows] == [[("user", "hello")], [("user", "you, too")]]


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
    assert report.rows == 2 and said(rows[0]) == [("user", "今天天气怎么样？")] and rows[1]["answer"] == "二"
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
    """127 of 128 rows of a game were told to be duplicates."""
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


def _zip(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_a_zip_archive_is_one_dataset(tmp_path: Path) -> None:
    ten, two = lines({"messages": [USER], "n": 10}), lines({"messages": [USER], "n": 2}, {"messages": 5})
    data = _zip(
        **{"d/part-10.jsonl": ten, "d/part-2.jsonl": two, "README.md": b"hi", "more.jsonl.gz": gzip.compress(ten)}
    )
    report, rows = checked(tmp_path, data)
    assert [row["n"] for row in rows] == [2, 10, 10] and report.bad_rows == 1
    assert (report.bad[0].line, report.bad[0].reason) == (2, "`messages` is a number, not a list of messages")
    assert "3 files follow each other" in report.format.evidence[0] and "README.md" in report.format.evidence[1]


def test_a_part_for_tests_is_not_mixed_into_the_rows(tmp_path: Path) -> None:
    train, test = lines({"messages": [USER], "n": 1}), lines({"messages": [USER], "n": 2})
    report, rows = checked(tmp_path, _zip(**{"data/train-0.jsonl": train, "data/test-0.jsonl": test}))
    assert [row["n"] for row in rows] == [1]
    assert report.format.evidence[1] == "1 other files of it are left out: data/test-0.jsonl."


def test_what_is_wrong_in_a_file_of_many_names_it(tmp_path: Path) -> None:
    good = lines({"messages": [USER]})
    report, _rows = checked(tmp_path, _zip(**{"a.jsonl": good, "b.jsonl": good + b'{"messages": \n'}))
    assert report.bad[0].line == 3 and report.bad[0].reason.startswith("b.jsonl:2: not valid JSON")
    report, _rows = checked(tmp_path, _zip(**{"a.jsonl": good, "b.parquet": b"PAR1" + good}))
    assert report.verdict == "rejected" and report.message.startswith("b.parquet: The parquet file is damaged")
    report, _rows = checked(tmp_path, _zip(**{"[Content_Types].xml": b"<x/>", "xl/sheet.xml": b"<x/>"}))
    assert "Office document" in report.message and "Save the table as CSV" in report.message


def check(output: Path, *inputs: str) -> None:
    """The command line's check, in a process of its own because it limits itself."""
    words = [sys.executable, "-m", "training", "data", "check", "--input", *inputs, "--output-dir", str(output)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_several_files_and_a_folder_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.jsonl", "a.jsonl"):
        (tmp_path / "in" / name).write_bytes(lines({"messages": [USER], "n": name}))
    files = [str(tmp_path / "in" / name) for name in ("b.jsonl", "a.jsonl")]
    check(tmp_path / "out", *files)
    rows = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["n"] for row in rows] == ["b.jsonl", "a.jsonl"]
    check(tmp_path / "out", str(tmp_path / "in"))
    rows = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["n"] for row in rows] == ["a.jsonl", "b.jsonl"]
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a.jsonl", "b.jsonl"]


RUN_FILES: dict[str, bytes] = {
    "a rollout dump": lines({"input": "q", "output": "a", "score": 1.0, "step": 1}),
    "a table of metrics": b"step,reward,loss\n1,0.5,\n2,0.75,0.1\n",
    "the trainer state": json.dumps({"global_step": 2, "log_history": [{"step": 1, "loss": 0.5}]}, indent=2).encode(),
    "a console log": b"INFO starting\nstep:1 - critic/score/mean:0.5 - actor/entropy:0.6\n",
    "a TensorBoard file": b'\x18\0\0\0\0\0\0\0\xa3\x7fK"\t\0\0\xc0%\xdd\x1b\xd6A\x1a\rbrain.Event:2\xec\xa5',
}


@pytest.mark.parametrize("what", RUN_FILES)
def test_a_file_of_a_run_leads_to_the_import(tmp_path: Path, what: str) -> None:
    report, _rows = checked(tmp_path, RUN_FILES[what], ask="unsure")
    assert (report.verdict, report.link) == ("rejected", "import_run")
    why = f"This is {what} of a run, not a dataset."
    assert report.message == f"{why} Import it as a run: its curves and rollouts are shown there."
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path / "in")
    assert isinstance(caught.value, RunFile) and caught.value.code == "run_file"


def test_a_table_of_metrics_that_somebody_maps_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(RUN_FILES["a rollout dump"])
    options = ReadOptions.model_validate({"mapping": {"prompt": "input", "answer": "output"}})
    assert [record.row is not None for record in open_dataset(tmp_path / "in", options).records()] == [True]


_text = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=20)
_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_turn = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": _text})
_row = st.fixed_dictionaries(
    {"messages": st.lists(_turn, min_size=1, max_size=4)}, optional={"note": _text, "x": _value, "tags": _value}
)


def _stored(folder: Path, container: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / container
    each = [json.dumps(row, ensure_ascii=False, indent=2) for row in rows]
    if container == "parquet":
        write_parquet(path, lambda: rows)
        return path
    data = {
        "jsonl": lines(*rows),
        "list": ("[" + ",\n".join(each) + "]").encode(),
        "objects": "\n".join(each).encode(),
        "wrapper": json.dumps({"data": rows}, ensure_ascii=False).encode(),
        "gzip": gzip.compress(lines(*rows)),
        "zip": _zip(**{"rows.jsonl": lines(*rows)}),
    }[container]
    path.write_bytes(data)
    return path


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(_row, min_size=1, max_size=4))
def test_rows_come_back_equal_from_every_container(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    for container in ("jsonl", "list", "objects", "wrapper", "gzip", "zip", "parquet"):
        read = [row.normal() for row in load_rows(_stored(tmp_path, container, rows))]
        wanted = rows
        if container == "parquet":  # a table has one set of columns: what a row lacks is null there
            columns = {name for row in rows for name in row}
            wanted = [{name: row.get(name) for name in columns} for row in rows]
        assert read == wanted, container


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(_text, _text), min_size=1, max_size=5), encoding=st.sampled_from(["utf-8", "utf-8-sig"]))
def test_rows_come_back_equal_from_a_table(tmp_path: Path, rows: list[tuple[str, str]], encoding: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("ask", "tell"), *rows])
    (tmp_path / "t.csv").write_bytes(buffer.getvalue().encode(encoding))
    options = ReadOptions.model_validate({"mapping": {"prompt": "ask"}})
    read = [record.row for record in open_dataset(tmp_path / "t.csv", options).records()]
    assert [(row.extra["ask"], row.extra["tell"]) for row in read if row] == rows
