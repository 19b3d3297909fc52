"""Make datasets of datasets: split, subset, filter, mix. Pure, and streaming but for the numbers of the rows.

Each gives numbers of rows, or rows, and facts about where they come from, which the new dataset keeps as its lineage.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from training.data.checking.checks import value_at
from training.data.options import FilterOptions, FilterRule, MixOptions, SplitOptions, SubsetOptions

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
        """What was kept of what was seen so far."""
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
