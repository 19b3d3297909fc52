"""Several files as one dataset, files of a run, and rows that come back equal from every container."""

from __future__ import annotations

import csv
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

from tests.training.data.test_nothing_lost import USER, checked, lines
from training.data.files.parquet import write_parquet
from training.data.options import ReadOptions
from training.data.reader import RunFile, load_rows, open_dataset
from training.errors import DataError

ROOT = Path(__file__).resolve().parents[3]


def _zip(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name", ["../x.jsonl", "a/../../x.jsonl", "/x.jsonl", "a\\..\\x.jsonl", "C:\\x.jsonl", "c:/a/x.jsonl"]
)
def test_an_archive_with_a_path_outside_itself_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.zip"
    path.write_bytes(_zip(**{"good.jsonl": lines({"messages": [USER]}), name: b"{}"}))
    with pytest.raises(DataError, match="a path outside itself"), open_dataset(path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["rows.zip"]


def test_an_archive_with_a_link_or_a_password_is_refused(tmp_path: Path) -> None:
    path, linked = tmp_path / "rows.zip", zipfile.ZipInfo("rows.jsonl")
    linked.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(linked, "/etc/passwd")
    with pytest.raises(DataError, match="holds a link"), open_dataset(path):
        pass
    data = bytearray(_zip(**{"rows.jsonl": b"{}"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of the file, and of its entry in the list
        data[data.index(mark) + place] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="is encrypted"), open_dataset(path):
        pass


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
    assert report.format.evidence[1] == "1 other files in it are left out: data/test-0.jsonl."


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


def test_a_table_of_metrics_with_a_mapping_is_read(tmp_path: Path) -> None:
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
