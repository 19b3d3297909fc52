"""The journal: the trainer's only voice, an append-only ``journal.jsonl`` of versioned events.

Each line is one event: ``{"v": 1, "n": <line number from 1>, "t": <unix seconds>, "type": ..., ...}``. A line counts
only when it ends in a newline, so a torn last line after a crash is no event. Writing never waits for a database; a
background thread flushes and fsyncs at least once a second. The supervisor projects the file into Postgres by byte
offset, and ``manage.py import_run`` does the same for a finished folder. Non-finite floats are the strings "NaN",
"Infinity", "-Infinity".
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from training.events import AnyEvent, Event
from training.tail import drop_torn_tail

JOURNAL_NAME = "journal.jsonl"
FSYNC_EVERY_S = 0.5
RESERVE_NAME, RESERVE_BYTES = "journal.reserve", 256 << 10

_adapter: TypeAdapter[Any] = TypeAdapter(AnyEvent)


class Journal:
    """Append events to ``<directory>/journal.jsonl``. Safe to call from any thread.

    Lines reach the kernel at once (so they survive a kill -9 of this process) and the disk within
    ``FSYNC_EVERY_S``. A full disk raises ``OSError`` from ``write``, and leaves no part of the line behind;
    ``last_word`` then takes the room that ``keep_reserve`` had set aside.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / JOURNAL_NAME
        self._reserve = directory / RESERVE_NAME
        self._lock = threading.Lock()
        self._count, self._end = drop_torn_tail(self.path)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sync_loop, name="journal-fsync", daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        """Append one event, stamping its number and time."""
        with self._lock:
            event.n = self._count + 1
            event.t = time.time()
            self._append(event.model_dump_json().encode() + b"\n")
            self._count = event.n
        self._dirty.set()

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:]) or 0
        except OSError:
            os.ftruncate(self._file.fileno(), self._end)
            raise
        self._end += len(line)

    def keep_reserve(self) -> None:
        """Set room aside for the last words, where it is not yet. Raises ``OSError`` when the disk has none."""
        if self._reserve.exists():
            return
        try:
            with open(self._reserve, "wb") as file:
                file.write(bytes(RESERVE_BYTES))
                os.fsync(file.fileno())
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def last_word(self, event: Event) -> None:
        """``write``, on a full disk with the room of the reserve."""
        try:
            self.write(event)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            self.write(event)

    def close(self) -> None:
        """Sync and close; later writes raise ``ValueError``."""
        self._closed.set()
        self._dirty.set()
        self._thread.join(timeout=5)
        with self._lock:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()
        self._reserve.unlink(missing_ok=True)

    def _sync_loop(self) -> None:
        while not self._closed.is_set():
            self._dirty.wait()
            if self._closed.wait(FSYNC_EVERY_S):
                return
            self._dirty.clear()
            try:
                os.fsync(self._file.fileno())
            except OSError as exc:  # a full or lost disk: the next write says so to the run
                sys.stderr.write(f"The journal could not be synced: {exc}\n")
                self._dirty.set()


def parse_event(line: bytes) -> Event:
    """One journal line as an event. Raises ``pydantic.ValidationError`` for anything else."""
    event: Event = _adapter.validate_json(line)
    return event


def read_events(path: Path, offset: int = 0, max_bytes: int = 1 << 20) -> Iterator[tuple[int, Event]]:
    """Yield ``(offset after the event, event)`` for the whole lines from ``offset`` on, about ``max_bytes`` of them.

    Stops before a line that is not finished yet; call again later with the last offset. Lines longer than
    ``max_bytes`` are still read whole.
    """
    with open(path, "rb") as file:
        file.seek(offset)
        start = offset
        while offset - start < max_bytes:
            line = file.readline()
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield offset, parse_event(line)
