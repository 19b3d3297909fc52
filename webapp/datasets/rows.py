"""Rows of a dataset by their number: read by offset, since a version's file never changes."""

from __future__ import annotations

import json
from array import array
from functools import lru_cache
from itertools import islice
from typing import Any

from webapp.datasets.models import Dataset, DatasetState

MAX_LINE_BYTES = 4 << 20
EVERY = 64
"""The offset of one line in this many is kept in memory; the others are counted from there."""


def row_of(dataset: Dataset, number: int) -> dict[str, Any] | None:
    """Row ``number`` (from 1) as ``rows.jsonl`` has it; ``None`` where there is none, or its file is gone."""
    if dataset.state != DatasetState.READY or not 1 <= number <= dataset.rows:
        return None
    try:
        line = _line_at(str(dataset.rows_path), number - 1)
        found = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _line_at(path: str, place: int) -> bytes:
    places = _line_offsets(path)
    with open(path, "rb") as file:
        if place // EVERY >= len(places):
            return b""
        file.seek(places[place // EVERY])
        return next(islice(file, place % EVERY, None), b"")


@lru_cache(maxsize=64)
def _line_offsets(path: str) -> array[int]:
    """The offset in bytes of every ``EVERY``-th line."""
    found, at = array("Q"), 0
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if number % EVERY == 0:
                found.append(at)
            at += len(line)
    return found
