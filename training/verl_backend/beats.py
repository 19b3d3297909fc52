"""The signs of life of a verl job's processes: one that was stopped, or whose host is silent, ends its attempt.

Ray notices a process that has died, and not one that is suspended: the others wait for it, some without end. So each
process that trains or plays touches a file of its own in the job folder, which all hosts share, and the trainer looks
whether the files change. It compares no clocks of different hosts.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from training.verl_backend.folder import BEATS_NAME

BEAT_S, LOOK_S = 5.0, 2.0
NOTICE_S, LOST_S = 25.0, 120.0
"""After how long without a beat the log says so, and after how long the process counts as lost: a busy host may keep
one from beating for a while."""


def begin_beating(folder: Path) -> None:
    """In a process of the job: touch its file until it ends."""
    path = folder / BEATS_NAME / f"{socket.gethostname()}-{os.getpid()}"
    path.parent.mkdir(exist_ok=True)
    path.touch()

    def beat() -> None:
        while True:
            time.sleep(BEAT_S)
            try:
                path.touch()
            except OSError:  # the folder is away or full; the next beat may get through
                continue

    threading.Thread(target=beat, name="beats", daemon=True).start()


class Beats:
    """Looks at the beats of a job. ``warn`` logs; ``lost`` ends the attempt and does not return."""

    def __init__(
        self,
        folder: Path,
        warn: Callable[[str], None],
        lost: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._warn, self._lost, self._clock = folder / BEATS_NAME, warn, lost, clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._silent: set[str] = set()

    def look(self) -> None:
        """Once: name the processes that have not beaten for a while, and those that beat again."""
        now = self._clock()
        for path in sorted(self._folder.glob("*")):
            name, beaten = path.name, path.stat().st_mtime_ns
            if self._seen.get(name, (None, 0.0))[0] != beaten:
                self._seen[name] = beaten, now
            silent_s = now - self._seen[name][1]
            if silent_s >= LOST_S:
                self._lost(
                    f"A process of the job was lost: process {_place(name)} has given no sign of life for {LOST_S:g} s."
                )
            elif silent_s >= NOTICE_S and name not in self._silent:
                self._silent.add(name)
                self._warn(f"Process {_place(name)} has given no sign of life for {NOTICE_S:g} s.")
            elif silent_s < NOTICE_S and name in self._silent:
                self._silent.remove(name)
                self._warn(f"Process {_place(name)} is there again.")

    def watch(self) -> None:
        """Look until the process ends, in a thread."""

        def look() -> None:
            while True:
                time.sleep(LOOK_S)
                try:
                    self.look()
                except OSError:  # the folder is away: nothing is known
                    continue

        threading.Thread(target=look, name="watch-beats", daemon=True).start()


def _place(name: str) -> str:
    host, _dash, pid = name.rpartition("-")
    return f"{pid} on {host}"
