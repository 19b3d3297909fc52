"""Every reader against every fault: a clear sentence with its line; rows in are rows kept and rows listed as bad."""

from __future__ import annotations

import csv
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from training.data.checking.check import check_file
from training.data.checking.report import Report
from training.data.files.parquet import write_parquet
from training.data.formats import FORMATS
from training.data.options import ReadOptions
from training.data.problems import MAX_FIELD_BYTES

USER = {"role": "user", "content": "hi"}
ROWS: dict[str, dict[str, Any]] = {
    "conversation": {"conversation": [USER], "n": 1},
    "openai": {
        "messages": [USER, {"role": "assistant", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    },
    "sharegpt": {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "a"}]},
    "swift": {"messages": [USER, {"role": "tool_call", "content": '{"name": "f", "arguments": {}}'}], "tools": "[]"},
    "verl": {"data_source": "x", "prompt": [USER], "reward_model": {"ground_truth": "1"}, "extra_info": {"i": 1}},
    "toolbench": {
        "id": "Step 1",
        "conversations": [
            {"from": "system", "value": "You are AutoGPT, access to the following APIs: []"},
            {"from": "user", "value": "q"},
        ],
    },
    "toolbench_queries": {"query_id": 1, "query": "q", "api_list": [{"tool_name": "t"}]},
    "bfcl": {"id": "multi_turn_base_1", "question": [[USER]], "initial_config": {}, "involved_classes": ["MathAPI"]},
    "agentgym": {"item_id": "webshop_1", "conversations": [{"from": "human", "loss": None, "value": "hi"}]},
    "gsm8k": {"question": "1 + 1?", "answer": "2 #### 2"},
    "alpaca": {"instruction": "hi", "input": "", "output": "a"},
    "preference": {"prompt": "hi", "chosen": "a", "rejected": "b"},
    "nemo_gym": {"responses_create_params": {"input": [USER]}, "expected_answer": "1"},
    "marked": {"prompt": "<|im_start|>user\nhi<|im_end|>\n", "n": 1},
    "toolbench_answers": {"answer_generation": {"query": "q", "train_messages": [[USER]]}, "win": True},
    "columns": {"ask": "hi", "tell": "a"},
}
KEYS = {"conversation", "messages", "conversations", "prompt", "query", "question", "ask", "instruction"}
KEYS |= {"responses_create_params", "answer_generation"}
MAIN = {name: next(key for key, value in row.items() if key in KEYS and value) for name, row in ROWS.items()}
WAYS: dict[str, ReadOptions] = {
    name: ReadOptions.model_validate(
        {"format": name} | ({"mapping": {"prompt": "ask", "answer": "tell"}} if name == "columns" else {})
    )
    for name in ROWS
}
Fault = Callable[[bytes], bytes]


def _with(tail: bytes) -> Fault:
    """The row with one field more."""
    return lambda row: row[:-1] + b', "x": ' + tail + b"}"


ROW_FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "truncated": (lambda row: row[: len(row) // 2], {"json", "list_cut_off"}),
    "wrong_encoding": (_with(b'"' + "天".encode("gb18030") + b'"'), {"utf8", "utf8_row"}),
    "deep": (_with(b'1, "target": ' + b"[" * 40 + b"]" * 40), {"deep"}),
    "deeper": (_with(b"[" * 10_000 + b"]" * 10_000), {"deep"}),
    "unclosed_deep": (_with(b"[" * 10_000), {"deep", "json", "list_cut_off"}),
    "long_field": (_with(b'"' + b"y" * (2 << 20) + b'"'), {"field_long"}),
    "nan": (_with(b'1, "target": NaN'), {"constant"}),
    "infinity": (_with(b'1, "target": -Infinity'), {"constant"}),
    "overflow": (_with(b"1e999"), {"number_large"}),
    "digits": (_with(b"9" * 5000), {"digits"}),
    "nul_byte": (_with(b'"a\0b"'), {"nul_byte", "nul", "json"}),
    "nul": (_with(b'"a\\u0000b"'), {"nul"}),
    "surrogate": (_with(b'"\\ud83d"'), {"surrogate"}),
    "encoded_surrogate": (_with(b'"\xed\xa0\xbd"'), {"utf8", "utf8_row"}),
    "twice": (_with(b'1, "x": 2'), {"key_twice"}),
    "list": (lambda row: b"[" + row + b"]", {"not_object", "item_not_object"}),
    "text": (lambda _row: b'"hi"', {"not_object", "item_not_object"}),
    "null": (lambda _row: b"null", {"not_object", "item_not_object"}),
    "empty_object": (lambda _row: b"{}", {"no_conversation", "shape"}),
}


def checked(folder: Path, data: bytes, options: ReadOptions | None = None) -> Report:
    """The report of a check in this process, its sums checked."""
    (folder / "in").write_bytes(data)
    report = check_file(folder / "in", folder, reading=options)
    out = folder / "rows.jsonl"
    kept = out.read_bytes().count(b"\n") if out.exists() else 0
    assert report.rows == kept and report.bad_rows == len(report.bad)
    assert all(20 < len(bad.reason + bad.suggestion) <= 500 and bad.line > 0 for bad in report.bad)
    return report


def broken(name: str, fault: str, row: bytes) -> tuple[bytes, set[str]]:
    if fault == "wrong_type":
        value = json.loads(row) | {MAIN[name]: 7}
        return json.dumps(value).encode(), {"conversation_type", "shape", "text_type", "content_type"}
    change, codes = ROW_FAULTS[fault]
    return change(row), codes


def test_every_reader_is_in_the_table() -> None:
    assert set(ROWS) == set(FORMATS)


@pytest.mark.parametrize(
    ("container", "name"), [*(("jsonl", name) for name in ROWS), *(("json", name) for name in ("conversation", "verl"))]
)
def test_one_broken_row_is_listed_and_the_others_are_kept(tmp_path: Path, name: str, container: str) -> None:
    """Each fault between two good rows; of a list, a bracket that never closes takes what follows with it."""
    row = json.dumps(ROWS[name]).encode()
    for fault in [*ROW_FAULTS, "wrong_type"]:
        bad, codes = broken(name, fault, row)
        is_lines = container == "jsonl"
        data = b"\n".join([row, bad, row]) + b"\n" if is_lines else b"[" + b",\n".join([row, bad, row]) + b"]"
        report = checked(tmp_path, data, WAYS[name])
        assert report.bad[0].line == 2 and report.bad[0].code in codes, (fault, report.bad)
        if is_lines or fault not in ("truncated", "unclosed_deep"):
            assert (report.rows, report.bad_rows, report.verdict) == (2, 1, "bad_rows"), (fault, report)
        else:
            assert report.rows >= 1 and report.verdict == "bad_rows", (fault, report)


@pytest.mark.parametrize("name", ROWS)
def test_how_a_file_is_written_changes_no_row(tmp_path: Path, name: str) -> None:
    """BOM, CRLF, empty lines, no line end at the end, rows of 2 MB; and a file that ends in the middle."""
    row = json.dumps(ROWS[name]).encode()
    large = row[:-1] + b', "x": [' + b", ".join([b'"%s"' % (b"y" * 1000)] * 2000) + b"]}"
    three = b"\n".join([row, row, row])
    for data in (
        three,
        b"\xef\xbb\xbf" + three,
        three.replace(b"\n", b"\r\n"),
        three.replace(b"\n", b"\n\r\n \n"),
        b"\n".join([row, large, row]),
        b"\xef\xbb\xbf[" + three.replace(b"\n", b",\r\n") + b"]\r\n",
    ):
        report = checked(tmp_path, data, WAYS[name])
        assert (report.rows, report.bad_rows) == (3, 0), report.bad
    for data, code in ((three[:-9], "cut_off"), (b"[" + three.replace(b"\n", b","), "list_cut_off")):
        report = checked(tmp_path, data, WAYS[name])
        assert report.bad[-1].code == code and report.rows + report.bad_rows >= 3 and report.rows >= 2


@pytest.mark.parametrize("name", ["conversation", "verl", "columns"])
def test_what_is_no_text_is_refused_whole(tmp_path: Path, name: str) -> None:
    data = (json.dumps(ROWS[name]) + "\n").encode() * 3
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.jsonl", b"\0" * (20 << 20))
    for whole, words in (
        (data.decode().encode("utf-16"), "UTF-16"),
        (bomb.getvalue(), "rows.jsonl: The file is binary: byte 0 is NUL"),
        (b"\0" + data, "binary: byte 0"),
        (b"PAR1" + data, "damaged"),
        (b"", "empty"),
    ):
        report = checked(tmp_path, whole, WAYS[name])
        assert (report.verdict, report.rows) == ("rejected", 0) and words in report.message


@pytest.mark.parametrize("name", ["conversation", "verl", "columns"])
def test_parquet_that_is_hostile(tmp_path: Path, name: str) -> None:
    """Texts that PostgreSQL cannot store, fields above the limit, and a few kB that decode to gigabytes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [ROWS[name] | {"note": text} for text in ("a", "b\0c", "d")]
    write_parquet(tmp_path / "p", lambda: rows)
    report = checked(tmp_path, (tmp_path / "p").read_bytes(), WAYS[name])
    assert [(bad.line, bad.code) for bad in report.bad] == [(2, "nul")] and report.rows == 2
    pq.write_table(pa.table({"x": [float("nan"), float("inf")]}), tmp_path / "p")
    report = checked(tmp_path, (tmp_path / "p").read_bytes(), WAYS[name])
    assert report.rows == 0 and {bad.code for bad in report.bad} <= {"no_conversation", "shape"}
    assert [(each.column, each.rows) for each in report.ignored] == [("x", 2)]
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["y" * (1 << 20)]))
    pq.write_table(pa.table({"x": text}), tmp_path / "p")
    assert (tmp_path / "p").stat().st_size < 2 << 20
    report = checked(tmp_path, (tmp_path / "p").read_bytes(), WAYS[name])
    assert report.verdict == "rejected" and "far more than its size allows" in report.message


_cell = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\0", "a\0b", "NaN", " ", "\ufeff"]
)
_table = st.lists(st.lists(_cell, min_size=3, max_size=3), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=_table, delimiter=st.sampled_from([",", ";", "\t"]), cut=st.integers(0, 40), seed=st.integers(0, 99))
@example(table=[["", "y" * (MAX_FIELD_BYTES + 1), "\n"], ["a", "b", "c"]], delimiter=",", cut=0, seed=0)
def test_any_table_keeps_or_lists_every_row(
    tmp_path: Path, table: list[list[str]], delimiter: str, cut: int, seed: int
) -> None:
    """A quoted table comes back with the same values; one that is cut or has a stray byte loses no row in silence."""
    options = ReadOptions.model_validate({"mapping": {"prompt": "ask", "answer": "tell"}})
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["ask", "tell", "more"], *table])
    whole = buffer.getvalue().encode()
    report = checked(tmp_path, whole, options)
    assert report.rows + report.bad_rows == len(table), (table, report)
    good = [row for row in table if not any("\0" in cell or len(cell.encode()) > MAX_FIELD_BYTES for cell in row)]
    good = [row for row in good if row[0]]
    out = tmp_path / "rows.jsonl"
    read = [json.loads(line) for line in out.read_text().split("\n")[:-1]] if report.rows else []
    same = [[row["messages"][0]["content"], row["tell"], row["more"]] for row in read]
    assert [row for row in same if row[0]] == good
    at = random.Random(seed).randrange(len(whole))
    for data in (whole[: len(whole) - cut], whole[:at] + b"\xff" + whole[at:]):
        report = checked(tmp_path, data, options)
        assert report.rows + report.bad_rows > 0 or report.message
