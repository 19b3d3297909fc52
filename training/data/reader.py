"""Read any accepted dataset file, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from training.data.containers import Opened, open_values
from training.data.cutting import cut_row
from training.data.formats import choose, format_of
from training.data.formats.base import DataFormat, Evidence, Sample
from training.data.limits import CheckLimits
from training.data.options import Cut, ReadOptions
from training.data.problems import Finding, RowError
from training.data.raw import Record
from training.data.report import shorten
from training.data.schema import CONVERSATION_KEYS, Row
from training.errors import DataError


class Source(NamedTuple):
    """A dataset file, its format, and why it is taken for that."""

    opened: Opened
    format: DataFormat
    reasons: list[str]
    options: ReadOptions

    def records(self) -> Iterator[Record]:
        """Its rows, good and bad, converted and cut. Raises ``DataError``."""
        records = self.format.read(self.opened.values(), self.options)
        return records if self.options.cut is Cut.NONE else _cut(records, self.options.cut)


class Preview(NamedTuple):
    """The first rows of a file as they would come out."""

    format: str
    reasons: list[str]
    rows: list[dict[str, Any]]
    bad: list[Finding]


def open_dataset(path: Path, options: ReadOptions | None = None, max_rows: int = CheckLimits.max_rows) -> Source:
    """Recognise a file, or take it for what ``options`` say. Raises ``DataError`` when it cannot be read at all."""
    options = options or ReadOptions()
    opened = open_values(path, max_rows)
    if options.format or options.mapping:
        return Source(opened, format_of(options.format or "columns"), ["Chosen by a person."], options)
    sample = opened.sample()
    chosen, evidence = choose(sample)
    if evidence is None:
        _refuse_tables(opened, sample)
    return Source(opened, chosen, _reasons(chosen, evidence), options)


def _refuse_tables(opened: Opened, sample: Sample) -> None:
    names = opened.columns or [name for row in sample.rows[:1] for name in row]
    if opened.container in ("parquet", "csv") and not set(CONVERSATION_KEYS) & set(names):
        raise DataError(
            "The file has no conversation column.",
            hint=f"Name one of its columns {' or '.join(CONVERSATION_KEYS)}, or map its columns.",
        )


def _reasons(chosen: DataFormat, evidence: Evidence | None) -> list[str]:
    return evidence.reasons if evidence else [f"Nothing was recognised; read as {chosen.title.lower()}."]


def _cut(records: Iterator[Record], cut: Cut) -> Iterator[Record]:
    for record in records:
        try:
            yield record if record.row is None else record._replace(row=cut_row(record.row, cut), text="")
        except RowError as exc:
            yield record._replace(row=None, error=exc)


def read_records(path: Path, options: ReadOptions | None = None) -> Iterator[Record]:
    """Stream the rows of a file, good and bad. Raises ``DataError`` when it cannot be read at all."""
    yield from open_dataset(path, options).records()


def preview(path: Path, options: ReadOptions | None = None, rows: int = 10) -> Preview:
    """The first rows as ``options`` would make them, texts shortened. Raises ``DataError``."""
    source = open_dataset(path, options)
    good: list[dict[str, Any]] = []
    bad: list[Finding] = []
    for record in islice(source.records(), rows):
        if record.row is not None:
            good.append(shorten(record.row.normal()))
        elif record.error is not None:
            bad.append(record.error.finding(record.line))
    return Preview(source.format.name, [*source.opened.evidence, *source.reasons], good, bad)


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
