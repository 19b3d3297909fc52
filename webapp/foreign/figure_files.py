"""The metrics of a run as CSV, parquet and TensorBoard's event files: the figures that its curves show, all of them.

For a step that several attempts trained only the figure that counts is written, so no step comes twice. Times are those
at which the trainer wrote the step; a figure whose time is not known has none, and in event files its run's beginning.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from training.event_files import EventFile
from training.events import Metrics
from training.journal import JOURNAL_NAME, parse_event
from webapp.common.csv_text import csv_lines

PARQUET_ROWS = 50_000
_HEAD_BYTES = 200
LONG = ("step", "time", "attempt", "name", "value")


class Figure(NamedTuple):
    """One figure; ``at`` is in seconds since 1970."""

    step: int
    attempt: int
    name: str
    value: float
    at: float | None


def step_times(folder: Path) -> dict[int, float]:
    """When the trainer wrote each step of an attempt, as its journal says; empty where that is gone."""
    found: dict[int, float] = {}
    try:
        with open(folder / JOURNAL_NAME, "rb") as file:
            for line in file:
                if b'"type":"metrics"' in line[:_HEAD_BYTES] and (event := _parse_metrics(line)) is not None:
                    found.setdefault(event.step, event.t)
    except OSError:
        return found
    return found


def _parse_metrics(line: bytes) -> Metrics | None:
    try:
        event = parse_event(line)
    except ValueError:
        return None
    return event if isinstance(event, Metrics) else None


def _iso_time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def write_csv(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A line for each figure."""
    rows = ((item.step, _iso_time(item.at), item.attempt, item.name, item.value) for item in figures)
    _write_lines(LONG, rows, path)


def write_csv_wide(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A line for each step, a column for each metric; missing figures are empty."""

    def rows() -> Iterator[list[Any]]:
        for step, group in groupby(figures, key=lambda item: item.step):
            found = {item.name: item for item in group}
            last = max(found.values(), key=lambda item: item.attempt)
            yield [step, _iso_time(last.at), last.attempt, *(found[n].value if n in found else None for n in names)]

    _write_lines([*LONG[:3], *names], rows(), path)


def _write_lines(header: Sequence[str], rows: Iterable[Sequence[object]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_lines(header, rows))


def write_parquet(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A row for each figure, with times as timestamps in UTC."""
    import pyarrow
    import pyarrow.parquet

    kinds = (
        pyarrow.int64(),
        pyarrow.timestamp("ms", "UTC"),
        pyarrow.int32(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        pyarrow.float64(),
    )
    schema = pyarrow.schema(list(zip(LONG, kinds, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in _in_parts(figures, PARQUET_ROWS):
            columns = (
                [item.step for item in part],
                [None if item.at is None else int(item.at * 1000) for item in part],
                [item.attempt for item in part],
                [item.name for item in part],
                [item.value for item in part],
            )
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _in_parts(figures: Iterable[Figure], size: int) -> Iterator[list[Figure]]:
    part: list[Figure] = []
    for item in figures:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def write_tensorboard(figures: Iterable[Figure], names: Sequence[str], path: Path, title: str, begun: float) -> None:
    """A zip with one event file in a folder with the run's name, which TensorBoard shows as its name."""
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:
        events = EventFile(file, begun)  # type: ignore[arg-type]
        for (step, _attempt), group in groupby(figures, key=lambda item: (item.step, item.attempt)):
            found = list(group)
            events.scalars(step, begun if found[0].at is None else found[0].at, {i.name: i.value for i in found})
        file.flush()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.write(file.name, f"{title}/events.out.tfevents.{int(begun):010d}.tiltyard")


Writer = Callable[[Iterable[Figure], Sequence[str], Path, str, float], None]
WRITERS: dict[str, tuple[Writer, str]] = {
    "csv": (write_csv, "csv"),
    "csv_wide": (write_csv_wide, "wide.csv"),
    "parquet": (write_parquet, "parquet"),
    "tensorboard": (write_tensorboard, "tensorboard.zip"),
}
"""The writer of each format, and the suffix of its file's name."""
