"""A program that starts slowly is no fault; one that makes no progress is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from webapp.ops import up
from webapp.ops.console import Console, UpError, tail
from webapp.ops.up import Progress, processor_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of ``starting``; a test sets ``now``."""
    found = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(up, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_a_start_is_given_up_only_where_its_processor_time_stays_the_same(clock: SimpleNamespace) -> None:
    """With 120 s on the clock, a busy machine ended everything that had come up."""
    progress = Progress(120, 30)
    for minute in range(1, 20):
        clock.now += 100
        assert not progress.stopped(spent_s=0.01 * minute), "slow, and getting on"
    clock.now += 120
    assert not progress.stopped(spent_s=0.19)
    clock.now += 1
    assert progress.stopped(spent_s=0.19)


def test_a_slow_start_is_reported_once(clock: SimpleNamespace) -> None:
    progress = Progress(120, 30)
    clock.now += 29
    assert not progress.slow()
    clock.now += 1
    assert progress.slow() and not progress.slow()


def test_processor_time_is_that_of_all_children() -> None:
    burn = "import sys, time\nwhile time.process_time() < 0.5: pass\n"  # the kernel counts whole hundredths
    child = f"subprocess.Popen([sys.executable, '-c', {burn + 'sys.stdin.read()'!r}])"
    code = f"import subprocess, sys; child = {child}; input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while processor_seconds(process.pid) < 0.3:
            assert process.poll() is None
        process.communicate(b"\n")
    assert processor_seconds(process.pid) == 0.0 and processor_seconds(0) >= 0.0


def test_the_end_of_a_log_is_that_of_this_start(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_text("yesterday\n")
    begin = log.stat().st_size
    assert tail(log, 15, begin) == []
    with log.open("a") as file:
        file.write("today\n")
    assert (tail(log, 15, begin), tail(log, 15), tail(log, 1)) == (["today"], ["yesterday", "today"], ["today"])
    log.write_text("new\n")  # begun again meanwhile
    assert tail(log, 15, begin) == ["new"]
    out = io.StringIO()
    Console(out).error(UpError("It ended.", log=log, log_from=0))
    assert "new" in out.getvalue()


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, os.strerror(28))


def test_what_cannot_be_printed_ends_nothing() -> None:
    console = Console(Full())
    console.line("a")
    with console.stage("b"):
        pass
