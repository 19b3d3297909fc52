"""Children with limits: a session of their own, a deadline, and nothing of them left afterwards.

Every short-lived program that we start for a person runs like this: the check of a dataset, a look at its first rows,
imports, the rows that an environment writes, the lab's scoring and the trainer's preflight.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

READ_BYTES = 65536
KILLED = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
"""How a child without memory ends where it has no time left to say so."""
NO_LIMITS: Mapping[str, int] = {}
Stream = int | IO[Any] | None


class Limited:
    """A running child; what it prints and its end are waited for until its deadline, and no longer."""

    def __init__(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        self._process, self._deadline = process, deadline

    @property
    def code(self) -> int:
        """Its exit code, negative for a signal, once the block has ended."""
        return int(self._process.returncode)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended in time: before its deadline, or within ``seconds`` where they are given."""
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()) if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ask_to_stop(self) -> None:
        """SIGTERM, to whatever it started as well."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def lines(self) -> Iterator[bytes]:
        """The lines that it prints, as they come. The end of one that is too long is enough."""
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-READ_BYTES:]
            yield from lines

    def output(self, most: int) -> bytes | None:
        """All that it prints; ``None`` where that is more than ``most`` bytes."""
        found = b""
        for chunk in self._chunks():
            found += chunk
            if len(found) > most:
                return None
        return found

    def _chunks(self) -> Iterator[bytes]:
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the child was started without a pipe")
        with selectors.DefaultSelector() as selector, stdout:
            selector.register(stdout, selectors.EVENT_READ)
            while (left := self._deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    continue
                if not (chunk := os.read(stdout.fileno(), READ_BYTES)):
                    return
                yield chunk


@contextmanager
def limited_child(
    command: list[str],
    *,
    wall_s: float,
    env: dict[str, str],
    limits: Mapping[str, int] = NO_LIMITS,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.DEVNULL,
    cwd: Path | None = None,
    preexec_fn: Callable[[], None] | None = None,
) -> Iterator[Limited]:
    """Start it, and kill what is left of its process group when the block ends, in whatever way.

    ``limits`` are names of the module ``resource``; a system that cannot set them from outside goes without.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=preexec_fn,
    )
    deadline = time.monotonic() + wall_s
    try:
        limit_child(process.pid, limits)
        yield Limited(process, deadline)
    finally:
        _end(process)


def limit_child(pid: int, limits: Mapping[str, int]) -> None:
    """Limit a running child of ours: names of the module ``resource``, where the system can set them from outside."""
    with suppress(OSError, ValueError):  # it has gone already
        if hasattr(resource, "prlimit"):
            for name, value in limits.items():
                resource.prlimit(pid, getattr(resource, name), (value, value))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's process group and reap it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it may end between the two calls
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
