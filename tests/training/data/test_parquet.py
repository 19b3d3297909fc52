"""Parquet: conversations are read, bombs and odd types are refused."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest

from training.data.checking.runner import run_check
from training.data.files.parquet import decoded_cap, read_values, write_parquet
from training.data.problems import CheckLimits
from training.data.reader import load_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ASK = [{"role": "user", "content": "天气"}]


def written(tmp_path: Path, rows: list[dict[str, Any]], **over: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, **over), tmp_path / "upload")
    return tmp_path / "upload"


@pytest.mark.parametrize("key", ["conversation", "messages", "prompt"])
def test_a_conversation_column_is_read(tmp_path: Path, key: str) -> None:
    path = written(tmp_path, [{"id": i, key: ASK, "score": 0.5} for i in range(600)])
    report = run_check(path, tmp_path / "out")
    assert (report["verdict"], report["rows"], report["format"]["name"]) == ("ok", 600, "parquet")
    first = json.loads((tmp_path / "out" / "rows.jsonl").read_text().splitlines()[0])
    assert first == {"messages": ASK, "id": 0, "score": 0.5}
    assert load_rows(path)[599].raw["id"] == 599


def test_bad_rows_are_numbered(tmp_path: Path) -> None:
    rows = [
        {"messages": ASK, "x": 1.0, "when": None},
        {"messages": None, "x": 1.0, "when": None},
        {"messages": [], "x": 1.0, "when": None},
        {"messages": ASK, "x": float("nan"), "when": None},
        {"messages": ASK, "x": 1.0, "when": datetime.datetime(2026, 1, 1)},
        {"messages": [{"role": "user", "content": "a\0b"}], "x": 1.0, "when": None},
        {"messages": [{"role": "user", "content": "x" * 1_100_000}], "x": 1.0, "when": None},
    ]
    report = run_check(written(tmp_path, rows), tmp_path / "out")
    assert report["rows"] == 3 and [bad["line"] for bad in report["bad"]] == [2, 3, 6, 7]
    words = ["no conversation", "is empty", "NUL", "1 MB"]
    assert all(word in bad["reason"] for word, bad in zip(words, report["bad"], strict=True))
    assert [(each["column"], each["rows"]) for each in report["ignored"]] == [("x", 1), ("when", 1)]


def test_other_tables_are_refused(tmp_path: Path) -> None:
    report = run_check(written(tmp_path, [{"weather": "?"}]), tmp_path / "out")
    assert "no conversation column" in report["message"] and report["verdict"] == "rejected"
    report = run_check(written(tmp_path, [{"messages": ASK, **{f"c{i}": 1 for i in range(200)}}]), tmp_path / "out")
    assert "too many columns" in report["message"]
    path = written(tmp_path, [{"messages": ASK}] * 100)
    path.write_bytes(path.read_bytes()[:-200] + b"\0" * 196 + b"PAR1")
    assert "damaged" in run_check(path, tmp_path / "out")["message"]
    report = run_check(written(tmp_path, [{"messages": ASK}] * 30), tmp_path / "out", limits=CheckLimits(max_rows=20))
    assert "more than 20 rows" in report["message"]


def bomb(path: Path, *, chars: int, rows: int, groups: int, copies: int = 1) -> None:
    """A file whose dictionary holds one text; each row group repeats it ``rows * copies`` times."""
    message = [{"role": "user", "content": "x" * chars}]
    table = pa.table({"messages": pa.array([message * copies] * rows)})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)


def test_a_run_length_bomb_is_rejected_quickly(tmp_path: Path) -> None:
    bomb(tmp_path / "upload", chars=60_000, rows=1000, groups=8)
    size = (tmp_path / "upload").stat().st_size
    assert size < 1 << 20  # and 480 MB decoded
    start = time.monotonic()
    report = run_check(tmp_path / "upload", tmp_path / "out")
    assert time.monotonic() - start < 10
    assert report["verdict"] == "rejected" and not (tmp_path / "out" / "rows.jsonl").exists()
    assert f"decodes to more than {decoded_cap(size) >> 20} MB" in report["message"]


@pytest.mark.plain_start  # its memory is the subject, and a forked one has more modules
def test_one_row_too_large_for_memory_is_rejected(tmp_path: Path) -> None:
    bomb(tmp_path / "upload", chars=5000, rows=1, groups=1, copies=60_000)  # 300 MB in one row
    start = time.monotonic()
    report = run_check(tmp_path / "upload", tmp_path / "out", limits=CheckLimits(memory_bytes=500 << 20))
    assert time.monotonic() - start < 10
    assert report["verdict"] == "rejected"
    assert "memory" in report["message"] or "decodes to more than" in report["message"]


def test_many_empty_rows_stop_at_the_row_limit(tmp_path: Path) -> None:
    table = pa.table({"messages": pa.nulls(3_000_000, pa.list_(pa.struct({"role": pa.string()})))})
    pq.write_table(table, tmp_path / "upload", row_group_size=3_000_000)
    start = time.monotonic()
    report = run_check(tmp_path / "upload", tmp_path / "out", limits=CheckLimits(max_rows=1000))
    assert time.monotonic() - start < 10 and "more than 1000 rows" in report["message"]


def test_the_cap_grows_with_the_file_up_to_2_gb() -> None:
    assert decoded_cap(0) == 64 << 20
    assert decoded_cap(1 << 20) == 164 << 20
    assert decoded_cap(1 << 30) == 2 << 30


def test_an_empty_object_of_verl_is_written(tmp_path: Path) -> None:
    """Conversations without any other field: parquet has no empty objects."""
    rows = [{"prompt": [{"role": "user", "content": "a"}], "extra_info": {}, "more": {}}] * 2
    assert write_parquet(tmp_path / "p", lambda: rows) == 2
    read = [raw.value for raw in read_values(tmp_path / "p")]
    assert read == [rows[0] | {"extra_info": {"index": None}}] * 2
