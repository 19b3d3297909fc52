"""How rows are stored in a file, and how they come out of it, whatever they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from training.data.files import csvfile, jsonl, jsonlist, parquet
from training.data.files.sniff import sniff
from training.data.formats.base import Sample
from training.data.limits import CheckLimits
from training.data.raw import Raw

SAMPLE_ROWS = 20
_READERS: dict[str, Callable[[Path], Iterator[Raw]]] = {
    "jsonl": jsonl.read_values,
    "json": jsonlist.read_values,
    "csv": csvfile.read_values,
    "parquet": parquet.read_values,
}


class Opened(NamedTuple):
    """A file whose container is known. ``total`` is what the offsets of its rows run to."""

    path: Path
    container: str
    evidence: list[str]
    total: int
    columns: list[str]

    def values(self) -> Iterator[Raw]:
        """Its rows, from the first. Raises ``DataError``."""
        return _READERS[self.container](self.path)

    def sample(self) -> Sample:
        """Its first rows that can be decoded."""
        raws = islice(self.values(), SAMPLE_ROWS)
        return Sample(self.container, [raw.value for raw in raws if raw.value is not None], self.columns)


def open_values(path: Path, max_rows: int = CheckLimits.max_rows) -> Opened:
    """Tell what the file is and measure it. Raises ``DataError``."""
    found = sniff(path)
    if found.name == "parquet":
        total = parquet.measure(path, max_rows)
        return Opened(path, found.name, found.evidence, total, parquet.columns(path))
    return Opened(path, found.name, found.evidence, path.stat().st_size, [])
