"""Ports, private files, and the ledger of processes of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from webapp.common.host import Known, Ledger, free_port, memory_options, write_private


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)
    assert free_port(port) == port and free_port() > 0


def test_a_private_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    write_private(path, "one")
    assert path.read_text() == "one" and path.stat().st_mode & 0o777 == 0o600

    def full(_handle: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_private(path, "two")
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_a_ledger_is_written_where_something_changed_and_forgotten_at_the_end(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "processes.json")
    one, two = Known(7, 1.5, "web"), Known(3, 2.5, "clock")
    assert ledger.read() == [] and not ledger.write(set())
    assert ledger.write({one, two}) and not ledger.write({two, one})
    assert Ledger(tmp_path / "processes.json").read() == [two, one]
    ledger.clear()
    assert ledger.read() == [] and not ledger.path.exists()
    assert ledger.write({one}), "what was cleared is written again"


@pytest.mark.parametrize(
    ("gib", "shared", "work"), [(1, "128MB", "4MB"), (16, "512MB", "8MB"), (1024, "4096MB", "32MB")]
)
def test_postgresql_gets_a_small_part_of_the_memory(gib: int, shared: str, work: str) -> None:
    found = memory_options(gib << 30)
    assert (found["shared_buffers"], found["work_mem"]) == (shared, work)
