"""The table of figures: a row for each contestant, each figure with its interval."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from training.config import RewardComponent
from training.evaluation import (
    PART,
    SUCCESS_PART,
    Interval,
    Paired,
    Sheet,
    Try,
    Values,
    intervals_of,
    mean_intervals,
    paired_columns,
    sheet_of,
)
from webapp.common.text import duration, figure, finite, percent
from webapp.datasets.models import Dataset
from webapp.evaluation.comparison.contestants import Contestant, categories_of, datasets_of, rollouts_of, tasks_sets
from webapp.evaluation.rescoring.columns import Lacks, Scale, columns_of_runs, versions_of
from webapp.runs.config import component_titles
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts

# --- Sheets ---------------------------------------------------------------------------------------------------------
# The results of each contestant by task, from the rollouts in the database; weighed by one reward spec for all.

FIELDS = (
    "pk", "row", "status", "reward", "parts", "env_parts", "turns", "tokens", "seconds",
    "parse_errors", "calls", "failed_calls", "cost",
)  # fmt: skip


class Spec(NamedTuple):
    """The components of rewards; ``name`` is the spec's."""

    name: str
    components: list[RewardComponent]


class Weighing(NamedTuple):
    """A contestant's values under a spec, and what is missing of components that it has not recorded."""

    sheet: Sheet
    lacks: Lacks


def sheets_for(contestants: Sequence[Contestant], datasets: Sequence[Dataset | None] | None = None) -> list[Sheet]:
    """The values of each contestant with the rewards that it recorded, in two queries for all; one where the caller
    has read their datasets."""
    datasets = datasets_of(contestants) if datasets is None else datasets
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants, datasets)
    return [
        sheet_of([_try_of_row(row, row["reward"], row["parts"]) for row in rows.get(item.run.pk, [])], tasks)
        for item, tasks in zip(contestants, sets, strict=True)
    ]


def weighed_sheets(contestants: Sequence[Contestant], datasets: Sequence[Dataset | None], spec: Spec) -> list[Weighing]:
    """The values of each with the rewards that this spec would have given, from what was recorded and computed; in
    two queries for all.

    A try without a value of a counted component has no reward under it; an excluded try is not weighed.
    """
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants, datasets)
    computed = columns_of_runs([item.run for item in contestants], spec.components)
    found = []
    for item, tasks in zip(contestants, sets, strict=True):
        scale = Scale(spec.components, item.components, computed.get(item.run.pk, {}))
        tries = [_weighed_try(row, scale) for row in rows.get(item.run.pk, [])]
        found.append(Weighing(sheet_of(tries, tasks), scale.lacks))
    return found


def _weighed_try(row: dict[str, Any], scale: Scale) -> Try:
    if row["status"] == RolloutStatus.EXCLUDED:
        return _try_of_row(row, None, {})
    return _try_of_row(row, *scale.weigh(row["pk"], row["reward"], row["parts"]))


def same_rewards(first: Sequence[RewardComponent], second: Sequence[RewardComponent]) -> bool:
    """Whether two specs give the same rewards."""
    return [item.model_dump() for item in first] == [item.model_dump() for item in second]


def _rollouts_by_run(contestants: Sequence[Contestant]) -> dict[UUID, list[dict[str, Any]]]:
    """The finished rollouts that count of each run, in one query."""
    found: dict[UUID, list[dict[str, Any]]] = {}
    rows = latest_rollouts(*(item.run for item in contestants)).filter(rollouts_of(contestants))
    for row in rows.values("run_id", *FIELDS):
        found.setdefault(row["run_id"], []).append(row)
    return found


def _try_of_row(row: dict[str, Any], reward: float | None, parts: Mapping[str, float | None]) -> Try:
    return Try(
        task=row["row"] if row["row"] is not None else -1,
        excluded=row["status"] == RolloutStatus.EXCLUDED,
        success=row["env_parts"].get(SUCCESS_PART),
        reward=finite(reward),
        parts=parts,
        turns=row["turns"],
        tokens=row["tokens"],
        seconds=row["seconds"],
        parse_errors=row["parse_errors"],
        calls=row["calls"] or 0,
        failed_calls=row["failed_calls"] or 0,
        truncated=row["status"] == RolloutStatus.TRUNCATED,
        cost=row["cost"],
    )


# --- Numbers --------------------------------------------------------------------------------------------------------
# The figures behind a comparison, in no language yet. They take a second for 8 × 500 × 4, so the last few stay.

KEPT_BYTES = 64 << 20
FIGURE = "success"


@dataclass(frozen=True)
class Numbers:
    """Of each contestant, in order: its sheet, its figures' intervals, and those of its success by category. ``pairs``
    are those that played the same tasks. ``categories`` are of tasks, empty where not all played the same ones.
    ``lacks`` say what a contestant has not recorded of the spec; empty without one. ``datasets`` are those that they
    played, where they are known."""

    sheets: list[Sheet]
    lacks: list[Lacks]
    intervals: list[dict[str, Interval]]
    pairs: dict[tuple[int, int], Paired]
    categories: dict[int, str]
    by_category: list[dict[str, Interval]]
    datasets: list[Dataset | None]

    @property
    def bytes(self) -> int:
        """Roughly how many bytes it holds."""
        columns = [values for sheet in self.sheets for values in sheet.columns.values()]
        return sum(values.nbytes for values in columns) + 200 * sum(len(sheet.tasks) for sheet in self.sheets)


_kept: OrderedDict[Hashable, Numbers] = OrderedDict()
_lock = Lock()


def numbers_of(playing: Sequence[Contestant], spec: Spec | None) -> Numbers:
    """The present figures of contestants that are ``measured``, with rewards weighed by ``spec`` if there is one."""
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
    datasets = datasets_of(playing)
    if spec is not None:
        weighings = weighed_sheets(playing, datasets, spec)
    else:
        weighings = [Weighing(sheet, Lacks()) for sheet in sheets_for(playing, datasets)]
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
        datasets,
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


class Column(NamedTuple):
    """A figure of the table. ``about`` says how it is counted."""

    name: str
    title: str
    about: str
    shown: Callable[[float | None], str]


class Cell(NamedTuple):
    """A value with the ends of its interval as texts; ``bar`` has low, value and high from 0 to 100 of a share."""

    title: str
    text: str
    low: str
    high: str
    tasks: int
    bar: tuple[float, float, float] | None


class Line(NamedTuple):
    """One contestant of the table."""

    contestant: Contestant
    cells: list[Cell]
    left_out: str


def columns_of(sheets: Sequence[Sheet]) -> list[Column]:
    """The figures that at least one contestant has, in reading order."""
    k = min((sheet.most for sheet in sheets if sheet.most), default=1)
    return [column for column in known_columns(k) if any(column.name in sheet.columns for sheet in sheets)]


def known_columns(k: int) -> list[Column]:
    """All possible figures; ``k`` is that of pass@k and pass^k."""
    return [
        Column(
            "success", _("Success"), _("Share of tries that solve their task, by the environment's verdict."), percent
        ),
        *_pass_columns(k),
        Column("reward", _("Reward"), _("Mean reward, weighed by one spec for all."), figure),
        Column("turns", _("Turns"), _("Turns of the policy in an episode."), figure),
        Column("tokens", _("Tokens"), _("Tokens that the policy wrote in an episode."), figure),
        Column("tool_errors", _("Tool errors"), _("Share of tool calls that were answered by an error."), percent),
        Column(
            "parse_errors", _("Format errors"), _("Share of turns that could not be read as calls or text."), percent
        ),
        Column("truncated", _("Truncated"), _("Share of tries that ran into a limit of length or turns."), percent),
        Column("seconds", _("Time"), _("Time of an episode, waiting included."), duration),
        Column("cost", _("Cost"), _("Money for an episode, where an endpoint has prices."), figure),
    ]


def _pass_columns(k: int) -> list[Column]:
    if k < 2:
        return []
    at_least, every = _("At least one of %(k)d tries solves the task."), _("All of %(k)d tries solve the task.")
    return [
        Column(f"pass@{k}", f"pass@{k}", at_least % {"k": k}, percent),
        Column(f"pass^{k}", f"pass^{k}", every % {"k": k}, percent),
    ]


def component_columns(contestants: Sequence[Contestant], sheets: Sequence[Sheet], spec: Spec | None) -> list[Column]:
    """The raw value of each reward component that a contestant has; with a spec, of its components."""
    titles: dict[str, str] = component_titles(spec.components) if spec else {}
    for contestant in contestants:
        titles = component_titles(contestant.components) | titles
    names = dict.fromkeys(name for sheet in sheets for name in sheet.columns if name.startswith(PART))
    return [Column(name, titles.get(name.removeprefix(PART), name.removeprefix(PART)), "", figure) for name in names]


def table_of(contestants: Sequence[Contestant], numbers: Numbers, columns: Sequence[Column]) -> list[Line]:
    """The lines of a table with these columns."""
    return [
        Line(contestant, [cell(column, intervals.get(column.name)) for column in columns], left_out(contestant, sheet))
        for contestant, sheet, intervals in zip(contestants, numbers.sheets, numbers.intervals, strict=True)
    ]


def cell(column: Column, interval: Interval | None) -> Cell:
    """A figure as a table shows it; nothing is a dash."""
    if interval is None or interval.value is None:
        return Cell(column.title, column.shown(None), "", "", 0, None)
    shown, low, high = column.shown(interval.value), interval.low, interval.high
    if low is None or high is None:
        return Cell(column.title, shown, "", "", interval.tasks, None)
    bar = (100 * low, 100 * interval.value, 100 * high) if column.name == "success" else None
    ends = (column.shown(low), column.shown(high)) if low != high else ("", "")
    return Cell(column.title, shown, *ends, interval.tasks, bar)


def left_out(contestant: Contestant, sheet: Sheet) -> str:
    """A sentence on what a contestant's figures leave out; empty where nothing is."""
    excluded, missing, tasks = int(sheet.excluded.sum()), sheet.missing, len(sheet.tasks)
    if not contestant.ended and contestant.step is None:
        return _("%(name)s is not done: %(n)d of %(tasks)d tasks so far.") % {
            "name": contestant.run.name,
            "n": tasks - missing,
            "tasks": tasks,
        }
    return left_out_text(contestant.run.name, tasks, missing, excluded)


def left_out_text(name: str, tasks: int, missing: int, excluded: int) -> str:
    """A sentence on what the figures of an ended evaluation leave out; empty where nothing is."""
    if not missing and not excluded:
        return ""
    values = {"name": name, "missing": missing, "tasks": tasks, "excluded": excluded}
    if not missing:
        return _("%(name)s: tries that failed outside the policy and are missing: %(excluded)d.") % values
    return (
        _(
            "%(name)s: %(missing)d of %(tasks)d tasks have no try that counts; tries that failed outside the policy: "
            "%(excluded)d."
        )
        % values
    )
