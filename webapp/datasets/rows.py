"""Rows of a dataset by their number: read by offset, since a version's file never changes."""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from celery import current_app
from django.core.cache import cache

from training.config import RewardComponent
from training.data import Row, category_of, read_records, row_value
from training.data.checking import IDENTITIES_NAME, Identities, identities_read, identities_write
from training.errors import DataError
from webapp.common.pools import LONG
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


# --- Identities -----------------------------------------------------------------------------------------------------
# The identities of a dataset version's rows: stored next to its rows by the check, made later where that was not
# done.

logger = logging.getLogger(__name__)
AT_ONCE_BYTES = 2 << 20
"""A file of rows up to this size is read where it is asked for; a worker reads larger ones."""
ASK_AGAIN_S = 300
TASK = "datasets.identify"


def identities_of(rows: Path) -> Identities | None:
    """The identities of the rows in a version's ``rows.jsonl``; ``None`` where they are not known (yet)."""
    found = identities_read(rows.with_name(IDENTITIES_NAME))
    if found is not None or not rows.is_file():
        return found
    if rows.stat().st_size > AT_ONCE_BYTES:
        _order_identities(rows)
        return None
    return identities_read(rows.with_name(IDENTITIES_NAME)) if identities_make(rows) else None


def identities_make(rows: Path) -> bool:
    """Read the rows and keep their identities. Returns whether that could be done."""
    try:
        identities_write(_rows_of_file(rows), rows.with_name(IDENTITIES_NAME))
    except (DataError, OSError) as exc:
        logger.warning("rows could not be identified: %s", exc, extra={"path": str(rows)})
        return False
    return True


def _rows_of_file(path: Path) -> Iterator[Row]:
    return (record.row for record in read_records(path) if record.row is not None)


def _order_identities(rows: Path) -> None:
    """Have a worker make them; asked again every ``ASK_AGAIN_S`` until they are there. A broker failure is only
    logged."""
    try:
        dataset = str(UUID(rows.parent.name))
        if cache.add(f"identify:{dataset}", 1, ASK_AGAIN_S):
            current_app.send_task(TASK, args=[dataset], queue=LONG, retry=False)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("work not sent: %s", exc, extra={"work": TASK, "path": str(rows)})


# --- Categories -----------------------------------------------------------------------------------------------------
# The categories of a dataset version's rows: the one reader for every page that counts by category.

READ_BYTES = 64 << 20
"""Bytes read of a file; later rows have no category."""
KEPT = 32  # files


class Categories(NamedTuple):
    """The names of a dataset's categories, and the place of each row's among them; -1 where it has none."""

    names: list[str]
    of_row: array[int]

    def of(self, row: int) -> str:
        """The category of a row; empty where it has none."""
        return self.names[self.of_row[row]] if row < len(self.of_row) and self.of_row[row] >= 0 else ""

    def rows(self, name: str) -> list[int]:
        """The rows of a category."""
        if name not in self.names:
            return []
        at = self.names.index(name)
        return [row for row, found in enumerate(self.of_row) if found == at]


@lru_cache(maxsize=KEPT)  # the rows of a version never change
def categories_in_file(path: Path) -> Categories:
    """The categories of the rows in a file; none where it is gone."""
    names: dict[str, int] = {}
    of_row, left = array("i"), READ_BYTES
    try:
        with path.open("rb") as file:
            for line in file:
                left -= len(line)
                if left < 0:
                    break
                name = _category_of_line(line)
                of_row.append(names.setdefault(name, len(names)) if name else -1)
    except OSError:
        return Categories([], array("i"))
    return Categories(list(names), of_row)


def _category_of_line(line: bytes) -> str:
    try:
        return category_of(json.loads(line))
    except (ValueError, RecursionError):
        return ""


# --- Expected answers ---------------------------------------------------------------------------------------------

EXPECTED_FIELDS = (
    "answer",
    "expected_answer",
    "expected",
    "ground_truth",
    "reward_model.ground_truth",
    "extra_info.answer",
    "possible_answer",
    "solution",
    "final_answer",
    "target",
    "verifier",
)
"""The usual fields of an expected answer; fields that the run's components read come before them."""
SHOWN_CHARS = 4_000


class Expected(NamedTuple):
    """A field of the row and what it says; ``value`` is JSON, ``text`` the same as text, cut where it is long."""

    field: str
    value: Any
    text: str


def expected_of(row: dict[str, Any], components: Sequence[RewardComponent] = ()) -> list[Expected]:
    """The row's fields with an expected answer: first those that the run's components compare with, then usual ones."""
    found: list[Expected] = []
    for field in dict.fromkeys((*_fields_of(components), *EXPECTED_FIELDS)):
        value = row_value(row, field)
        if value is not None and value not in ("", [], {}):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append(Expected(field, value, text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} …"))
    return found


def _fields_of(components: Sequence[RewardComponent]) -> Iterator[str]:
    """The row's fields that components name in their parameters."""
    for item in components:
        value = item.params.get("truth_field")
        if isinstance(value, str) and value:
            yield value
