"""Known processes: identity by pid and start time, and ending them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil

from tests.disks import read_only
from tests.processes import ROOT
from training.sessions import folder_id
from webapp.common.host import Known, Ledger, alive, end, family, known
from webapp.ops.console import Console, UpOptions
from webapp.ops.up import Up

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
]


@contextmanager
def child(argv: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_pid_with_another_start_time_is_a_stranger() -> None:
    with child(SLEEP) as process:
        one = known(psutil.Process(process.pid))
        assert one is not None
        stranger = Known(one.pid, one.started - 60)
        assert alive([one, stranger]) == [one]
        assert end([stranger], grace_s=1) == []
        assert process.poll() is None


def test_end_takes_the_whole_group_and_the_stubborn() -> None:
    with child(STUBBORN, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        members = family(process.pid)
        assert [one.pid for one in members] == [process.pid]
        assert end(members, grace_s=0.3) == []
        assert process.wait(timeout=5) == -9


def test_end_never_ends_ourselves() -> None:
    me = known(psutil.Process())
    assert me is not None
    assert end([me], grace_s=0.1) == []
    assert psutil.pid_exists(os.getpid())


def test_the_ledger_survives_rubbish(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "processes.json")
    assert ledger.read() == []
    some = {Known(1, 2.0, "a")}
    ledger.write(some)
    assert ledger.read() == list(some)
    evil = json.dumps({"folder": folder_id(tmp_path), "processes": [{"pid": 1, "evil": 2}]})
    for rubbish in ("", "[{}]", '[{"pid": 1, "started": 2.0}]', evil, "{}", "null"):
        ledger.path.write_text(rubbish)
        assert ledger.read() == []
    ledger.clear()
    ledger.clear()


def test_a_copied_ledger_names_no_process(tmp_path: Path) -> None:
    """What a copy of a data folder remembers are the processes of its original, and they are at work."""
    (original := tmp_path / "original").mkdir()
    with child(SLEEP) as process:
        one = known(psutil.Process(process.pid))
        assert one is not None
        Ledger(original / "processes.json").write({one})
        shutil.copytree(original, tmp_path / "copy")
        assert Ledger(tmp_path / "copy" / "processes.json").read() == []
        original.rename(tmp_path / "moved")
        assert Ledger(tmp_path / "moved" / "processes.json").read() == [one], "it moved with its folder"


def test_a_note_that_cannot_be_written_is_logged_once_until_one_was(tmp_path: Path) -> None:
    """Processes come and go, so that what is noted is right for a moment; each time it was logged again."""
    output = io.StringIO()
    up = Up(UpOptions(tmp_path, ROOT), Console(output))
    up._manager = SimpleNamespace(child=SimpleNamespace(pid=os.getpid()))  # type: ignore[assignment]

    def count() -> int:
        up._note_processes()
        return output.getvalue().count("Running processes continue.")

    assert count() == 0 and len(up.ledger.read()) >= 1
    with read_only(tmp_path):
        for _ in range(2):
            with child(SLEEP):
                assert count() == 1
            assert count() == 1, "as it was noted before"
    with child(SLEEP):
        assert count() == 1
    with read_only(tmp_path):
        assert count() == 2, "there was a note between"
