"""Tables as CSV that a spreadsheet opens unchanged, without running any formula."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

PIECE_LINES = 200

# Where a text, or what is a cell of it to a spreadsheet that separates by `;` or tab, begins as a formula does. Quotes
# do not help there: to such a spreadsheet only the first cell of a line begins with one.
_FORMULA = re.compile(r'(^|[;\t\r\n])(?="*[=+\-@\t\r])')


class _Echo:
    """The target of a CSV writer: returns each line."""

    def write(self, text: str) -> str:
        return text


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines, with a mark in front by which a spreadsheet knows UTF-8; ``None`` is an empty cell. All are quoted."""
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_ALL)
    yield "\ufeff" + writer.writerow(map(cell, header))
    for row in rows:
        yield writer.writerow([value if isinstance(value, int | float | None) else cell(str(value)) for value in row])


def cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula, at any place where it may split it: an apostrophe is put
    before."""
    return _FORMULA.sub(r"\1'", text)


class CsvResponse(StreamingHttpResponse):
    """A table as a file, sent while its lines are made.

    Django's own answer would make all lines before it sends the first one, where the server is asynchronous.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        super().__init__(lines, content_type="text/csv; charset=utf-8")
        self["Content-Disposition"] = f'attachment; filename="{name}"'
        self["X-Content-Type-Options"] = "nosniff"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines: Any = iter(self)
        first = await sync_to_async(next)(lines)  # the header, before anything is asked of the database
        yield first
        while piece := await sync_to_async(_join_lines)(lines):
            yield piece


def _join_lines(lines: Iterator[bytes]) -> bytes:
    return b"".join(islice(lines, PIECE_LINES))
