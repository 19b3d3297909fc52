"""Computes the values that nobody recorded, in one pass over a set's episodes: ``python -m training.rewards.lab DIR``.

The components come as JSON on standard input. Progress is printed, one JSON object a line; the values are kept in the
set's folder every ``KEEP_EVERY_S`` and at the end, so that a process that is ended early has not worked for nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.config import RewardComponent
from training.errors import TiltyardError
from training.rewards.base import Episode
from training.rewards.lab.table import EPISODES_NAME, ROWS_NAME, Bools, Table, episode_from, table_load
from training.rewards.lab.terms import counted
from training.rewards.lab.values import KNOWN, MAX_REASONS, Column, column_of, column_save, needed
from training.rewards.registry import COMPONENTS
from training.rewards.scoring import raw_value, resolve
from training.words import Sentence

KEEP_EVERY_S = 10.0
PROGRESS_EVERY_S = 0.2
SANDBOXED = frozenset({"custom_python"})
"""Functions that are slow and run apart, but need nobody else: they are computed for old rollouts too."""
Progress = Callable[[int, int], None]


def wanted(table: Table, component: RewardComponent, column: Column) -> Bools:
    """The places that a component counts for and whose value nobody knows yet."""
    return needed(column, counted(table, component) & ~table.excluded)


def is_asked(component: RewardComponent) -> bool:
    """Whether its values can be computed here: judges and models are never asked for old rollouts."""
    known = COMPONENTS.get(component.registered)
    return known is not None and (not known.outside or component.registered in SANDBOXED)


def score_set(folder: Path, components: Sequence[RewardComponent], on_progress: Progress | None = None) -> None:
    """Compute and keep what is missing of the components."""
    table = table_load(folder)
    chosen = [(item, *resolve(item), _Filling(column_of(table, item))) for item in components if is_asked(item)]
    masks = [wanted(table, item, filling.column) for item, _component, _params, filling in chosen]
    places = np.flatnonzero(np.any(masks, axis=0)) if masks else np.array([], np.int64)
    kept = told = time.monotonic()
    for done, (place, episode) in enumerate(_episodes(table, places)):
        for (item, component, params, filling), mask in zip(chosen, masks, strict=True):
            if not mask[place]:
                continue
            try:
                filling.set(place, raw_value(item.name, component, params, episode))
            except TiltyardError as exc:
                filling.miss(place, exc.message)
        now = time.monotonic()
        if on_progress and now - told > PROGRESS_EVERY_S:
            told = now
            on_progress(done + 1, len(places))
        if now - kept > KEEP_EVERY_S:
            kept = now
            _keep(folder, chosen)
    _keep(folder, chosen)


def _keep(folder: Path, chosen: Sequence[tuple[RewardComponent, Any, Any, _Filling]]) -> None:
    for item, _component, _params, filling in chosen:
        column_save(folder, item, filling.column)


class _Filling:
    """A column that is being computed."""

    def __init__(self, start: Column) -> None:
        self.column = Column(start.value.copy(), start.code.copy(), list(start.reasons))
        self._numbers = {str(reason): number for number, reason in enumerate(start.reasons)}

    def set(self, place: int, value: float) -> None:
        self.column.value[place], self.column.code[place] = value, KNOWN

    def miss(self, place: int, reason: str) -> None:
        if reason not in self._numbers:
            if len(self.column.reasons) >= MAX_REASONS:
                reason = str(self.column.reasons[-1])
            else:
                self.column.reasons.append(Sentence.of(reason))
        self.column.value[place] = np.nan
        self.column.code[place] = self._numbers.setdefault(reason, len(self.column.reasons) - 1)


def _episodes(table: Table, places: Any) -> Iterator[tuple[int, Episode]]:
    """The episodes at some places, in order; neighbours of one row read it once."""
    read: int = -1
    row: dict[str, Any] = {}
    with open(table.folder / EPISODES_NAME, "rb") as episodes, open(table.folder / ROWS_NAME, "rb") as rows:
        for place in map(int, places):
            number = int(table.row[place])
            if number != read:
                read, row = number, {}
                if number >= 0:
                    row = _line(rows, table.row_offsets, number)
            yield place, episode_from(_line(episodes, table.offsets, place), row)


def _line(file: Any, offsets: Any, place: int) -> Any:
    file.seek(int(offsets[place]))
    return json.loads(file.read(int(offsets[place + 1] - offsets[place])))


def main(argv: list[str]) -> int:
    """One folder; the components stand on standard input."""

    def report(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), flush=True)

    components = [RewardComponent.model_validate(item) for item in json.load(sys.stdin)]
    try:
        score_set(Path(argv[0]), components, report)
    except TiltyardError as exc:
        print(json.dumps({"error": exc.message}), flush=True)
        return 1
    return 0
