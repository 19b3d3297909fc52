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
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from training.devices import Measured, Meter, own_device
from training.journal import DeviceStep
from training.lanes import Span
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


# The devices of a job: the process of each rank names its own and measures it, and the trainer asks all of them.

Ask = Callable[..., list[Any]]
"""Calls a function in the process of each rank, with the rank's worker and what else is given; all results, in order
of ranks."""

_meters: list[Meter] = []


def begin_measuring(_worker: Any, kind: str) -> tuple[str, str]:
    """In a rank's process: its host and its device, which is measured until the process ends. ``kind`` is PyTorch's."""
    meter = Meter(own_device(kind))
    _meters.append(meter.__enter__())
    return socket.gethostname(), meter.device


def beat_in(_worker: Any, folder: str) -> None:
    """In a rank's process: give signs of life in a job folder."""
    begin_beating(Path(folder))


def take_measured(_worker: Any) -> Measured:
    """In a rank's process: what was measured since this was asked last."""
    return _meters[-1].take()


class Ranks:
    """The devices of all ranks. All do the same at the same time: each waits for the slowest."""

    def __init__(self, ask: Ask, kind: str) -> None:
        self._ask, self._measures = ask, kind == "cuda"
        self._places = _apart(ask(begin_measuring, kind))

    def steps(self, step: int, spans: Sequence[Span]) -> list[DeviceStep]:
        """The step of each device."""
        measured = self._ask(take_measured) if self._measures else [Measured()] * len(self._places)
        return [
            DeviceStep.of(step, spans, host, device, each)
            for (host, device), each in zip(self._places, measured, strict=True)
        ]


def _apart(places: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Hosts and devices, with a number where several ranks of a host have the same: processors are no devices."""
    several, seen = Counter(places), Counter[tuple[str, str]]()
    found = []
    for host, device in places:
        number = seen[host, device]
        seen[host, device] += 1
        found.append((host, f"{device}:{number}" if several[host, device] > 1 else device))
    return found
