"""Files of 1 GB, whole and broken at the beginning, the middle and the end, in measured memory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SIZE = 1 << 30
LIMIT_MIB = 512
CHECK = """
from training.data.checking.check import check_file
report = check_file(source, out)
found = [report.verdict, report.rows, report.bad_rows, [(bad.line, bad.code) for bad in report.bad]]
"""
CONVERT = """
from training.data.making import ConvertOptions, convert
done = convert(source, ConvertOptions(output=out / "rows.parquet", to="verl"))
found = ["ok" if not done.bad_rows else "bad_rows", done.rows, done.bad_rows, []]
"""
READ = """
from training.data.checking.check import check_file
report = check_file(source, out)
found = [report.verdict, report.rows, report.bad_rows, report.message]
"""
AROUND = """
import json, sys
from pathlib import Path
source, out = Path(sys.argv[1]), Path(sys.argv[2])
{}
print(json.dumps([*found, Path("/proc/self/status").read_text()]))
"""


def line_of(number: int) -> bytes:
    """A row of 1,200 bytes, so that a file of 1 GB has fewer than a million."""
    row = {"messages": [{"role": "user", "content": f"Row {number:07d}. "}, {"role": "assistant", "content": "yes"}]}
    room = 1199 - len(json.dumps(row))
    row["messages"][0]["content"] += "rain in the town by the river. "[:31] * 40
    row["messages"][0]["content"] = row["messages"][0]["content"][: room + 14]
    return json.dumps(row).encode() + b"\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The file and how many rows it has; deleted at the end."""
    folder = tmp_path_factory.mktemp("large")
    if shutil.disk_usage(folder).free < 6 * SIZE:
        pytest.skip("needs 6 GB of disk")
    path, count, size = folder / "rows.jsonl", 0, 0
    with path.open("wb") as file:
        while size < SIZE:
            size += file.write(line_of(count))
            count += 1
    try:
        yield path, count
    finally:
        shutil.rmtree(folder)


def run(program: str, source: Path, out: Path) -> list[Any]:
    """What a program found in a process of its own, with its peak memory in MiB at the end."""
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", AROUND.format(program), str(source), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-2000:]
    *found, status = json.loads(done.stdout)
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    mib = int(peak[1]) / 1024
    print(f"{source.name}: {found[:3]}, {mib:.0f} MiB at most")
    return [*found, mib]


@pytest.mark.parametrize("place", [None, 0.0, 0.5, 1.0])
def test_a_check_of_1_gb(large: tuple[Path, int], tmp_path: Path, place: float | None) -> None:
    path, count = large
    size = len(line_of(0))
    at = None if place is None else min(count - 1, int(count * place))
    before = b""
    if at is not None:  # the end of a row and the beginning of the next are lost: what a broken copy leaves
        with path.open("r+b") as file:
            file.seek(at * size + size // 2)
            before = file.read(size)
            file.seek(at * size + size // 2)
            file.write(b"\xff" * len(before)) if at < count - 1 else file.truncate(at * size + size // 2)
    try:
        verdict, rows, bad, listed, mib = run(CHECK, path, tmp_path / "out")
    finally:
        if at is not None:
            with path.open("r+b") as file:
                file.seek(at * size + size // 2)
                file.write(before)
        shutil.rmtree(tmp_path / "out")
    assert mib <= LIMIT_MIB
    if at is None:
        assert (verdict, rows, bad) == ("ok", count, 0)
    elif at == count - 1:
        assert (verdict, rows, bad, listed) == ("bad_rows", count - 1, 1, [[count, "cut_off"]])
    else:  # two rows became one line
        assert (verdict, rows, bad, listed) == ("bad_rows", count - 2, 1, [[at + 1, "utf8"]])


def test_verl_parquet_of_1_gb_is_written_and_read_again(large: tuple[Path, int], tmp_path: Path) -> None:
    path, count = large
    verdict, rows, _bad, _listed, mib = run(CONVERT, path, tmp_path / "out")
    assert (verdict, rows) == ("ok", count) and mib <= LIMIT_MIB
    verdict, rows, _bad, message, mib = run(READ, tmp_path / "out" / "rows.parquet", tmp_path / "again")
    assert (verdict, rows) == ("ok", count), message
    assert mib <= LIMIT_MIB
