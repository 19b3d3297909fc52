"""Ending processes: by the session that they were started in, and how long a run may take that is asked to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# Processes by the session that they were started in: who is left of one, and how it is ended.
#
# A child that is started with a session of its own passes it on to all that it starts, whichever process dies in
# between. Linux only: elsewhere nothing is found.

END_S = 5.0
STOP_S = 0.5  # how long a process may take to stop: one that waits for a disk does not
SERVER_NOTE = "vllm.json"
"""The note in a run's folder of the vLLM that was started for it: an attempt ends what the one before it left."""
PROC, SHARED = Path("/proc"), Path("/dev/shm")  # noqa: S108 - where shared memory is seen, not a file of ours


def started_at(pid: int) -> str | None:
    """The start of a process, as ``<boot>/<ticks>``: ids come round again, this does not. None where it is gone."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{_stat(pid)[19]}"
    except (OSError, IndexError):
        return None


def namespace() -> str:
    """Where process ids of ours count: a container has numbers of its own."""
    with suppress(OSError):
        return os.readlink(PROC / "self/ns/pid")
    return ""


def folder_id(folder: Path) -> str:
    """The id of a folder, as ``device:inode``: one that was copied or restored is another one.

    A note of a process names the folder that it lies in, so that a copy never ends the processes of its original.
    """
    status = folder.stat()
    return f"{status.st_dev}:{status.st_ino}"


def members(session: int) -> list[int]:
    """The living processes of a session, its leader among them."""
    return [pid for pid in _pids() if _session_of(pid) == session]


def end_session(session: int, *, spare: int = 0, grace_s: float = END_S) -> None:
    """SIGTERM for all of a session but ``spare``, SIGKILL after ``grace_s``; their shared memory is removed."""
    left = _stop(found := _others(session, spare))
    _signal(found, signal.SIGTERM)
    _signal(found, signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    while (found := _others(session, spare)) and time.monotonic() < deadline:
        left |= segments(found)
        time.sleep(0.05)
    while found := _others(session, spare):
        left |= _stop(found)
        _signal(found, signal.SIGKILL)
        time.sleep(0.02)
    for path in left:
        with suppress(OSError):
            path.unlink()


def sweep(leader: int, started: str | None) -> bool:
    """End what is left of a session that ``leader`` began at ``started``; whether there was anything.

    Its id is not given to another process while any of its session lives. Where the leader is gone, only processes that
    began after it are of that session.
    """
    now = started_at(leader)
    if started is None or (now is not None and now != started):
        return False
    boot, _slash, ticks = started.partition("/")
    found = members(leader)
    for pid in found:
        theirs = (started_at(pid) or "/").partition("/")
        if theirs[0] != boot or not theirs[2].isdigit() or int(theirs[2]) < int(ticks):
            return False
    if found:
        end_session(leader, grace_s=0.0)
    return bool(found)


def segments(pids: list[int]) -> set[Path]:
    """Shared memory of Python's that these processes have mapped, or have opened and not mapped yet."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):
            text = (PROC / str(pid) / "maps").read_text(errors="replace")
            found |= {word for line in text.splitlines() for word in line.split()[5:6]}
        with suppress(OSError):
            for opened in (PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    found.add(os.readlink(opened))
    return {Path(name) for name in found if name.startswith(f"{SHARED}/psm_")}


def _stop(pids: list[int]) -> set[Path]:
    """Stop processes, and give their shared memory: one that runs could make more between the look and its end."""
    _signal(pids, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_S
    while not all(_stopped(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.002)
    return segments(pids)


def _stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped, or has ended."""
    try:
        return all(_fields(task / "stat")[0] in "TtZX" for task in (PROC / str(pid) / "task").iterdir())
    except (OSError, IndexError):
        return True


def _others(session: int, spare: int) -> list[int]:
    return [pid for pid in members(session) if pid != spare]


def _pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir(PROC) if name.isdigit())


def _session_of(pid: int) -> int | None:
    """The session of a process that still computes; None for one that is gone or only waits to be reaped."""
    try:
        fields = _stat(pid)
        return int(fields[3]) if fields[0] not in {"Z", "X"} else None
    except (OSError, IndexError, ValueError):
        return None


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name, which may hold anything: its state is the first."""
    return _fields(PROC / str(pid) / "stat")


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rsplit(")", 1)[1].split()


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


# How long a run may take that is asked to stop: one rule for its trainer, which ends itself by then, and for the
# process that ends a trainer that does not.
#
# 1. The *grace*: three times the last save and the update at hand.
# 2. What a checkpoint does not hold yet is worth more patience: a trainer that still works, by its processor time, gets
#    up to ``SAVING_MOST_S`` more. On a busy machine an update takes many times as long as the one before it.

STOP_GRACE_S = 6.5
SAVES = 3
SAVING_MOST_S, STOP_MOST_S = 60.0, 298.0
LAST_WORDS_S = 1.5
"""What a trainer whose time is over gets to say so, before it is ended by others."""
LOOK_S = 1.0
WORKS = 0.01
"""Share of a core that a process uses at least while it works; one that waits for an answer uses less."""


def stop_grace(save_s: float | None, update_s: float | None, least_s: float = STOP_GRACE_S) -> float:
    """Seconds for one more save, thrice as long as the last one, and one more update; at most ``STOP_MOST_S``."""
    needed_s = SAVES * max(0.0, save_s or 0.0) + max(0.0, update_s or 0.0)
    return min(max(least_s, needed_s), STOP_MOST_S)


def patience(grace_s: float) -> float:
    """Seconds that one which still works may take in all."""
    return min(grace_s + SAVING_MOST_S, STOP_MOST_S)


class Works:
    """Whether a process works, by its processor time so far in seconds (``spent``). Ask again and again."""

    def __init__(self, spent: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._spent, self._clock = spent, clock
        self._at, self._before, self._works = clock(), spent(), True

    def __call__(self) -> bool:
        """What the last whole ``LOOK_S`` said; ``True`` before the first one is over."""
        now = self._clock()
        if now - self._at >= LOOK_S:
            spent = self._spent()
            self._works = spent - self._before >= WORKS * (now - self._at)
            self._at, self._before = now, spent
        return self._works


# A process that must not outlive who started it holds the read end of a pipe of theirs.

EXIT_PARENT_DIED = 3
BEFORE_S = 15.0


def watch_parent(descriptor: int, before: Callable[[], None] = lambda: None) -> None:
    """Exit at once when the other end of the pipe closes: a trainer must not outlive its supervisor.

    ``before`` is done first, whatever comes of it, for ``BEFORE_S`` at most.
    """

    def watch() -> None:
        try:
            while os.read(descriptor, 64):
                continue
        except OSError:
            sys.stderr.write("The parent's pipe broke.\n")
        last = threading.Thread(target=before, name="before-exit", daemon=True)
        last.start()
        last.join(BEFORE_S)
        os._exit(EXIT_PARENT_DIED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
