"""Read any accepted dataset file, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from training.data.files.containers import Opened, open_values
from training.data.formats import choose, format_of
from training.data.formats.base import DataFormat, Evidence
from training.data.limits import CheckLimits
from training.data.options import Cut, ReadOptions
from training.data.problems import RowError
from training.data.raw import Record, Sample
from training.data.recognition import Recognition, recognition_of
from training.data.run_files import refuse_events, refuse_run
from training.data.schema import CONVERSATION_KEYS, Row, make_row
from training.errors import DataError
from training.words import _, sentence

# --- Cutting --------------------------------------------------------------------------------------------------------
# Cut the conversation of a row where the model is to begin.


def cut_row(row: Row, cut: Cut) -> Row:
    """The row with the beginning of its conversation. Raises ``RowError`` where nothing would be left.

    A row without an assistant turn has nothing to cut off and stays as it is.
    """
    turns = [number for number, message in enumerate(row.messages) if message.role == "assistant"]
    if cut is Cut.NONE or not turns:
        return row
    end = turns[0] if cut is Cut.QUERY else turns[-1]
    if not end:
        raise RowError("conversation_empty", key=row.spelling.key)
    return make_row(
        row.messages[:end],
        row.extra,
        tools=row.tools,
        others=row.others[:end] if row.others else None,
        offered=row.offered,
        notes=[],
        facts=row.facts,
        spelling=replace(row.spelling, roles=row.spelling.roles[:end], completion=0),
    )


class Source(NamedTuple):
    """A dataset file, its format, and why it is taken for that."""

    opened: Opened
    format: DataFormat
    reasons: list[str]
    options: ReadOptions
    recognised: Recognition

    def records(self) -> Iterator[Record]:
        """Its rows, good and bad, converted and cut. Raises ``DataError``."""
        records = self.format.read(self.opened.values(), self.options)
        return records if self.options.cut is Cut.NONE else _cut(records, self.options.cut)


def open_dataset(
    path: Path, options: ReadOptions | None = None, max_rows: int = CheckLimits.max_rows, *, ask: bool = False
) -> Source:
    """Recognise a file, or take it for what ``options`` say. Raises ``DataError`` when it cannot be read at all.

    Where ``ask`` is set, a table that is not recognised is no error: ``recognised.asks`` then says that somebody has to
    choose.
    """
    options = options or ReadOptions()
    refuse_events(path)
    opened = open_values(path, max_rows)
    sample = opened.sample()
    found = recognition_of(opened, sample)
    if options.format or options.mapping:
        reasons: list[str] = [sentence(_("Chosen by a user."))]
        return Source(opened, format_of(options.format or "columns"), reasons, options, found)
    refuse_run(opened, sample)
    chosen, evidence = choose(sample)
    if evidence is None and not ask:
        _refuse_tables(opened, sample)
    return Source(opened, chosen, _reasons(chosen, evidence), options, found)


def _refuse_tables(opened: Opened, sample: Sample) -> None:
    names = opened.columns or [name for row in sample.rows[:1] for name in row]
    if opened.container in ("parquet", "csv") and not set(CONVERSATION_KEYS) & set(names):
        raise DataError(
            _("The file has no conversation column."),
            hint=sentence(
                _("Name one of its columns {names}, or map its columns."),
                names=" or ".join(CONVERSATION_KEYS),
            ),
        )


def _reasons(chosen: DataFormat, evidence: Evidence | None) -> list[str]:
    if evidence:
        return evidence.reasons
    return [sentence(_("Not recognised; read as {format}."), format=sentence(chosen.title))]


def _cut(records: Iterator[Record], cut: Cut) -> Iterator[Record]:
    for record in records:
        try:
            yield record if record.row is None else record._replace(row=cut_row(record.row, cut), text="")
        except RowError as exc:
            yield record._replace(row=None, error=exc)


def read_records(path: Path, options: ReadOptions | None = None) -> Iterator[Record]:
    """Stream the rows of a file, good and bad. Raises ``DataError`` when it cannot be read at all."""
    yield from open_dataset(path, options).records()


def load_rows(path: Path | str, max_rows: int = 0) -> list[Row]:
    """All rows of a dataset, or its first ``max_rows`` where that is above 0.

    Raises ``DataError`` naming the line of the first bad row, or when the file cannot be read or has no rows.
    """
    rows: list[Row] = []
    for record in islice(read_records(Path(path)), max_rows or None):
        if record.row is None:
            raise DataError(
                sentence(
                    _("{name}, line {line}: {reason}."),
                    name=Path(path).name,
                    line=record.line,
                    reason=record.reason,
                )
            )
        rows.append(record.row)
    if not rows:
        raise DataError(sentence(_("{name} has no rows."), name=Path(path).name))
    return rows
