"""Stream conversation JSONL in constant memory: one JSON object per line, UTF-8, BOM and CRLF accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from training.data.limits import MAX_LINE_BYTES
from training.data.schema import Row, RowError, row_from_dict, strict_loads
from training.data.sniff import open_regular

_BOM = b"\xef\xbb\xbf"


class Record(NamedTuple):
    """One row of a file, or the reason why it has none.

    ``line`` counts from 1 (rows in parquet). ``offset`` is how many bytes were read so far: of the file, or of the
    decoded data in parquet.
    """

    line: int
    offset: int
    row: Row | None
    reason: str = ""


def read_jsonl(path: Path) -> Iterator[Record]:
    """Yield a record for each line that is not blank. Raises ``DataError`` when the file cannot be opened."""
    with open_regular(path) as file:
        number = offset = 0
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            start, ended = offset, line.endswith(b"\n")
            offset += len(line)
            if not ended and len(line) > MAX_LINE_BYTES:
                while rest := file.readline(MAX_LINE_BYTES):
                    offset += len(rest)
                    if rest.endswith(b"\n"):
                        break
                yield Record(number, offset, None, f"the line is longer than {MAX_LINE_BYTES >> 20} MB")
                continue
            if number == 1 and line.startswith(_BOM):
                line, start = line[len(_BOM) :], len(_BOM)
            if not line.strip():
                continue
            try:
                yield Record(number, offset, _row(line, start))
            except RowError as exc:
                reason = str(exc)
                if not ended and "JSON" in reason:
                    reason = "the last line is cut off: the file ends in the middle of it"
                yield Record(number, offset, None, reason)


def _row(line: bytes, start: int) -> Row:
    """One line, which begins at byte ``start`` of the file, as a row. Raises ``RowError``."""
    if b"\0" in line:
        raise RowError(f"holds a NUL byte at byte {start + line.index(0)} of the file")
    try:
        text = line.decode()
    except UnicodeDecodeError as exc:
        raise RowError(f"not UTF-8: byte {start + exc.start} of the file cannot be decoded") from None
    value = strict_loads(text)
    if not isinstance(value, dict):
        raise RowError("the line is not a JSON object")
    return row_from_dict(value)
