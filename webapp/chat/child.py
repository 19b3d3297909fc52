"""A chat process (``python -m training chat``) as its holder knows it.

It leads a process group of its own and holds the read end of a pipe whose write end only we have, as a trainer does:
it ends when we do, in any way. A thread reads its lines into the holder's queue.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from queue import Queue

from django.conf import settings
from pydantic import ValidationError

from training.chat.wire import LINE_BYTES, Ended, Failed, Line, Open, Ready, Said, Text, told_adapter
from training.errors import Boundary, ErrorInfo
from webapp.engine.trainer import oom_kills, trainer_env

Told = Ready | Text | Said | Ended | Failed
END_LIMIT_S = 5.0


class Child:
    """One process with one model, or that asks one endpoint. ``lines`` gets its lines, and ``None`` once it has
    ended; ``access`` has the endpoint's key."""

    def __init__(self, opened: Open, lines: Queue[tuple[Child, Told | None]], access: Mapping[str, str]) -> None:
        command = getattr(settings, "CHAT_COMMAND", [sys.executable, "-m", "training", "chat"])
        self._ended = False
        read_fd, self._alive_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                cwd=settings.BASE_DIR,
                env=trainer_env(read_fd, access),
                pass_fds=(read_fd,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            os.close(self._alive_fd)
            raise
        finally:
            os.close(read_fd)
        self.ready = False
        self._lines, self._waiting = lines, list[Line]()
        self._oom_kills = oom_kills()
        self._reader = threading.Thread(target=self._read_lines, name=f"chat-{self._process.pid}", daemon=True)
        self._reader.start()
        self._write_line(opened)

    def send(self, line: Line) -> None:
        """Send a line, once it is loaded: until then the process does not read, and a pipe holds little. A line that
        cannot be written is lost: the process has ended, and ``lines`` gets its end."""
        if self.ready:
            self._write_line(line)
        else:
            self._waiting.append(line)

    def loaded(self) -> None:
        """The process is ready: send the lines that waited for that."""
        self.ready = True
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._write_line(line)

    def end(self) -> None:
        """End it and everything it started, now. Calling it twice does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=END_LIMIT_S)
        os.close(self._alive_fd)
        self._reader.join(timeout=END_LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def last_word(self) -> ErrorInfo:
        """The error for a process that ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_LIMIT_S)
        before, now = self._oom_kills, oom_kills()
        starved = before is not None and now is not None and now > before
        what = f"The process that held the model ended ({self._process.returncode})."
        hint = "The kernel killed a process for want of memory: choose a smaller model." if starved else ""
        return ErrorInfo(code="chat_died", boundary=Boundary.POLICY, message=what, hint=hint)

    def _write_line(self, line: Line) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stdout.readline(LINE_BYTES):
                try:
                    self._lines.put((self, told_adapter.validate_json(line)))
                except ValidationError:
                    continue  # a line in another format
        self._lines.put((self, None))
