"""The trainer's side: it starts a process for each tracker, passes on what they say, and lets go of them at its end."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from training.children import CERTIFICATES, PLACES, PROXIES, ROOT, child_env
from training.config import TRACKERS, JobConfig, TrackerName
from training.journal import Journal, LogLine

END_S, STOP_END_S = 20.0, 3.0
MAX_LINE = 4_000


class Reports:
    """The processes of one attempt. A tracker costs the trainer nothing while it runs, and its end at most ``END_S``.

    They belong to the trainer's process group, so that killing it leaves none of them behind.
    """

    def __init__(
        self,
        config: JobConfig,
        config_path: Path,
        run_dir: Path,
        journal: Journal,
        *,
        attempt: int,
        earlier: Sequence[Path] = (),
        run_id: str = "",
    ) -> None:
        self._journal = journal
        self._children: dict[TrackerName, subprocess.Popen[bytes]] = {}
        folders = [folder.resolve() for folder in (*earlier, run_dir)]
        known = run_id or hashlib.sha256(str(folders[0]).encode()).hexdigest()[:32]
        about = [str(config_path.resolve()), str(folders[-1]), "--attempt", str(attempt), "--run-id", known]
        about += [word for folder in folders[:-1] for word in ("--earlier", str(folder))]
        for name in config.report.to:
            self._start(name, about)
        forget_keys()

    def _start(self, name: TrackerName, about: list[str]) -> None:
        command = [sys.executable, "-m", "training.reporting", name, *about]
        env = child_env(PLACES, CERTIFICATES, PROXIES, TRACKERS[name].variables, ("PYTHONPATH",))
        try:
            child = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as exc:
            self._journal.write(LogLine(level="warning", message=f"{TRACKERS[name].title} is not reported to: {exc}"))
            return
        self._children[name] = child
        threading.Thread(target=self._listen, args=(child,), name=f"reports-{name}", daemon=True).start()

    def _listen(self, child: subprocess.Popen[bytes]) -> None:
        """Put what it says into the run's log, until it ends."""
        assert child.stdout is not None  # noqa: S101 - a pipe, as asked for
        while line := child.stdout.readline(MAX_LINE):
            with suppress(ValueError, KeyError, TypeError, OSError):  # the journal is closed, or the disk is full
                found = json.loads(line)
                self._journal.write(LogLine(level=found["level"], message=found["message"]))

    def end(self, *, stopped: bool) -> None:
        """Let them report the rest, then kill what still waits for its tracker. Call it after the run's last event."""
        for child in self._children.values():
            assert child.stdin is not None  # noqa: S101 - a pipe, as asked for
            with suppress(OSError):
                child.stdin.close()
        deadline = time.monotonic() + (STOP_END_S if stopped else END_S)
        for name, child in self._children.items():
            try:
                whole = child.wait(max(0.0, deadline - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                whole = False
            if not whole:
                text = f"{TRACKERS[name].title} was not told everything before the run ended; a resume tells the rest."
                with suppress(OSError, ValueError):
                    self._journal.write(LogLine(level="warning", message=text))


def forget_keys() -> None:
    """Keep from the trainer's own process, and from all that it starts later, what only the trackers' need."""
    for tracker in TRACKERS.values():
        for name in tracker.variables:
            if not name.startswith("HF_"):
                os.environ.pop(name, None)
