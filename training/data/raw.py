"""What a file's rows are before anybody knows their format."""

from __future__ import annotations

from typing import Any, NamedTuple

from training.data.facts import Ignored
from training.data.problems import RowError
from training.data.schema import Row


class Raw(NamedTuple):
    """One decoded row, or why it could not be decoded.

    ``line`` counts from 1: lines of JSON Lines and CSV, rows of parquet, items of a JSON list. ``offset`` is how many
    bytes were read so far: of the file, or of the decoded data in parquet.
    """

    line: int
    offset: int
    value: dict[str, Any] | None
    error: RowError | None = None
    text: str = ""
    """The JSON that it was decoded from, where the reader has it at hand."""
    ignored: tuple[Ignored, ...] = ()
    """Columns that are not in ``value`` because JSON cannot carry what they hold."""


class Record(NamedTuple):
    """One row of a dataset, or the reason why it has none. Numbers as in ``Raw``."""

    line: int
    offset: int
    row: Row | None
    error: RowError | None = None
    text: str = ""
    """The row as it stood in the file, where that is our own spelling already and can be copied."""
    ignored: tuple[Ignored, ...] = ()
    """Columns that were kept out of the row."""

    @property
    def reason(self) -> str:
        """Why there is no row, as a sentence without its end stop."""
        return str(self.error) if self.error else ""


class Sample(NamedTuple):
    """The first rows of a file, and how they are stored."""

    container: str
    rows: list[dict[str, Any]]
    columns: list[str]
