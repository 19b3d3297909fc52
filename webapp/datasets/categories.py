"""The categories of a dataset version's rows: the one reader for every page that counts by category."""

from __future__ import annotations

import json
from array import array
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from training.rows import category_of

READ_BYTES = 64 << 20
"""Bytes read of a file; later rows have no category."""
KEPT = 32  # files


class Categories(NamedTuple):
    """The names of a dataset's categories, and the place of each row's among them; -1 where it has none."""

    names: list[str]
    of_row: array[int]

    def of(self, row: int) -> str:
        """The category of a row; empty where it has none."""
        return self.names[self.of_row[row]] if row < len(self.of_row) and self.of_row[row] >= 0 else ""

    def rows(self, name: str) -> list[int]:
        """The rows of a category."""
        if name not in self.names:
            return []
        at = self.names.index(name)
        return [row for row, found in enumerate(self.of_row) if found == at]


@lru_cache(maxsize=KEPT)  # the rows of a version never change
def categories_in_file(path: Path) -> Categories:
    """The categories of the rows in a file; none where it is gone."""
    names: dict[str, int] = {}
    of_row, left = array("i"), READ_BYTES
    try:
        with path.open("rb") as file:
            for line in file:
                left -= len(line)
                if left < 0:
                    break
                name = _category_of_line(line)
                of_row.append(names.setdefault(name, len(names)) if name else -1)
    except OSError:
        return Categories([], array("i"))
    return Categories(list(names), of_row)


def _category_of_line(line: bytes) -> str:
    try:
        return category_of(json.loads(line))
    except (ValueError, RecursionError):
        return ""
