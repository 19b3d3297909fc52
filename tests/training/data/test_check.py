"""Every hostile file ends quickly in a report with file, line and reason; good ones come out whole."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from training.data.checking.check import Progress, check_file
from training.data.checking.report import estimate_tokens, length_histogram
from training.data.checking.runner import run_check
from training.data.problems import CheckLimits
from training.errors import DataError

from .hostile import GOOD, corpus, row

CORPUS = corpus()
SEED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_seed_data = pytest.mark.skipif(not SEED_DATA.is_dir(), reason=f"the real data of the seeds is not at {SEED_DATA}")


def checked(tmp_path: Path, data: bytes, **over: Any) -> dict[str, Any]:
    """The report of a check in a child process."""
    source = tmp_path / "upload"
    source.write_bytes(data)
    return run_check(source, tmp_path / "out", **over)


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 60


@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_file_ends_with_line_and_reason(tmp_path: Path, name: str) -> None:
    made, line, words = CORPUS[name]
    data = made() if callable(made) else made
    start = sum(os.times()[:4])
    report = checked(tmp_path, data)
    assert sum(os.times()[:4]) - start < 10, "seconds of processors"
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["sha256"] == hashlib.sha256(data).hexdigest() and report["bytes"] == len(data)
    if report["verdict"] == "bad_rows":
        assert words in report["bad"][0]["reason"]
        assert [bad["line"] for bad in report["bad"]] == [line]
        good = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
        assert len(good) == report["rows"] == data.count(b"\n", 0, -1) or name in ("last_line_cut",)
    else:
        assert report["verdict"] == "rejected" and words in report["message"]
        assert not (tmp_path / "out" / "rows.jsonl").exists()
        assert line is None or report["bad"][0]["line"] == line
    assert all(len(bad["reason"]) <= 200 for bad in report["bad"]) and len(report["bad"]) <= 100
    assert len(report["message"]) <= 300


def test_a_good_file_comes_out_normalised(tmp_path: Path) -> None:
    lines = [
        '{"z": 1, "conversation": [{"role": "user", "content": "天气"}, {"role": "tool_result", "content": "晴"}]}',
        '{"messages": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "\\ud83d\\ude00"}], "b": {"y": 1}}',
    ]
    seen: list[Progress] = []
    report = checked(tmp_path, ("\ufeff" + "\r\n\r\n".join(lines)).encode(), on_progress=seen.append, preview=1)
    assert (report["verdict"], report["rows"], report["bad_rows"]) == ("ok", 2, 0)
    assert (tmp_path / "out" / "rows.jsonl").read_text().splitlines() == [
        '{"messages": [{"role": "user", "content": "天气"}, {"role": "tool", "content": "晴"}], "z": 1}',
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "😀"}], "b": {"y": 1}}',
    ]
    assert report["columns"] == {"z": 1, "b": 1}
    assert report["roles"] == {"user": 2, "tool": 1, "assistant": 1}
    assert report["turns"] == {"2": 2} and len(report["preview"]) == 1
    assert report["length"] == {
        "unit": "tokens (estimated)",
        "edges": [2, 3, 4],
        "counts": [1, 1],
        "p50": 2,
        "p95": 3,
        "max": 3,
    }
    assert report["format"]["name"] == "jsonl" and any("CRLF" in text for text in report["format"]["evidence"])
    total = (tmp_path / "upload").stat().st_size
    assert seen[-1] == Progress(bytes=total, total=total, rows=2, bad=0)


def test_too_many_rows_are_refused_and_bad_ones_listed_up_to_100(tmp_path: Path) -> None:
    report = checked(tmp_path, (GOOD + b"\n") * 12, limits=CheckLimits(max_rows=10))
    assert report["verdict"] == "rejected" and "more than 10 rows" in report["message"]
    report = checked(tmp_path, b"bad\n" * 150 + GOOD)
    assert report["bad_rows"] == 150 and len(report["bad"]) == 100 and report["rows"] == 1
    assert report["message"] == "1 of 151 rows can be used; 150 are left out."


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "missing", tmp_path / "pipe", Path("/dev/zero")):
        report = run_check(source, tmp_path / "out", limits=CheckLimits(wall_s=10))
        assert report["verdict"] == "rejected"
        assert "not a regular file" in report["message"] or "cannot be opened" in report["message"]
    (tmp_path / "empty").mkdir()
    assert "The folder holds no" in run_check(tmp_path / "empty", tmp_path / "out")["message"]


def test_the_preview_is_short(tmp_path: Path) -> None:
    report = checked(tmp_path, row([{"role": "user", "content": "x" * 60_000}], tags=list(range(1000))))
    shown = report["preview"][0]
    assert len(shown["messages"][0]["content"]) == 501 and len(shown["tags"]) == 50


def test_a_hung_check_is_killed_and_explained(tmp_path: Path) -> None:
    report = checked(tmp_path, (GOOD + b"\n") * 500_000, limits=CheckLimits(wall_s=0.5))
    assert report["verdict"] == "rejected" and "longer than 0.5 seconds" in report["message"]
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
    assert not (tmp_path / "out" / "rows.jsonl").exists()


def test_a_check_out_of_processor_time_is_explained(tmp_path: Path) -> None:
    report = checked(tmp_path, (GOOD + b"\n") * 500_000, limits=CheckLimits(cpu_s=1))
    assert report["verdict"] == "rejected" and "more than 1 seconds of processor time" in report["message"]


@pytest.mark.plain_start  # its memory is the subject, and a forked one has more modules
def test_a_check_out_of_memory_is_explained(tmp_path: Path) -> None:
    data = GOOD[:-1] + b', "x": [' + b",".join([b"[]"] * 1_200_000) + b"]}"
    report = checked(tmp_path, data, limits=CheckLimits(memory_bytes=90 << 20))
    assert report["verdict"] == "rejected" and "memory" in report["message"]
    assert "memory" not in checked(tmp_path, data)["message"]


def test_a_failing_listener_stops_the_child(tmp_path: Path) -> None:
    def fail(_: Progress) -> None:
        raise RuntimeError("listener")

    start = time.monotonic()
    with pytest.raises(RuntimeError, match="listener"):
        checked(tmp_path, (GOOD + b"\n") * 500_000, on_progress=fail)
    assert time.monotonic() - start < 5


def test_the_command_line_prints_progress_and_exits_0_or_2(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / "empty").write_bytes(b"")
    for name, code in (("good", 0), ("empty", 2), ("absent", 2)):
        command = [sys.executable, "-m", "training.data", "check", "--input", str(tmp_path / name)]
        done = subprocess.run(
            [*command, "--output-dir", str(tmp_path / "out")], capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == code, done.stderr
        assert json.loads((tmp_path / "out" / "report.json").read_text())["verdict"] == ("rejected" if code else "ok")
    assert json.loads((done.stdout or '{"rows": 0}').splitlines()[-1])["rows"] == 0


def test_the_child_sees_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.children import bare_env

    monkeypatch.setenv("SECRET_KEY", "canary")
    assert set(bare_env()) == {"PATH", "LANG", "PYTHONPATH"}


def test_token_estimate() -> None:
    assert [estimate_tokens(text) for text in ("", "abcd", "abcde", "你好", "你好ab", "é" * 4)] == [0, 1, 2, 2, 3, 2]


def test_length_histogram_covers_every_length() -> None:
    from array import array

    found = length_histogram(array("I", [0, 15, 16, 31, 32, 100]), "tokens")
    assert found.edges == [0, 16, 32, 64, 128] and found.counts == [2, 2, 1, 1] and found.max == 100


def test_lengths_by_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers

    made = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    data = row([{"role": "user", "content": "a a a a a"}])
    assert checked(tmp_path, data, tokenizer=tmp_path)["length"]["max"] == 5
    (tmp_path / "tokenizer.json").write_text("{")
    report = checked(tmp_path, data, tokenizer=tmp_path)
    assert report["verdict"] == "ok" and report["length"]["unit"] == "tokens (estimated)"
    assert any("tokenizer.json cannot be read" in text for text in report["format"]["evidence"])


def test_results_that_cannot_be_written_are_the_callers_error(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(GOOD)
    with pytest.raises(OSError):
        check_file(tmp_path / "in", tmp_path / "absent")


@needs_seed_data
@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("seed2_multiturn_tools/huangweiding_demo/multiturn_with_toolcall_sample_data.jsonl", 15),
        ("seed2_multiturn_tools/huangweiding_demo/multi_turn_grpo_sample_data.jsonl", 3),
        ("seed2_multiturn_tools/ms_swift/agent_format_doc_samples.jsonl", 2),
        ("seed2_multiturn_tools/ms_swift/frozen_lake.jsonl", 128),
        ("seed2_multiturn_tools/verl_gsm8k_multiturn/w_tool_32.jsonl", 32),
        ("seed2_multiturn_tools/verl_gsm8k_multiturn/w_interaction_32.jsonl", 32),
        ("seed1_envtuning_bfcl/bfcl_val.parquet", 100),
    ],
)
def test_the_seeds_own_files_are_read(tmp_path: Path, path: str, rows: int) -> None:
    from training.data.reader import load_rows

    report = run_check(SEED_DATA / path, tmp_path)
    assert (report["verdict"], report["rows"]) == ("ok", rows), report["message"]
    loaded, again = load_rows(SEED_DATA / path), load_rows(tmp_path / "rows.jsonl")
    assert [r.messages for r in loaded] == [r.messages for r in again] and len(again) == rows
    assert [r.extra for r in loaded] == [r.extra for r in again]


@pytest.mark.slow
def test_a_large_file_streams_in_constant_memory(tmp_path: Path) -> None:
    """100 MB with bad lines at the beginning, the middle and the end, in 300 MB of address space."""
    line = row([{"role": "user", "content": "天气 weather " * 40}], number=1) + b"\n"
    half = (50 << 20) // len(line)
    with open(tmp_path / "upload", "wb") as file:
        for part in (b"bad\n", line * half, b"bad\n", line * half, b"bad"):
            file.write(part)
    report = run_check(tmp_path / "upload", tmp_path / "out", limits=CheckLimits(memory_bytes=300 << 20))
    assert report["rows"] == 2 * half
    assert [bad["line"] for bad in report["bad"]] == [1, half + 2, 2 * half + 3]


def test_load_rows_names_the_first_bad_line(tmp_path: Path) -> None:
    from training.data.reader import load_rows

    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD + b"\n\nbad\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 3: not valid JSON"):
        load_rows(path)
    assert len(load_rows(path, max_rows=1)) == 1
    path.write_bytes(b"\n")
    with pytest.raises(DataError, match="no rows"):
        load_rows(path)
    with pytest.raises(DataError, match="cannot be opened"):
        load_rows(tmp_path / "absent")
