"""Tables as CSV that a spreadsheet opens as they are, and runs nothing of."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Echo:
    """What a CSV writer writes to: it gives each line back."""

    def write(self, text: str) -> str:
        return text


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines, with a mark in front by which a spreadsheet knows UTF-8; ``None`` is an empty cell."""
    writer = csv.writer(_Echo())
    yield "\ufeff" + writer.writerow(map(cell, header))
    for row in rows:
        yield writer.writerow([cell(value) if isinstance(value, str) else value for value in row])


def cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: such a one begins with an apostrophe."""
    return f"'{text}" if text.startswith(_FORMULA) else text
