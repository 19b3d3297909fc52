"""Stream a CSV or TSV file in constant memory: each row an object of its header's names, every value text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from training.data.files.encoding import UTF8
from training.data.files.jsonl import BOM
from training.data.files.sniff import delimiter_of, open_regular
from training.data.limits import MAX_COLUMNS, MAX_LINE_BYTES
from training.data.problems import RowError
from training.data.raw import Raw
from training.data.strict import check_tree
from training.errors import DataError
from training.reasons import csv_reason
from training.words import _, sentence


class _Lines:
    """The lines of the file as text. What cannot be decoded becomes a lone surrogate, which no row may hold."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self.file, self.encoding = file, encoding
        self.bytes = self.number = 0
        self.size = 0
        """Bytes of the row that is being read."""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self.file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        self.bytes += len(line)
        self.size += len(line)
        self.number += 1
        if self.size > MAX_LINE_BYTES:
            raise csv.Error("the row is too long; is a quote never closed?")
        return line.decode(self.encoding, errors="surrogateescape")


def read_values(path: Path, encoding: str = UTF8) -> Iterator[Raw]:
    """Yield a row for each row below the header. Raises ``DataError`` for a file without a usable header."""
    csv.field_size_limit(MAX_LINE_BYTES)  # a long field must not end a row in its middle; it is judged with the others
    with open_regular(path) as file:
        first = file.readline(MAX_LINE_BYTES)
        delimiter = delimiter_of(first.removeprefix(BOM).decode(encoding, errors="replace"))
        file.seek(len(BOM) if first.startswith(BOM) else 0)
        lines = _Lines(file, encoding)
        reader = csv.reader(lines, delimiter=delimiter or ",", strict=True)
        header = _header(reader)
        while True:
            lines.size = 0
            line = lines.number + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as exc:
                yield Raw(line, lines.bytes, None, RowError("csv", detail=csv_reason(exc)))
                continue
            if cells:
                yield _row(header, cells, line, lines.bytes)


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader)
    except (StopIteration, csv.Error) as exc:
        raise DataError(
            sentence(_("The first line is not the header of a CSV file: {reason}."), reason=csv_reason(exc))
        ) from exc
    names = [name.strip() for name in header]
    if len(names) > MAX_COLUMNS:
        raise DataError(
            sentence(
                _("The file has {count} columns; {limit} are allowed."),
                count=len(names),
                limit=MAX_COLUMNS,
            )
        )
    if len(set(names)) != len(names) or not all(names):
        raise DataError(_("Two columns of the header have one name, or one has none."), hint=_("Name every column."))
    return names


def _row(header: list[str], cells: list[str], line: int, offset: int) -> Raw:
    if len(cells) != len(header):
        return Raw(line, offset, None, RowError("csv_cells", count=len(cells), expected=len(header)))
    value = dict(zip(header, cells, strict=True))
    try:
        check_tree(value)
    except RowError as exc:
        return Raw(line, offset, None, RowError("utf8_row") if exc.code == "surrogate" else exc)
    return Raw(line, offset, value)
