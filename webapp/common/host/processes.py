"""Our processes, remembered by pid and start time, and how all of them are ended.

A pid alone is not an identity: after ``kill -9`` of `up`, or a reboot, the same number may be another program's
process. So each is stored with its start time and is ours only while both match. Processes are never searched by name.
A copy of a data folder has the ledger of its original's processes, so a ledger also names the folder that it lies in.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from training.sessions import folder_id
from webapp.common.host.embedded import write_private

SAME_START_S = 0.5  # start times are read from the boot clock and differ by rounding only
POLL_S = 0.05


@dataclass(frozen=True)
class Known:
    """One process that we started, directly or not."""

    pid: int
    started: float
    name: str = ""

    def process(self) -> psutil.Process | None:
        """The live process, if it is still the same one."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < SAME_START_S
            if same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def known(process: psutil.Process) -> Known | None:
    """The process's identity, if it still lives."""
    with suppress(psutil.Error):
        return Known(process.pid, process.create_time(), process.name())
    return None


def family(pid: int) -> set[Known]:
    """A process and all that descend from it."""
    try:
        head = psutil.Process(pid)
        members = [head, *head.children(recursive=True)]
    except psutil.Error:
        return set()
    return {found for member in members if (found := known(member))}


def alive(processes: Iterable[Known]) -> list[Known]:
    """Those of the processes that still run."""
    return [one for one in processes if one.process()]


def wait_gone(
    processes: Iterable[Known], limit_s: float, *, give_up: Callable[[], bool] = lambda: False
) -> list[Known]:
    """Wait until all have ended; returns those that have not within the limit."""
    deadline = time.monotonic() + limit_s
    while left := alive(processes):
        if time.monotonic() > deadline or give_up():
            return left
        time.sleep(POLL_S)
    return []


def send(processes: Iterable[Known], number: signal.Signals) -> None:
    """Signal each; a leader's whole process group with it."""
    for one in processes:
        if not one.process():
            continue
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(one.pid) == one.pid != os.getpgid(0):
                os.killpg(one.pid, number)
            else:
                os.kill(one.pid, number)


def end(processes: Iterable[Known], *, grace_s: float) -> list[Known]:
    """Ask, wait, then kill. Returns those that even SIGKILL did not end."""
    mine = [one for one in processes if one.pid != os.getpid()]
    send(mine, signal.SIGTERM)
    left = wait_gone(mine, grace_s)
    send(left, signal.SIGKILL)
    return wait_gone(left, 5.0)


class Ledger:
    """The file that names our processes for the next start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: set[Known] = set()

    def read(self) -> list[Known]:
        """Processes of an earlier start; a file that cannot be read, or was copied here, names none."""
        try:
            found = json.loads(self.path.read_text())
            return [Known(**entry) for entry in found["processes"]] if found["folder"] == self._folder() else []
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def write(self, processes: set[Known]) -> bool:
        """Remember these; writes only when something changed, and returns whether it did."""
        if processes == self._written:
            return False
        entries = sorted((asdict(one) for one in processes), key=lambda entry: entry["pid"])
        write_private(self.path, json.dumps({"folder": self._folder(), "processes": entries}))
        self._written = set(processes)
        return True

    def clear(self) -> None:
        """Nothing of ours runs any more."""
        self.path.unlink(missing_ok=True)
        self._written = set()

    def _folder(self) -> str:
        return folder_id(self.path.parent)
