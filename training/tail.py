"""A journal read from its end: what its last lines say, without reading the gigabytes before them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
