"""Tables of metrics: one row a step, or one row a figure (``step, name, value``), as CSV or JSON Lines.

Exports of Weights & Biases (``_step``, ``train/global_step``, charts with ``<run> - <metric>`` and their ``__MIN`` and
``__MAX``) and TensorBoard (``Wall time, Step, Value``, the metric in the file's name) are such tables, and so are
ms-swift's ``logging.jsonl`` and LLaMA-Factory's ``trainer_log.jsonl``. A table is read twice: what its columns are is
decided by all of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from training.data.files import text as text_module
from training.data.files.sniff import delimiter_of, open_regular
from training.data.files.text import BOM
from training.imports.axis import STEPS
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, shown, step_of
from training.imports.columns import Columns, step_number
from training.imports.rows import Row, read_json_lines
from training.words import _, sentence

_HEAD_BYTES = 1 << 20
_HEAD_ROWS = 20
_TAG = re.compile(r"(?:^|[-_])tag[-_](.+)$")
TOOLS = {"global_step/max_steps": "ms-swift", "current_steps": "LLaMA-Factory"}
"""Columns that only one trainer writes."""
SUMMARY = "log_history"
"""ms-swift ends its log with the whole state of the run, whose figures stand in the lines before it."""
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
    """The most telling column of steps among the names; empty where there is none."""
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
    for raw in text_module.read_values_csv(path):
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
    """The figures of each row in the order of the axis; rows that cannot be used come where they stand."""
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
