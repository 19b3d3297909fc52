"""The command line of `manage.py up`: its options, and its output, a line a stage."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from django.utils.translation import gettext as _

LOG_LINES_SHOWN = 15
WIDTH = 34


class UpError(RuntimeError):
    """A start that failed: what happened, what to do, and the log with more."""

    def __init__(self, message: str, *, advice: str = "", log: Path | None = None, log_from: int = 0) -> None:
        """``log_from``: the byte of the log where this start begins; what lies before is another one's."""
        super().__init__(message)
        self.advice, self.log, self.log_from = advice, log, log_from


class Console:
    """Prints to a terminal or to a file; colours and the updating line only on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.tty = self.stream.isatty()

    def line(self, text: str = "") -> None:
        """One line."""
        self._write(f"{text}\n")

    def update(self, text: str) -> None:
        """Rewrite the current line; the caller checks ``tty``."""
        self._write(f"\r\x1b[2K{text}")

    def _write(self, text: str) -> None:
        """Write the text. A failure to print (a full disk, a terminal that is gone) must not end the program."""
        with suppress(OSError):
            self.stream.write(text)
            self.stream.flush()

    def paint(self, code: str, text: str) -> str:
        """The text in a colour, on a terminal."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.tty else text

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show a stage while it runs, then its seconds."""
        started = time.monotonic()
        if self.tty:
            self.update(f"  … {title}")
        try:
            yield
        except BaseException:
            if self.tty:
                self.update("")
            self.line(f"  {self.paint('31', '✗')} {title}")
            raise
        if self.tty:
            self.update("")
        padding = " " * max(1, WIDTH - display_width(title))
        self.line(f"  {self.paint('32', '✓')} {title}{padding}{time.monotonic() - started:6.1f} s")

    def error(self, error: UpError) -> None:
        """Print what happened, the end of the log, and what to do."""
        self.line()
        self.line(self.paint("31", str(error)))
        if error.log is not None and error.log.exists():
            self.line(_("The end of %(path)s:") % {"path": error.log})
            for text in tail(error.log, LOG_LINES_SHOWN, error.log_from):
                self.line(f"    {text}")
        if error.advice:
            self.line(error.advice)


def display_width(text: str) -> int:
    """Columns that the text takes; Chinese characters take two."""
    return sum(2 if ord(character) > 0x2E80 else 1 for character in text)


def tail(path: Path, lines: int, begin: int = 0) -> list[str]:
    """The last lines of a file from its byte ``begin`` on, without reading all of a large one.

    A file that is shorter than that was started again meanwhile.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0 if begin > size else begin, size - 16_384))
        return file.read().decode("utf-8", "replace").splitlines()[-lines:]


# The command line options of `manage.py up`, and the address of a running one.


@dataclass(frozen=True)
class UpOptions:
    """The options of the command line."""

    data: Path
    root: Path
    host: str = "127.0.0.1"
    port: int = 8000
    demo: bool = False
    behind_proxy: bool = False

    @property
    def address(self) -> str:
        """Our address for a browser on this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


LOCK_NAME = "up.lock"
"""In the data folder: held, and with the address in it, as long as `manage.py up` runs."""


def running_address(data: Path) -> str | None:
    """The address of the site that `manage.py up` runs on a data folder; ``None`` where none runs."""
    try:
        with open(data / LOCK_NAME, encoding="utf-8", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().partition(" ")[0] or None
    except OSError:
        pass
    return None
