"""Stream JSON Lines in constant memory: one JSON object per line, UTF-8, BOM and CRLF accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.data.facts import Ignored
from training.data.files.sniff import open_regular
from training.data.limits import MAX_LINE_BYTES
from training.data.problems import RowError
from training.data.raw import Raw
from training.data.strict import row_loads

BOM = b"\xef\xbb\xbf"


def read_values(path: Path) -> Iterator[Raw]:
    """Yield a row for each line that is not blank. Raises ``DataError`` when the file cannot be opened."""
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
                yield Raw(number, offset, None, RowError("line_long", limit=MAX_LINE_BYTES >> 20))
                continue
            if number == 1 and line.startswith(BOM):
                line, start = line[len(BOM) :], len(BOM)
            if not line.strip():
                continue
            try:
                text = decoded(line, start).strip()
                value, ignored = _parse_object(text)
                yield Raw(number, offset, value, None, "" if "\r" in text or ignored else text, ignored)
            except RowError as exc:
                yield Raw(number, offset, None, RowError("cut_off") if not ended and exc.code == "json" else exc)


def _parse_object(text: str) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """One line as an object, and what was kept out of it. Raises ``RowError``."""
    value, ignored = row_loads(text)
    if not isinstance(value, dict):
        raise RowError("not_object")
    return value, ignored


def decoded(line: bytes, start: int) -> str:
    """Bytes from byte ``start`` of the file as text. Raises ``RowError``."""
    if b"\0" in line:
        raise RowError("nul_byte", byte=start + line.index(0))
    try:
        return line.decode()
    except UnicodeDecodeError as exc:
        raise RowError("utf8", byte=start + exc.start) from None
