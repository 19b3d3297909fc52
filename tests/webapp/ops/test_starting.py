"""A program that starts slowly is no fault; one that makes no progress is."""

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from webapp.ops import up
from webapp.ops.console import Console, UpError, UpOptions, tail
from webapp.ops.up import (
    Progress,
    check_port,
    disk_error,
    old_redis,
    processor_seconds,
    tools_port_of,
    tools_token_file,
)


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


class Freed:
    """Has the process get a signal while Python frees an object, as an object of a library may be at any time."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(100):  # the handler runs between two instructions
            pass


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    """An ``up`` whose programs run, with its handlers of signals."""
    made: Any = up.Up.__new__(up.Up)
    made.data, made.options, made._stopping, made._hurry = tmp_path, SimpleNamespace(demo=False), False, False
    made._manager = SimpleNamespace(alive=True, states=dict, log_of=lambda program: tmp_path, pid_of=lambda program: 1)
    made.console, made._log_sizes = Console(io.StringIO()), {}
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    made._install_signal_handlers()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_loses_stops_it_all_the_same(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "WATCH_EVERY_S", 0.01)
    looks = iter(range(20))  # without an exception it would watch without end

    def look() -> None:
        next(looks)
        Freed()

    monkeypatch.setattr(running, "_note_processes", look)
    with pytest.raises(up.Stopped):
        running._watch()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_so_it_is_while_programs_start(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(running, "_survival_check", lambda program: lambda: True)
    monkeypatch.setattr(up, "processor_seconds", lambda pid: 0.0)
    with pytest.raises(up.Stopped):
        running._wait_for("Web", SimpleNamespace(full_name="web", name="web"), lambda: not Freed())


def test_a_port_that_is_taken_is_named_with_one_that_is_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UpError, match=f"Port {port} is in use by another program") as refused:
            check_port(UpOptions(tmp_path, tmp_path, port=port))
    assert f"--port {port}" not in refused.value.advice and "manage.py up --port " in refused.value.advice
    check_port(UpOptions(tmp_path, tmp_path, port=port))
    with pytest.raises(UpError, match=r"Cannot listen on 192\.0\.2\.1, port"):
        check_port(UpOptions(tmp_path, tmp_path, host="192.0.2.1", port=port))


def test_the_tools_server_keeps_its_port_and_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([8101, 8101, 9000, 9000])
    asked: list[int] = []
    monkeypatch.setattr(up.host, "free_port", lambda wanted: asked.append(wanted) or next(found))
    ports = [tools_port_of(tmp_path) for _start in range(4)]
    assert ports == [(8101, 8101), (8101, 8101), (9000, 8101), (9000, 9000)], "the new one, and the one before"
    assert asked == [8101, 8101, 8101, 9000]
    token = tools_token_file(tmp_path).read_text()
    assert len(token) >= 32 and tools_token_file(tmp_path).read_text() == token
    assert tools_token_file(tmp_path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("version", "shown"), [((7, 0), None), ((7, 2, 1), None), ((6, 9, 9), "Redis 6.9.9 gets"), ((), "Redis ? gets")]
)
def test_an_old_redis_is_a_warning(
    version: tuple[int, ...], shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up.host, "redis_version", lambda _binary: version)
    found = old_redis("redis-server")
    assert len(found) == (0 if shown is None else 2) and (shown is None or found[0].startswith(shown))


def test_a_disk_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    full = disk_error(OSError(errno.ENOSPC, "No space left", "/data/x"), tmp_path)
    assert str(full) == "The disk that holds /data/x is full." and full.advice.startswith("Free some space")
    other = disk_error(OSError(errno.EROFS, "Read-only file system"), tmp_path)
    assert (str(other), other.advice) == (f"{tmp_path} cannot be used: Read-only file system.", "")
