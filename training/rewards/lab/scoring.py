"""Computes unrecorded values in one pass over a set's episodes: ``python -m training.rewards.lab DIR``.

The components come as JSON on standard input. Progress is printed, one JSON object a line; the values are kept in the
set's folder every ``KEEP_EVERY_S`` and at the end, so that a process that is ended early has not worked for nothing.
Judges and models are asked only with ``--ask``: as many episodes at once as all of them allow, and no more where one
fails ``GIVE_UP_AFTER`` times in a row.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.config import RewardComponent
from training.errors import RewardFault, TiltyardError
from training.rewards.base import Component, Episode, Params
from training.rewards.lab.figures import counted
from training.rewards.lab.table import (
    EPISODES_NAME,
    KNOWN,
    MAX_REASONS,
    ROWS_NAME,
    Bools,
    Column,
    Table,
    column_of,
    column_save,
    component_key,
    episode_from,
    needed,
    table_load,
)
from training.rewards.model_based import REWARD_MODEL
from training.rewards.scoring import COMPONENTS, raw_value, resolve
from training.words import Sentence, _, sentence

KEEP_EVERY_S = 10.0
PROGRESS_EVERY_S = 0.2
MAX_AT_ONCE = 32
GIVE_UP_AFTER = 20
SANDBOXED = frozenset({"custom_python"})
"""Functions that are slow and run apart, but ask no one: they are computed for old rollouts too."""
ASK = "--ask"
Progress = Callable[[int, int], None]


class _Chosen(NamedTuple):
    """A component that is computed, where, and what is known so far."""

    item: RewardComponent
    component: Component
    params: Params
    filling: _Filling
    mask: Bools


def wanted(table: Table, component: RewardComponent, column: Column) -> Bools:
    """The places that a component counts for and whose value is not known yet."""
    return needed(column, counted(table, component) & ~table.excluded)


def asks_others(component: RewardComponent) -> bool:
    """Whether a judge or a model gives its values, which costs time and perhaps money."""
    known = COMPONENTS.get(component.registered)
    return known is not None and known.outside and component.registered not in SANDBOXED


def loads_model(component: RewardComponent) -> bool:
    """Whether a reward model gives its values, which takes more memory than the lab's process may have."""
    return component.registered == REWARD_MODEL


def is_asked(component: RewardComponent) -> bool:
    """Whether the lab computes its values: it never asks judges and models for old rollouts."""
    return component.registered in COMPONENTS and not asks_others(component)


def score_set(
    folder: Path, components: Sequence[RewardComponent], on_progress: Progress | None = None, *, ask: bool = False
) -> None:
    """Compute and keep what is missing of the components; of judges and models only with ``ask``."""
    table = table_load(folder)
    fillings: dict[str, _Filling] = {}
    asked = [item for item in components if is_asked(item) or (ask and asks_others(item))]
    chosen = [_chosen(table, item, fillings) for item in asked]
    places = np.flatnonzero(np.any([each.mask for each in chosen], axis=0)) if chosen else np.array([], np.int64)
    kept = reported = time.monotonic()
    for done, (place, values) in enumerate(_valued(_episodes(table, places), chosen), 1):
        for each, value in values:
            each.filling.take(place, value)
        now = time.monotonic()
        if on_progress and now - reported > PROGRESS_EVERY_S:
            reported = now
            on_progress(done, len(places))
        if now - kept > KEEP_EVERY_S:
            kept = now
            _keep(folder, chosen)
    _keep(folder, chosen)


def _chosen(table: Table, item: RewardComponent, fillings: dict[str, _Filling]) -> _Chosen:
    """Components that differ in their categories alone fill one column."""
    key = component_key(item)
    if key not in fillings:
        fillings[key] = _Filling(column_of(table, item), GIVE_UP_AFTER if asks_others(item) else 0)
    return _Chosen(item, *resolve(item), fillings[key], wanted(table, item, fillings[key].column))


def _keep(folder: Path, chosen: Sequence[_Chosen]) -> None:
    for each in chosen:
        column_save(folder, each.item, each.filling.column)


_Value = float | TiltyardError
_Values = list[tuple[_Chosen, _Value]]


def _valued(episodes: Iterable[tuple[int, Episode]], chosen: Sequence[_Chosen]) -> Iterator[tuple[int, _Values]]:
    """What the components say of each episode, in order; where others are asked, of several episodes at once."""
    at_once = min((_at_once(each) for each in chosen if asks_others(each.item)), default=1)
    if at_once == 1:
        yield from ((place, _values_of_episode(chosen, place, episode)) for place, episode in episodes)
        return
    waiting: deque[tuple[int, Future[_Values]]] = deque()
    with ThreadPoolExecutor(at_once, thread_name_prefix="scoring") as pool:
        for place, episode in episodes:
            waiting.append((place, pool.submit(_values_of_episode, chosen, place, episode)))
            if len(waiting) > at_once:
                first, future = waiting.popleft()
                yield first, future.result()
        for place, future in waiting:
            yield place, future.result()


def _at_once(each: _Chosen) -> int:
    """A judge's time limit counts the wait for its turn as well, so no more than it answers at once are begun."""
    return min(MAX_AT_ONCE, int(getattr(each.params, "concurrency", 1)))


def _values_of_episode(chosen: Sequence[_Chosen], place: int, episode: Episode) -> _Values:
    return [(each, _value_or_error(each, episode)) for each in chosen if each.mask[place]]


def _value_or_error(each: _Chosen, episode: Episode) -> _Value:
    if each.filling.given_up is not None:
        return each.filling.given_up
    try:
        return raw_value(each.item.name, each.component, each.params, episode)
    except TiltyardError as exc:
        return exc


class _Filling:
    """A column that is being computed; no more is asked after ``give_up_after`` failures in a row (0: never
    given up)."""

    def __init__(self, start: Column, give_up_after: int) -> None:
        self.column = Column(start.value.copy(), start.code.copy(), list(start.reasons))
        self.given_up: RewardFault | None = None
        self._numbers = {str(reason): number for number, reason in enumerate(start.reasons)}
        self._give_up_after, self._failures = give_up_after, 0

    def take(self, place: int, value: _Value) -> None:
        """Take in the value of an episode, or the error in its place."""
        if not isinstance(value, TiltyardError):
            self.column.value[place], self.column.code[place], self._failures = value, KNOWN, 0
            return
        self._miss(place, value.message)
        self._failures += 1
        if self._failures == self._give_up_after:
            text = _("Not asked any more after {n} failures in a row. {reason}")
            self.given_up = RewardFault(sentence(text, n=self._failures, reason=value.message))

    def _miss(self, place: int, reason: str) -> None:
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
                    row = _json_line_at(rows, table.row_offsets, number)
            yield place, episode_from(_json_line_at(episodes, table.offsets, place), row)


def _json_line_at(file: Any, offsets: Any, place: int) -> Any:
    file.seek(int(offsets[place]))
    return json.loads(file.read(int(offsets[place + 1] - offsets[place])))


def main(argv: list[str]) -> int:
    """One folder, and whether others are asked; the components come on standard input."""

    def report(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), flush=True)

    components = [RewardComponent.model_validate(item) for item in json.load(sys.stdin)]
    try:
        score_set(Path(argv[0]), components, report, ask=ASK in argv[1:])
    except TiltyardError as exc:
        print(json.dumps({"error": exc.message}), flush=True)
        return 1
    return 0
