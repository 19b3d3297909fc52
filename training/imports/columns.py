"""What the columns of a table of metrics are, decided over all of its rows: steps, times, metrics, texts, runs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from training.imports.axis import STEPS, Axis
from training.imports.base import MAX_NAME_CHARS, BadRow, Notes, number_of
from training.imports.choice import one_run
from training.words import _, counted, ngettext, sentence

NAMES, VALUES = ("name", "metric", "tag", "key"), ("value",)
TIMES = ("_timestamp", "wall time", "wall_time", "timestamp")
BETWEEN = " - "
"""Between a run's name and a metric's in the header of a chart of Weights & Biases."""
_BOUNDS = ("__MIN", "__MAX")
_LONG_COLUMNS = 5
_PART = re.compile(r"\s*(\d{1,10})\s*/\s*\d{1,10}\s*$")
_COMMA = re.compile(r"\s*[+-]?\d+(?:\.\d{3})*,(\d+)(?:[eE][+-]?\d+)?\s*$")
_POINT = re.compile(r"\s*[+-]?\d*\.\d+(?:[eE][+-]?\d+)?\s*$")

_PLACED = ngettext(
    "Steps are those of {column}; {n} row without it was placed by the rows that have both.",
    "Steps are those of {column}; {n} rows without it were placed by the rows that have both.",
)
_APART = ngettext(
    "{n} row has no {column} and no link to it: it keeps its own step.",
    "{n} rows have no {column} and no link to it: they keep their own steps.",
)


class Columns:
    """The columns of one table. ``add`` takes in each row, ``decide`` ends that; all else is asked after it."""

    def __init__(self, notes: Notes, *, has_commas: bool = False) -> None:
        """``has_commas``: cells stand between semicolons, as where a comma is the decimal point."""
        self.notes, self._has_commas = notes, has_commas
        self.axis: Axis | None = None
        self.long: tuple[str, str] | None = None
        """The columns of names and of values, where each row holds one figure."""
        self._steps, self._first = notes.shared.steps, len(notes.shared.steps)
        self._end = self._first
        self._numbers: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._commas = self._points = self._thousands = 0
        self._decimal_comma = False
        self._lower: dict[str, str] = {}
        self._time = ""
        self._metrics: set[str] = set()
        self._prefix = ""

    def add(self, row: dict[str, Any]) -> None:
        """Take in a row."""
        steps, metrics = dict[str, float](), []
        for name, cell in row.items():
            lower = name.lower()
            self._lower.setdefault(lower, name)
            if lower in STEPS and (number := _step(cell)) is not None:
                steps.setdefault(lower, number)
            kind = self._kind(cell)
            if kind is not None:
                (self._numbers if kind else self._texts)[name] += 1
                metrics.append(name)
        self._steps.add(steps, (name for name in metrics if name.lower() not in STEPS + TIMES), _moment(_time(row)))
        self._end = len(self._steps)

    def _kind(self, cell: Any) -> bool | None:
        """Whether a cell is a number; ``None`` for an empty one."""
        if isinstance(cell, str):
            if found := _COMMA.match(cell):
                self._commas += 1
                self._thousands += len(found[1]) == 3 and not cell.strip().lstrip("+-").startswith("0")
                return True
            self._points += _POINT.match(cell) is not None
        try:
            return None if number_of(cell) is None else True
        except BadRow:
            return False

    def decide(self) -> Axis:
        """Settle what the columns are; gives the axis. Raises ``DataError`` where that cannot be known."""
        self.axis = self._steps.axis(self._first, self._end)
        self._time = next((self._lower[name] for name in TIMES if name in self._lower), "")
        self._long_form()
        self._decimals()
        self._one_run()
        own = {self.step_column, self._time}
        for name in self._numbers | self._texts:
            if name in own or name.endswith(_BOUNDS) or self.long or not name.startswith(self._prefix):
                continue
            if self._numbers[name] and self._numbers[name] >= self._texts[name]:
                self._metrics.add(name)
            else:
                self.notes.left_out[name[:MAX_NAME_CHARS]] = _("its values are not numbers")
        self._say_axis(self.axis)
        return self.axis

    def _long_form(self) -> None:
        named = next((self._lower[name] for name in NAMES if name in self._lower), "")
        valued = next((self._lower[name] for name in VALUES if name in self._lower), "")
        if valued and len(self._lower) <= _LONG_COLUMNS and (named or self._time):
            self.long = (named, valued)

    def _decimals(self) -> None:
        """Numbers have decimal commas where none has a point, and not all could be thousands."""
        sure = self._commas > 0 if self._has_commas else self._commas > self._thousands
        self._decimal_comma = sure and not self._points
        if self._decimal_comma:
            self.notes.say(sentence(_("Its numbers have decimal commas: 0,25 was read as 0.25.")))
        elif self._commas:
            text = _("Commas in its numbers may be decimal or between thousands: such cells were not read.")
            self.notes.say(sentence(text))

    def _one_run(self) -> None:
        """A chart of one run has its name before each metric; of several, one must be named."""
        own = {*STEPS, *TIMES}
        names = [name for name in self._numbers | self._texts if name.lower() not in own]
        runs = list(dict.fromkeys(name.rpartition(BETWEEN)[0] for name in names if BETWEEN in name))
        is_chart = len(runs) > 1 and all(BETWEEN in name for name in names)
        if is_chart or len(runs) == 1 or self.notes.run:
            self._prefix = f"{one_run(runs, self.notes.run)}{BETWEEN}"

    def _say_axis(self, axis: Axis) -> None:
        """Which column the steps are of, where there was a choice."""
        column = self._lower.get(axis.column, axis.column)
        if axis.apart:
            self.notes.say(counted(_APART, axis.apart, column=column))
        if axis.placed:
            self.notes.say(counted(_PLACED, axis.placed, column=column))
        elif axis.differs:
            self.notes.say(sentence(_("Steps are those of {column}."), column=column))

    @property
    def step_column(self) -> str:
        """The column that numbers the steps of this table."""
        named = self.axis.column if self.axis is not None else ""
        return self._lower.get(named) or next((self._lower[name] for name in STEPS if name in self._lower), "")

    def is_metric(self, name: str) -> bool:
        """Whether a column holds a metric of the run that is read."""
        return name in self._metrics

    def plain(self, name: str) -> str:
        """A metric's name without the run's."""
        return name.removeprefix(self._prefix)[:MAX_NAME_CHARS]

    def number(self, cell: Any) -> float | None:
        """The number in a cell; ``None`` for an empty one. Raises ``BadRow``."""
        if self._decimal_comma and isinstance(cell, str) and _COMMA.match(cell):
            cell = cell.replace(".", "").replace(",", ".")
        return number_of(cell)

    def moment(self, row: dict[str, Any]) -> float | None:
        """When a row was written, in Unix seconds."""
        return _moment(row.get(self._time)) if self._time else None


def step_number(value: Any) -> Any:
    """A step that may stand before the number of all, as in ``10/438``."""
    found = _PART.match(value) if isinstance(value, str) else None
    return found[1] if found else value


def _step(cell: Any) -> float | None:
    try:
        return number_of(step_number(cell))
    except BadRow:
        return None


def _time(row: dict[str, Any]) -> Any:
    return next((row[name] for name in row if name.lower() in TIMES), None)


def _moment(value: Any) -> float | None:
    try:
        number = number_of(value)
    except BadRow:
        return None
    return number if number is not None and 9e8 < number < 5e9 else None
