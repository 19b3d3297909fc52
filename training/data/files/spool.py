"""Converted rows on disk, read again in any order: shuffling and two passes without holding the rows in memory."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, cast

from training.data.files.encode import to_json


class Spool(AbstractContextManager["Spool"]):
    """A temporary file of JSON lines with the place of each; 8 bytes of memory a row."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.TemporaryFile(prefix="tiltyard-rows-"))  # noqa: SIM115 - closed on exit
        self._places = array("Q")
        self._size = 0

    def add(self, value: dict[str, Any]) -> None:
        """Append one row."""
        self._places.append(self._size)
        self._size += self._file.write(to_json(value).encode() + b"\n")

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Rows by their numbers, in that order. Nothing may be added afterwards."""
        return map(json.loads, self.lines(numbers))

    def lines(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """The same as the lines that they are stored as, each with its end."""
        for number in numbers:
            self._file.seek(self._places[number])
            yield self._file.readline()

    def __exit__(self, *_: object) -> None:
        self._file.close()
