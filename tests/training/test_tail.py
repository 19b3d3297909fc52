"""A journal is continued, and asked for its last step and attempt, without being read whole."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import events
from training import journal as journal_module
from training.journal import (
    RESERVE_NAME,
    Journal,
    LogLine,
    Metrics,
    RolloutStarted,
    RunFinished,
    RunStarted,
    drop_torn_tail,
    last_attempt,
    last_step,
    lines_backwards,
)


def journal(folder: Path, *written: Any) -> Path:
    book = Journal(folder)
    for event in written:
        book.write(event)
    book.close()
    return folder / "journal.jsonl"


@pytest.mark.parametrize("chunk", [7, 64, 1 << 16])
def test_lines_come_from_the_last_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(journal_module, "CHUNK_BYTES", chunk)
    path = tmp_path / "lines"
    lines = [b"a" * size for size in (1, 7, 8, 100, 6, 14)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert list(lines_backwards(path)) == lines[::-1]
    assert list(lines_backwards(tmp_path / "none")) == []


@pytest.mark.parametrize("torn", [b"", b'{"v":1,"n":9,"type":"log","message":"to', b"\xff" * 200_000])
def test_a_torn_tail_is_cut_off_and_numbers_go_on(tmp_path: Path, torn: bytes) -> None:
    path = journal(tmp_path, *(LogLine(message=f"line {number}") for number in range(5)))
    with open(path, "ab") as file:
        file.write(torn)
    assert drop_torn_tail(path)[0] == 5
    journal(tmp_path, LogLine(message="next"))
    assert [event.n for event in events(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_large_journal_is_not_read_whole(tmp_path: Path) -> None:
    """Its whole length was once held in memory."""
    path = journal(tmp_path, LogLine(message="first"))
    with open(path, "r+b") as file:
        file.seek(3 << 30)  # a hole of 3 GiB, which no test could read in a second
        file.write(b'\n{"v":1,"n":2000,"t":1,"type":"log","message":"last"}\n{"torn')
    began = time.monotonic()
    assert drop_torn_tail(path) == (2000, path.stat().st_size) and time.monotonic() - began < 0.5


def test_the_last_step_and_attempt_of_a_journal(tmp_path: Path) -> None:
    assert (last_step(tmp_path / "journal.jsonl"), last_attempt(tmp_path / "journal.jsonl")) == (0, 0)
    path = journal(tmp_path, RunStarted(kind="sft", total_steps=9, attempt=3), Metrics(step=4, values={}))
    assert (last_step(path), last_attempt(path)) == (4, 3)
    message = 'a fake "rollout":"a99-s1" and "type":"metrics"'
    journal(tmp_path, RolloutStarted(rollout="a4-s5-g0-i0", step=5, group=0, index=0), LogLine(message=message))
    assert (last_step(path), last_attempt(path)) == (4, 4)


class Full:
    """A file on a disk that takes ``room`` more bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.file.write(data[: self.room])
        self.room -= written
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_a_line_that_does_not_fit_leaves_nothing_behind_and_the_last_word_takes_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a line stayed, the next event was glued to it, and the last word was lost."""
    book = Journal(tmp_path)
    book.keep_reserve()
    assert (tmp_path / RESERVE_NAME).stat().st_blocks * 512 >= 256 << 10
    book.write(LogLine(message="fits"))
    full = Full(book._file, 40)
    book._file = full  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        book.write(LogLine(message="does not fit"))
    original = Path.unlink

    def freeing(self: Path, missing_ok: bool = False) -> None:
        if self.name == RESERVE_NAME:
            full.room = 256 << 10
        original(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", freeing)
    book.last_word(RunFinished(status="paused", step=1))
    book.close()
    found = events(tmp_path)
    assert [(event.n, event.type) for event in found] == [(1, "log"), (2, "run_finished")]
    assert os.listdir(tmp_path) == ["journal.jsonl"]
