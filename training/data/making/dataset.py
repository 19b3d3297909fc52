"""Make the file of a new dataset from the checked rows of others, in constant memory.

A row that is kept is copied byte for byte; of the rows themselves only their places are held, 8 bytes each. The
parents are files that a check has written (``rows.jsonl``), so their lines are taken as they are.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from training.data.checking.checks import value_at
from training.data.files.encoding import encoded
from training.data.making import operations
from training.data.options import (
    CutOptions,
    FilterOptions,
    MixOptions,
    Options,
    PickOptions,
    SplitOptions,
    SubsetOptions,
)
from training.data.problems import RowError
from training.data.reader import cut_row
from training.data.schema import row_from_dict
from training.errors import DataError

OPERATIONS: dict[str, type[Options]] = {
    "split": SplitOptions,
    "subset": SubsetOptions,
    "pick": PickOptions,
    "filter": FilterOptions,
    "mix": MixOptions,
    "cut": CutOptions,
}
PARTS = ("train", "validation")
PROGRESS_EVERY_S = 0.2
OnProgress = Callable[[int, int], None]
"""Bytes gone through, and bytes in all."""


class Made(NamedTuple):
    """What was written. ``taken`` counts the rows of each parent that went into it."""

    rows: int
    bytes: int
    taken: list[int]


def make(
    operation: str,
    options: Options,
    parents: list[Path],
    target: Path,
    *,
    part: str = "",
    limit_bytes: int = 0,
    on_progress: OnProgress | None = None,
) -> Made:
    """Write ``target``, which must not exist. Raises ``DataError`` where nothing, or too much, would be in it."""
    taken = [0] * len(parents)
    track = _Track(sum(path.stat().st_size for path in parents), on_progress)
    made = _rows(operation, options, parents, part, track, taken)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    rows = size = 0
    with os.fdopen(handle, "wb") as file:
        for line in made:
            rows, size = rows + 1, size + len(line)
            if limit_bytes and size > limit_bytes:
                raise DataError("The rows are larger than a dataset may be.", hint="Take fewer rows.")
            file.write(line)
    if not rows:
        raise DataError("No row is left.", hint="Choose other rows, or loosen the rules.")
    return Made(rows, size, taken)


def matching(path: Path, options: FilterOptions, limit_s: float) -> tuple[int, int, bool]:
    """Rows that meet all rules, rows that were looked at, and whether those were all: it stops after ``limit_s``."""
    until, found, seen = time.monotonic() + limit_s, 0, 0
    with path.open("rb") as file:
        for line in file:
            seen += 1
            found += _meets(line, options)
            if not seen % 64 and time.monotonic() > until:
                return found, seen, not file.readline()
    return found, seen, True


class _Track:
    """Tells how far it has come, a few times a second."""

    def __init__(self, total: int, tell: OnProgress | None) -> None:
        self.total, self.done, self._tell, self._due = total, 0, tell, 0.0

    def step(self, size: int) -> None:
        """So many bytes more."""
        self.done += size
        if self._tell is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + PROGRESS_EVERY_S
            self._tell(min(self.done, self.total), self.total)


class _Index:
    """Where each line of a file begins."""

    def __init__(self, file: BinaryIO, track: _Track) -> None:
        self._file, self._places = file, array("Q")
        place = 0
        for line in file:
            self._places.append(place)
            place += len(line)
            track.step(0)

    def __len__(self) -> int:
        return len(self._places)

    def lines(self, numbers: Iterable[int], track: _Track) -> Iterator[bytes]:
        """Lines by their numbers, in that order."""
        for number in numbers:
            self._file.seek(self._places[number])
            line = self._file.readline()
            track.step(len(line))
            yield line


def _rows(
    operation: str, options: Options, parents: list[Path], part: str, track: _Track, taken: list[int]
) -> Iterator[bytes]:
    """The lines of the new file."""
    if isinstance(options, MixOptions):
        mix = operations.Mix([_lines(path, track) for path in parents], options)
        yield from mix
        taken[:] = mix.taken
        return
    if isinstance(options, SplitOptions | SubsetOptions):
        chosen = _numbered(parents[0], options, part, track)
    elif isinstance(options, FilterOptions):
        chosen = (line for line in _lines(parents[0], track) if _meets(line, options))
    elif isinstance(options, PickOptions):
        wanted = set(options.ids)
        chosen = (line for line in _lines(parents[0], track) if _id_of(line, options.field) in wanted)
    elif isinstance(options, CutOptions):
        chosen = _cut(parents[0], options, track)
    else:
        raise ValueError(operation)
    for line in chosen:
        taken[0] += 1
        yield line


def _lines(path: Path, track: _Track) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            track.step(len(line))
            yield line


def _numbered(path: Path, options: SplitOptions | SubsetOptions, part: str, track: _Track) -> Iterator[bytes]:
    with path.open("rb") as file:
        index = _Index(file, track)
        if isinstance(options, SubsetOptions):
            numbers = operations.subset(len(index), options).numbers
        else:
            parts = operations.split(len(index), options)
            numbers = parts.validation if part == PARTS[1] else parts.train
        yield from index.lines(numbers, track)


def _meets(line: bytes, options: FilterOptions) -> bool:
    row = json.loads(line)
    return all(operations.meets(row, rule) for rule in options.rules)


def _id_of(line: bytes, field: str) -> str | None:
    """A row's id as text; ids are texts in some files and numbers in others."""
    value = value_at(json.loads(line), field)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _cut(path: Path, options: CutOptions, track: _Track) -> Iterator[bytes]:
    """Rows with the beginning of their conversation; one that begins with an assistant turn has none."""
    for line in _lines(path, track):
        value: dict[str, Any] = json.loads(line)
        try:
            yield encoded(cut_row(row_from_dict(value), options.cut).normal()).encode()
        except RowError:
            continue
