"""Tables of metrics: one row a step, or one row a figure (``step, name, value``), as CSV or JSON Lines.

Exports of Weights & Biases (``_step``, ``train/global_step``, charts with ``<run> - <metric>`` and their ``__MIN`` and
``__MAX``) and TensorBoard (``Wall time, Step, Value``, the metric in the file's name) are such tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.data.files import csvfile
from training.data.files.jsonl import BOM
from training.data.files.sniff import delimiter_of, open_regular
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.imports.rows import Row, read_json_lines
from training.words import _, sentence

STEPS = (
    "step",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "_step",
    "iteration",
    "training_global_step",
)
"""Columns that number the steps, the most telling first; case does not matter."""
NAMES, VALUES = ("name", "metric", "tag", "key"), ("value",)
TIMES = ("_timestamp", "wall time", "wall_time", "timestamp")
_BOUNDS = ("__MIN", "__MAX")
_HEAD_BYTES = 1 << 20
_TAG = re.compile(r"(?:^|[-_])tag[-_](.+)$")


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
    """The column of the steps; ``""`` where there is none."""
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in STEPS if name in lower), "")


def _recognise_csv(path: Path) -> str:
    column = step_column(header_of(path))
    return f"Its header has the column {column}." if column else ""


def _recognise_lines(path: Path) -> str:
    first = next(read_json_lines(path), None) if _begins_with_brace(path) else None
    column = step_column(list(first.value)) if first is not None and first.value else ""
    is_rollout = first is not None and first.value is not None and ("output" in first.value or "prompt" in first.value)
    return f"Its rows are objects with {column}." if column and not is_rollout else ""


def _begins_with_brace(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(4096).removeprefix(BOM).lstrip().startswith(b"{")


def _read_csv(path: Path, notes: Notes) -> Iterator[Item]:
    rows = (
        Row(raw.line, raw.offset, raw.value, raw.error.sentence if raw.error else "")
        for raw in csvfile.read_values(path)
    )
    return _figures(rows, notes)


def _read_lines(path: Path, notes: Notes) -> Iterator[Item]:
    return _figures(read_json_lines(path), notes)


def _figures(rows: Iterator[Row], notes: Notes) -> Iterator[Item]:
    table: _Table | None = None
    for row in rows:
        if row.value is None:
            yield Item(row.line, row.offset, reason=row.reason)
            continue
        table = table or _Table(list(row.value), notes)
        try:
            yield Item(row.line, row.offset, table.figures(row.value))
        except BadRow as exc:
            yield Item(row.line, row.offset, reason=exc.sentence)


class _Table:
    """What the columns of one table are. A column whose first value is no number holds none."""

    def __init__(self, columns: list[str], notes: Notes) -> None:
        lower = {name.lower(): name for name in reversed(columns)}
        self.notes = notes
        self.step = step_column(columns)
        self.time = next((lower[name] for name in TIMES if name in lower), "")
        named = next((lower[name] for name in NAMES if name in lower), "")
        valued = next((lower[name] for name in VALUES if name in lower), "")
        self.long = (named, valued) if valued and len(columns) <= 5 and (named or self.time) else None
        self.is_metric: dict[str, bool] = {}
        self.prefix = _one_run(columns)

    def figures(self, row: dict[str, Any]) -> Figures:
        """The figures of a row. Raises ``BadRow``."""
        if self.step not in row:  # JSON rows may differ
            raise BadRow(_("it has no step number"))
        step = step_of(row[self.step])
        at = _moment(row.get(self.time)) if self.time else None
        values = self._long(row) if self.long else self._wide(row)
        if not values:
            raise BadRow(_("it holds no figure"))
        return Figures(step, values, at)

    def _long(self, row: dict[str, Any]) -> dict[str, float]:
        named, valued = self.long or ("", "")
        name = str(row.get(named) or "") if named else tag_of(self.notes.name)
        value = number_of(row.get(valued))
        if not name or len(name) > MAX_NAME_CHARS:
            raise BadRow(sentence(_("its metric is {name}, which is no name"), name=shown(name)))
        if value is None:
            raise BadRow(_("it holds no figure"))
        return {name: value}

    def _wide(self, row: dict[str, Any]) -> dict[str, float]:
        values: dict[str, float] = {}
        for name, cell in row.items():
            if name in (self.step, self.time) or name.endswith(_BOUNDS) or self.is_metric.get(name) is False:
                continue
            try:
                value = number_of(cell)
            except BadRow as exc:
                if name in self.is_metric:
                    raise BadRow(
                        sentence(_("{reason}, under {column}"), reason=exc.sentence, column=shown(name))
                    ) from None
                self.is_metric[name] = False
                self.notes.left_out[name[:MAX_NAME_CHARS]] = _("its values are not numbers")
                continue
            if value is not None:
                self.is_metric[name] = True
                values[name.removeprefix(self.prefix)[:MAX_NAME_CHARS]] = value
        return values


def tag_of(file: str) -> str:
    """The metric in the name of TensorBoard's file, such as ``run-stage1-tag-critic_score_mean.csv``."""
    stem = file.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    found = _TAG.search(stem)
    return (found[1] if found else stem)[:MAX_NAME_CHARS]


def _one_run(columns: list[str]) -> str:
    """``<run> - `` where a chart of one run was exported; the run's name is no part of a metric's."""
    before = {name.partition(" - ")[0] for name in columns if " - " in name}
    return f"{before.pop()} - " if len(before) == 1 else ""


def _moment(value: Any) -> float | None:
    try:
        number = number_of(value)
    except BadRow:
        return None
    return number if number is not None and 9e8 < number < 5e9 else None


_ABOUT = (
    "A column of steps (`step`, `global_step`, `train/global_step`, `_step`) and one for each metric, or the long form "
    "`step, name, value`. Exports of Weights & Biases and TensorBoard are such tables. Columns of text are named and "
    "left out."
)
CSV_READER = Reader("metrics_csv", _("table of metrics"), "", _ABOUT + " CSV.", _recognise_csv, _read_csv)
LINES_READER = Reader("metrics_lines", _("rows of metrics"), "", _ABOUT + " JSON Lines.", _recognise_lines, _read_lines)
