"""The journal: the trainer's only voice, an append-only ``journal.jsonl`` of versioned events.

Each line is one event: ``{"v": 1, "n": <line number from 1>, "t": <unix seconds>, "type": ..., ...}``. A line counts
only when it ends in a newline, so a torn last line after a crash is no event. Writing never waits for a database; a
background thread flushes and fsyncs at least once a second. The supervisor projects the file into Postgres by byte
offset, and ``manage.py import_run`` does the same for a finished folder. Non-finite floats are the strings "NaN",
"Infinity", "-Infinity".
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from training.events import AnyEvent, Event

# A journal read from its end: what its last lines say, without reading the gigabytes before them.

CHUNK_BYTES = 1 << 16
_ROLLOUT = re.compile(rb'"rollout":"a(\d+)-s')


def drop_torn_tail(path: Path) -> tuple[int, int]:
    """Cut a last line without newline off. Returns how many whole lines stand before it, and their bytes."""
    if not path.exists():
        return 0, 0
    end = _end_of_whole_lines(path)
    if end < path.stat().st_size:
        os.truncate(path, end)
    last = next(lines_backwards(path), b"")
    number = _loaded(last).get("n", 0)
    return (number if isinstance(number, int) and number > 0 else _count_lines(path)), end


def lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines of a file from the last to the first, with one chunk and one line in memory. No file, no lines."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position:
            size = min(CHUNK_BYTES, position)
            position -= size
            file.seek(position)
            pieces = (file.read(size) + rest).split(b"\n")
            rest = pieces[0]
            yield from (line for line in reversed(pieces[1:]) if line)
        if rest:
            yield rest


def last_step(path: Path) -> int:
    """The last step whose metrics stand in a journal; 0 where there is none."""
    for line in lines_backwards(path):
        if b'"type":"metrics"' in line and (found := _loaded(line)).get("type") == "metrics":
            return int(found.get("step", 0))
    return 0


def last_figure(path: Path, name: str) -> float | None:
    """The last value of a metric in a journal; ``None`` where there is none."""
    sought = f'"{name}":'.encode()
    for line in lines_backwards(path):
        if sought in line and (found := _loaded(line)).get("type") == "metrics":
            value = found.get("values", {}).get(name)
            if isinstance(value, int | float):
                return float(value)
    return None


def last_attempt(path: Path) -> int:
    """The number of the last attempt that wrote into a journal, by its rollouts' names or its start; 0 without one."""
    for line in lines_backwards(path):
        if (match := _ROLLOUT.search(line)) is not None:
            return int(match[1])
        if b'"type":"run_started"' in line:
            return max(1, int(_loaded(line).get("attempt", 1)))
    return 0


def _end_of_whole_lines(path: Path) -> int:
    with open(path, "rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position:
            size = min(CHUNK_BYTES, position)
            position -= size
            file.seek(position)
            if (place := file.read(size).rfind(b"\n")) >= 0:
                return position + place + 1
    return 0


def _count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
