"""The figures behind a comparison, in no language yet. They take a second for 8 × 500 × 4, so the last few stay."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from threading import Lock

import numpy as np

from training.evaluation.figures import Sheet, Values, intervals_of
from training.evaluation.intervals import Interval, mean_intervals
from training.evaluation.paired import Paired, paired_columns
from webapp.evaluation.comparison.categories import categories_of
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.sheets import Spec, Weighing, sheets_for, weighed_sheets
from webapp.evaluation.rescoring.columns import versions_of
from webapp.evaluation.rescoring.scale import Lacks

KEPT_BYTES = 64 << 20
FIGURE = "success"


@dataclass(frozen=True)
class Numbers:
    """Of each contestant, in order: its sheet, its figures' intervals, and those of its success by category. ``pairs``
    are those that played the same tasks. ``categories`` are of tasks, empty where not all played the same ones.
    ``lacks`` say what a contestant has not recorded of the spec; empty without one."""

    sheets: list[Sheet]
    lacks: list[Lacks]
    intervals: list[dict[str, Interval]]
    pairs: dict[tuple[int, int], Paired]
    categories: dict[int, str]
    by_category: list[dict[str, Interval]]

    @property
    def bytes(self) -> int:
        """Roughly how many bytes it holds."""
        columns = [values for sheet in self.sheets for values in sheet.columns.values()]
        return sum(values.nbytes for values in columns) + 200 * sum(len(sheet.tasks) for sheet in self.sheets)


_kept: OrderedDict[Hashable, Numbers] = OrderedDict()
_lock = Lock()


def numbers_of(playing: Sequence[Contestant], spec: Spec | None) -> Numbers:
    """The present figures of evaluations, with rewards weighed by ``spec`` if there is one."""
    weighed: str = ""
    computed: tuple[tuple[str, str, int], ...] = ()
    if spec is not None:
        weighed = json.dumps([item.model_dump(mode="json") for item in spec.components], sort_keys=True)
        computed = versions_of([item.run for item in playing], spec.components)
    key = (tuple((item.run.pk, item.run.seq, item.run.state) for item in playing), weighed, computed)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    made = _compute_numbers(playing, spec)
    with _lock:
        _kept[key] = made
        while len(_kept) > 1 and sum(item.bytes for item in _kept.values()) > KEPT_BYTES:
            _kept.popitem(last=False)
    return made


def same_tasks(a: Contestant, b: Contestant) -> bool:
    """Whether a task's number means the same task for both."""
    return a.played is not None and a.played == b.played


def _compute_numbers(playing: Sequence[Contestant], spec: Spec | None) -> Numbers:
    if spec is not None:
        weighings = weighed_sheets(playing, spec)
    else:
        weighings = [Weighing(sheet, Lacks()) for sheet in sheets_for(playing)]
    sheets = [item.sheet for item in weighings]
    tasks = sorted({task for sheet in sheets for task in sheet.tasks})
    pairs = [(a, b) for a, b in combinations(range(len(playing)), 2) if same_tasks(playing[a], playing[b])]
    success = np.column_stack([_success_on(tasks, sheet) for sheet in sheets])
    found = paired_columns(success, pairs) if pairs else []
    all_same = all(same_tasks(playing[0], item) for item in playing)
    categories = categories_of(playing[0], tasks) if all_same else {}
    return Numbers(
        sheets,
        [item.lacks for item in weighings],
        intervals_of(sheets),
        {pair: value for pair, value in zip(pairs, found, strict=True) if value.tasks},
        categories,
        _by_category(tasks, success, categories),
    )


def _success_on(tasks: Sequence[int], sheet: Sheet) -> Values:
    values = dict(zip(sheet.tasks, sheet.of(FIGURE), strict=True))
    return np.array([values.get(task, np.nan) for task in tasks])


def _by_category(tasks: Sequence[int], success: Values, categories: dict[int, str]) -> list[dict[str, Interval]]:
    names = sorted(set(categories.values()))
    if len(names) < 2:
        return []
    of = np.array([categories.get(task, "") for task in tasks])
    columns = [np.where(of == name, success[:, place], np.nan) for place in range(success.shape[1]) for name in names]
    found = mean_intervals(np.column_stack(columns))
    return [
        dict(zip(names, found[start : start + len(names)], strict=True)) for start in range(0, len(found), len(names))
    ]
