"""Tables of metrics: one row a step, or one row a figure (``step, name, value``), as CSV or JSON Lines.

Exports of Weights & Biases (``_step``, ``train/global_step``, charts with ``<run> - <metric>`` and their ``__MIN`` and
``__MAX``) and TensorBoard (``Wall time, Step, Value``, the metric in the file's name) are such tables, and so are
ms-swift's ``logging.jsonl`` and LLaMA-Factory's ``trainer_log.jsonl``. A table is read twice: what its columns are is
decided by all of its rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from training.data.files.sniff import delimiter_of, open_regular
from training.data.files.text import BOM, read_values_csv
from training.imports.axis import STEPS, Axis
from training.imports.base import (
    MAX_NAME_CHARS,
    BadRow,
    Figures,
    Item,
    Notes,
    Reader,
    number_of,
    one_run,
    shown,
    step_of,
)
from training.imports.rows import Row, read_json_lines
from training.words import _, counted, ngettext, sentence

# What the columns of a table of metrics are, decided over all of its rows: steps, times, metrics, texts, runs.

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
        """``has_commas``: cells are between semicolons, as where a comma is the decimal point."""
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
        """The column of the steps, where there was a choice."""
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
    """A step that may come before the number of all, as in ``10/438``."""
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


_HEAD_BYTES = 1 << 20
_HEAD_ROWS = 20
_TAG = re.compile(r"(?:^|[-_])tag[-_](.+)$")
TOOLS = {"global_step/max_steps": "ms-swift", "current_steps": "LLaMA-Factory"}
"""Columns that only one trainer writes."""
SUMMARY = "log_history"
"""ms-swift ends its log with the whole state of the run, whose figures are in the lines before it."""
ROLLOUTS = frozenset({"output", "prompt", "messages", "trajectory", "response", "completion"})
"""Columns of rows that are rollouts and no figures."""


def header_of(path: Path) -> list[str]:
    """The names in the first line, where it is a table's header: the line after it has as many cells."""
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES).removeprefix(BOM)
    first, _, rest = head.partition(b"\n")
    text = first.strip().decode(errors="replace")
    delimiter = delimiter_of(text)
    second = rest.partition(b"\n")[0]
    if delimiter is None or text.startswith("{") or b"\0" in first or second.count(delimiter.encode()) < 1:
        return []
    return [name.strip().strip('"') for name in text.split(delimiter)]


def step_column(names: list[str]) -> str:
    """The most specific column of steps among the names; empty where there is none."""
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in STEPS if name in lower), "")


def _recognise_csv(path: Path) -> str:
    column = step_column(header_of(path))
    return f"Its header has the column {column}." if column else ""


def _recognise_lines(path: Path) -> str:
    """Rows may differ: one of the first must name a step, and none may be a rollout."""
    if not _begins_with_brace(path):
        return ""
    rows = islice(read_json_lines(path, all_numbers=True), _HEAD_ROWS)
    names = list(dict.fromkeys(name for row in rows for name in row.value or ()))
    column = step_column(names)
    return f"Its rows are objects with {column}." if column and not ROLLOUTS & set(names) else ""


def _begins_with_brace(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4096).removeprefix(BOM).lstrip().startswith(b"{")


def _csv_rows(path: Path) -> Iterator[Row]:
    for raw in read_values_csv(path):
        yield Row(raw.line, raw.offset, raw.value, raw.error.sentence if raw.error else "")


def _line_rows(path: Path) -> Iterator[Row]:
    """The rows of the log itself."""
    return (row for row in read_json_lines(path, all_numbers=True) if not (row.value and SUMMARY in row.value))


def _look(rows: Iterator[Row], notes: Notes, *, has_commas: bool = False) -> None:
    notes.columns = columns = Columns(notes, has_commas=has_commas)
    for row in rows:
        if row.value is not None and SUMMARY in row.value:
            notes.say(sentence(_("Its state of the whole run was skipped: the lines before it have its figures.")))
        elif row.value is not None:
            columns.add(row.value)


def _look_csv(path: Path, notes: Notes) -> None:
    with open_regular(path) as file:
        first = file.readline(_HEAD_BYTES).removeprefix(BOM).decode(errors="replace")
    _look(_csv_rows(path), notes, has_commas=delimiter_of(first) == ";")


def _figures(rows: Iterator[Row], notes: Notes) -> Iterator[Item]:
    """The figures of each row in the order of the axis; rows that cannot be used come where they are."""
    columns: Columns = notes.columns
    axis = columns.decide()
    notes.tool = TOOLS.get(columns.step_column.lower(), "")
    table = _Table(columns, notes)
    waiting: list[Item | None] = []
    number = 0
    for row in rows:
        if row.value is None:
            yield Item(row.line, row.offset, reason=row.reason)
            continue
        item = _item(row, row.value, float(axis.steps[number]), table)
        number += 1
        if axis.is_sorted:
            yield item
        else:
            waiting.append(item)
    for place in axis.order.tolist() if waiting else ():
        if (kept := waiting[place]) is not None:
            yield kept


def _item(row: Row, value: dict[str, Any], step: float, table: _Table) -> Item:
    try:
        return Item(row.line, row.offset, table.figures(value, step))
    except BadRow as exc:
        return Item(row.line, row.offset, reason=exc.sentence)


class _Table:
    """Reads the rows of a table whose columns are known."""

    def __init__(self, columns: Columns, notes: Notes) -> None:
        self.columns = columns
        self.notes = notes

    def figures(self, row: dict[str, Any], step: float) -> Figures:
        """The figures of a row at the step of its axis. Raises ``BadRow``."""
        if np.isnan(step):
            step = step_of(step_number(row.get(self.columns.step_column)))
        values = self._long(row) if self.columns.long else self._wide(row)
        if not values:
            raise BadRow(_("it holds no figure"))
        return Figures(int(step), values, self.columns.moment(row))

    def _long(self, row: dict[str, Any]) -> dict[str, float]:
        named, valued = self.columns.long or ("", "")
        name = str(row.get(named) or "") if named else tag_of(self.notes.name)
        value = self.columns.number(row.get(valued))
        if not name or len(name) > MAX_NAME_CHARS:
            raise BadRow(sentence(_("its metric is {name}, which is no name"), name=shown(name)))
        if value is None:
            raise BadRow(_("it holds no figure"))
        return {name: value}

    def _wide(self, row: dict[str, Any]) -> dict[str, float]:
        values: dict[str, float] = {}
        for name, cell in row.items():
            if not self.columns.is_metric(name):
                continue
            try:
                value = self.columns.number(cell)
            except BadRow as exc:
                text = _("{reason}, under {column}")
                raise BadRow(sentence(text, reason=exc.sentence, column=shown(name))) from None
            if value is not None:
                values[self.columns.plain(name)] = value
        return values


def tag_of(file: str) -> str:
    """The metric in the name of TensorBoard's file, such as ``run-stage1-tag-critic_score_mean.csv``."""
    stem = file.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    found = _TAG.search(stem)
    return (found[1] if found else stem)[:MAX_NAME_CHARS]


_ABOUT = (
    "A column of steps (`step`, `global_step`, `train/global_step`, `_step`) and one for each metric, or the long form "
    "`step, name, value`. Exports of Weights & Biases and TensorBoard are such tables. Columns of text are named and "
    "left out. A chart of several runs asks which one is meant."
)
CSV_READER = Reader(
    "metrics_csv",
    _("table of metrics"),
    "",
    _ABOUT + " CSV; numbers may have decimal commas.",
    _recognise_csv,
    lambda path, notes: _figures(_csv_rows(path), notes),
    _look_csv,
)
LINES_READER = Reader(
    "metrics_lines",
    _("rows of metrics"),
    "",
    _ABOUT + " JSON Lines, also ms-swift's `logging.jsonl` and LLaMA-Factory's `trainer_log.jsonl`.",
    _recognise_lines,
    lambda path, notes: _figures(_line_rows(path), notes),
    lambda path, notes: _look(read_json_lines(path, all_numbers=True), notes),
)
