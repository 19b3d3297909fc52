"""A child that is spoken to over both its pipes, line by line, and that no wait of ours outlives.

It leads a session of its own, so that its end takes along whatever it started in it. For one thread at a time, but for
``stop``, which any thread may call while another one waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping

READ_BYTES = 64 << 10


class Piped:
    """The child and its two pipes, neither of which blocks."""

    def __init__(self, command: list[str], *, env: Mapping[str, str], stderr: int | None = None) -> None:
        """Start it: an argument list, no shell, ``env`` and nothing else. Raises ``OSError``."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd="/",
            env=env,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin and self._process.stdout  # noqa: S101 - for the type checker
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it may be called again."""
        return self._process.poll() is None

    def lines(self, said: bytes, deadline: float) -> Iterator[bytes]:
        """Send what is said to it, and give its lines as they come, until the deadline or its end."""
        rest = memoryview(said)
        while (left := deadline - time.monotonic()) > 0:
            readable, writable = self._wait(bool(rest), left)
            if writable:
                rest = self._write(rest)
            if readable and not self._read():
                return
            *whole, self._buffer = self._buffer.split(b"\n")
            yield from whole

    def stop(self) -> None:
        """Have it end at once; whoever waits for it sees its end."""
        self._process.kill()

    def kill(self) -> None:
        """End it, and everything of its session; safe to call twice."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its leader is not reaped, so the group is surely ours
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def ended(self) -> int | None:
        """Its exit code, negative for a signal, once its pipe is closed; ``None`` where it closed that and stayed."""
        try:
            return self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return None

    def _wait(self, writing: bool, limit_s: float) -> tuple[bool, bool]:
        poll = select.poll()  # select() knows no descriptor above 1023, and a trainer may have many
        poll.register(self._from, select.POLLIN)
        if writing:
            poll.register(self._to, select.POLLOUT)
        events = dict(poll.poll(limit_s * 1000))
        return bool(events.get(self._from)), bool(events.get(self._to))

    def _write(self, rest: memoryview) -> memoryview:
        """What is left to be sent; nothing of it where nobody reads any more."""
        try:
            return rest[os.write(self._to, rest) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            return rest[len(rest) :]

    def _read(self) -> bool:
        try:
            chunk = os.read(self._from, READ_BYTES)
        except BlockingIOError:
            return True
        self._buffer += chunk
        return bool(chunk)
