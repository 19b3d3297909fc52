"""Read any accepted dataset file, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from training.data.jsonl import Record, read_jsonl
from training.data.limits import CheckLimits
from training.data.parquet import measure, read_parquet
from training.data.schema import Row
from training.data.sniff import sniff
from training.errors import DataError


def read_records(path: Path) -> Iterator[Record]:
    """Stream the rows of a JSONL or parquet file, good and bad. Raises ``DataError`` when it cannot be read at all."""
    if sniff(path).name == "jsonl":
        yield from read_jsonl(path)
        return
    measure(path, CheckLimits.max_rows)
    yield from read_parquet(path)


def load_rows(path: Path | str, max_rows: int = 0) -> list[Row]:
    """All rows of a dataset, or its first ``max_rows`` where that is above 0.

    Raises ``DataError`` naming the line of the first bad row, or when the file cannot be read or has no rows.
    """
    rows: list[Row] = []
    for record in islice(read_records(Path(path)), max_rows or None):
        if record.row is None:
            raise DataError(f"{Path(path).name}, line {record.line}: {record.reason}.")
        rows.append(record.row)
    if not rows:
        raise DataError(f"{Path(path).name} has no rows.")
    return rows
