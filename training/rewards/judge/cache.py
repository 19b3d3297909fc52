"""Replies of judges, kept by what was asked, so that the same transcript is never paid for twice.

In memory by default; ``keep_in`` adds a file of one JSON object a line, in the run's directory, which is read again
after a restart and by later attempts. Failures are never kept.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

MAX_REPLIES = 20_000
REPLIES_NAME = "judge.jsonl"


class ReplyCache:
    """The newest replies by key; safe for many threads."""

    def __init__(self) -> None:
        self._replies: OrderedDict[str, float] = OrderedDict()
        self._file: Path | None = None
        self._lock = threading.Lock()

    def keep_in(self, file: Path | None, earlier: Iterable[Path] = ()) -> None:
        """Read the replies of ``earlier`` files and of this one, and append new ones to it; ``None``: memory only."""
        with self._lock:
            self._file = file
            for path in [*earlier, *([file] if file else [])]:
                if path.is_file():
                    with path.open(encoding="utf-8", errors="replace") as lines:
                        for line in lines:
                            self._read_line(line)

    def get(self, key: str) -> float | None:
        """The value that was given, or ``None``."""
        with self._lock:
            if key not in self._replies:
                return None
            self._replies.move_to_end(key)
            return self._replies[key]

    def put(self, key: str, value: float) -> None:
        """Keep a value."""
        with self._lock:
            self._remember(key, value)
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"key": key, "value": value}) + "\n")

    def clear(self) -> None:
        """Forget all replies; the file stays."""
        with self._lock:
            self._replies.clear()

    def _remember(self, key: str, value: float) -> None:
        self._replies[key] = value
        self._replies.move_to_end(key)
        while len(self._replies) > MAX_REPLIES:
            self._replies.popitem(last=False)

    def _read_line(self, line: str) -> None:
        """One line of the file; the last one may be cut off."""
        try:
            entry = json.loads(line)
            self._remember(str(entry["key"]), float(entry["value"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return


replies = ReplyCache()
