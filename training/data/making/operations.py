"""New datasets made of others: split, subset, filter, mix, in constant memory but for the numbers of the rows."""

from __future__ import annotations

import json
import os
import random
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from training.data.checking.checks import value_at
from training.data.files.sniff import encoded
from training.data.options import (
    CutOptions,
    FilterOptions,
    FilterRule,
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

# Which rows an operation takes. Pure, and streaming but for the numbers of the rows.

Value = dict[str, Any]
T = TypeVar("T")


class Lineage(BaseModel):
    """How a dataset came about."""

    operation: str
    options: dict[str, Any] = Field(default_factory=dict)
    rows_in: list[int] = Field(description="Rows of each dataset that it was made from.")
    rows_out: list[int] = Field(description="Rows of each dataset that was made.")


class Parts(NamedTuple):
    """The two parts of a split, as numbers of rows."""

    train: list[int]
    validation: list[int]
    lineage: Lineage


class Chosen(NamedTuple):
    """A subset, as numbers of rows in their order."""

    numbers: list[int]
    lineage: Lineage


def split(count: int, options: SplitOptions) -> Parts:
    """Shuffle ``count`` rows and cut them in two, just as ``random.seed(42)`` and ``random.shuffle`` do."""
    numbers = list(range(count))
    random.Random(options.seed).shuffle(numbers)  # noqa: S311 - reproducible on purpose
    at = int(count * options.train_ratio)
    train, validation = numbers[:at], numbers[at:]
    lineage = Lineage(
        operation="split", options=options.model_dump(), rows_in=[count], rows_out=[len(train), len(validation)]
    )
    return Parts(train, validation, lineage)


def subset(count: int, options: SubsetOptions) -> Chosen:
    """The first rows, or a draw, of ``count`` rows."""
    wanted = min(options.rows, count)
    if options.seed is None:
        numbers = list(range(wanted))
    else:
        numbers = sorted(random.Random(options.seed).sample(range(count), wanted))  # noqa: S311
    lineage = Lineage(operation="subset", options=options.model_dump(), rows_in=[count], rows_out=[wanted])
    return Chosen(numbers, lineage)


class Filter:
    """Rows that meet all rules: iterate over it, and ask for its lineage afterwards."""

    def __init__(self, rows: Iterable[Value], options: FilterOptions) -> None:
        self._rows, self._options = rows, options
        self.rows_in = self.rows_out = 0

    def __iter__(self) -> Iterator[Value]:
        for row in self._rows:
            self.rows_in += 1
            if all(meets(row, rule) for rule in self._options.rules):
                self.rows_out += 1
                yield row

    @property
    def lineage(self) -> Lineage:
        """The filter with the numbers of rows seen and kept so far."""
        options = self._options.model_dump(exclude_unset=True)
        return Lineage(operation="filter", options=options, rows_in=[self.rows_in], rows_out=[self.rows_out])


def meets(row: Value, rule: FilterRule) -> bool:
    """Whether a row in our own spelling meets a rule. Nothing of it is run as code."""
    value = _field(row, rule.field)
    return _holds(value, rule) != rule.negate


def _field(row: Value, name: str) -> Any:
    if name == "turns":
        return row.get("messages", [])
    if name == "text":
        return "\n".join(str(message.get("content", "")) for message in row.get("messages", []))
    return value_at(row, name)


def _holds(value: Any, rule: FilterRule) -> bool:
    asked = rule.model_fields_set
    if "equals" in asked and not (value == rule.equals and type(value) is type(rule.equals)):
        return False
    if rule.contains is not None and not (isinstance(value, str | list) and rule.contains in value):
        return False
    if rule.min_length is None and rule.max_length is None:
        return True
    if not isinstance(value, str | list | dict):
        return False
    return (rule.min_length or 0) <= len(value) and (rule.max_length is None or len(value) <= rule.max_length)


class Mix(Generic[T]):
    """Rows of several datasets by weight, each in its order: iterate over it, and ask for its lineage afterwards.

    It ends with the first dataset that is used up, so that the shares keep to the weights.
    """

    def __init__(self, datasets: list[Iterable[T]], options: MixOptions) -> None:
        if len(datasets) != len(options.weights):
            raise ValueError("one weight for each dataset")
        self._datasets, self._options = datasets, options
        self.taken = [0] * len(datasets)

    def __iter__(self) -> Iterator[T]:
        draw = random.Random(self._options.seed)  # noqa: S311 - reproducible on purpose
        sources = [iter(rows) for rows in self._datasets]
        numbers = range(len(sources))
        while self._options.rows is None or sum(self.taken) < self._options.rows:
            number = draw.choices(numbers, self._options.weights)[0]
            row = next(sources[number], None)
            if row is None:
                return
            self.taken[number] += 1
            yield row

    @property
    def lineage(self) -> Lineage:
        """How many rows of each were taken so far."""
        return Lineage(
            operation="mix", options=self._options.model_dump(), rows_in=self.taken, rows_out=[sum(self.taken)]
        )


# The file of a new dataset, written from the checked rows of others.

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
    """Reports how far it has come, a few times a second."""

    def __init__(self, total: int, report: OnProgress | None) -> None:
        self.total, self.done, self._report, self._due = total, 0, report, 0.0

    def step(self, size: int) -> None:
        """So many bytes more."""
        self.done += size
        if self._report is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + PROGRESS_EVERY_S
            self._report(min(self.done, self.total), self.total)


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
        mix = Mix([_lines(path, track) for path in parents], options)
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
            numbers = subset(len(index), options).numbers
        else:
            parts = split(len(index), options)
            numbers = parts.validation if part == PARTS[1] else parts.train
        yield from index.lines(numbers, track)


def _meets(line: bytes, options: FilterOptions) -> bool:
    row = json.loads(line)
    return all(meets(row, rule) for rule in options.rules)


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
