"""The figures of an evaluation: each a mean over tasks with its interval; what is missing is counted, never 0.

A task's value is the mean over its tries that count. A try counts unless it was excluded: it failed outside the policy,
and its replays did too. Figures are of the tasks that have a value; the others are counted beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.evaluation.intervals import Interval, mean_intervals, pass_all_k, pass_at_k

Values = NDArray[np.float64]
PART = "rewards/"
COUNTED = {"turns", "tokens", "seconds", "cost"}
"""Figures that may be above 1: a mean of ones is no share."""


class Try(NamedTuple):
    """One rollout of an evaluation, as it is recorded.

    ``success`` is the environment's own word of the task, from 0 to 1; ``None`` where it says nothing.
    ``calls`` and ``failed_calls`` count tool calls and those that were answered by an error, ``seconds`` the whole
    episode, ``cost`` money.
    """

    task: int
    excluded: bool
    success: float | None = None
    reward: float | None = None
    parts: Mapping[str, float | None] = {}
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    parse_errors: int = 0
    calls: int = 0
    failed_calls: int = 0
    truncated: bool = False
    cost: float | None = None


@dataclass(frozen=True)
class Sheet:
    """One contestant's values: a row a task in the order of ``tasks``, a column a figure; NaN where there is none.

    ``tries`` counts the tries of each task that count, ``excluded`` those that do not.
    """

    tasks: list[int]
    columns: dict[str, Values]
    tries: Values
    excluded: Values
    most: int = field(default=0)

    @property
    def missing(self) -> int:
        """Tasks without any try that counts."""
        return int(np.sum(self.tries == 0))

    def of(self, name: str) -> Values:
        """A figure's values; all missing where nobody recorded it."""
        return self.columns.get(name, np.full(len(self.tasks), np.nan))

    def only(self, keep: NDArray[np.bool_]) -> Sheet:
        """The same for some of the tasks."""
        tasks = [task for task, is_kept in zip(self.tasks, keep, strict=True) if is_kept]
        columns = {name: values[keep] for name, values in self.columns.items()}
        return Sheet(tasks, columns, self.tries[keep], self.excluded[keep], self.most)

    def intervals(self, *, seed: int = 0) -> dict[str, Interval]:
        """Every figure with its interval."""
        return intervals_of([self], seed=seed)[0]


def intervals_of(sheets: Sequence[Sheet], *, seed: int = 0) -> list[dict[str, Interval]]:
    """Every figure of each contestant with its interval; tasks are drawn once for all that have as many."""
    found: list[dict[str, Interval]] = [{} for _ in sheets]
    for count in {len(sheet.tasks) for sheet in sheets}:
        columns = [
            (place, name, values)
            for place, sheet in enumerate(sheets)
            if len(sheet.tasks) == count
            for name, values in sheet.columns.items()
        ]
        if columns:
            stacked = np.column_stack([values for _place, _name, values in columns])
            intervals = mean_intervals(stacked, seed=seed, shares=[name not in COUNTED for _place, name, _v in columns])
            for (place, name, _values), interval in zip(columns, intervals, strict=True):
                found[place][name] = interval
    return found


def sheet_of(tries: Iterable[Try], tasks: Sequence[int] | None = None) -> Sheet:
    """The values of one contestant. ``tasks``: those that were set, in order; else those that were played."""
    by_task: dict[int, list[Try]] = {task: [] for task in tasks or ()}
    for item in tries:
        by_task.setdefault(item.task, []).append(item)
    order = list(tasks) if tasks is not None else sorted(by_task)
    counted = [[item for item in by_task[task] if not item.excluded] for task in order]
    most = max((len(found) for found in counted), default=0)
    columns = {name: _column(counted, value) for name, value in _plain_figures().items()}
    names = sorted({name for found in counted for item in found for name in item.parts})
    for name in names:
        columns[PART + name] = _column(counted, lambda item, name=name: item.parts.get(name))  # type: ignore[misc]
    columns |= _passes(counted, most)
    return Sheet(
        order,
        {name: values for name, values in columns.items() if not np.isnan(values).all()},
        np.array([len(found) for found in counted], dtype=np.float64),
        np.array([len(by_task[task]) - len(found) for task, found in zip(order, counted, strict=True)], dtype=float),
        most,
    )


def _plain_figures() -> dict[str, Callable[[Try], float | None]]:
    return {
        "success": lambda item: item.success,
        "reward": lambda item: item.reward,
        "turns": lambda item: item.turns,
        "tokens": lambda item: item.tokens,
        "seconds": lambda item: item.seconds,
        "parse_errors": lambda item: item.parse_errors / item.turns if item.turns else None,
        "tool_errors": lambda item: item.failed_calls / item.calls if item.calls else None,
        "truncated": lambda item: float(item.truncated),
        "cost": lambda item: item.cost,
    }


def _column(counted: list[list[Try]], value: Callable[[Try], float | None]) -> Values:
    """The tasks' means of what the tries have of a value."""
    means = []
    for found in counted:
        known = [float(each) for item in found if (each := value(item)) is not None]
        means.append(sum(known) / len(known) if known else np.nan)
    return np.array(means, dtype=np.float64)


def _passes(counted: list[list[Try]], most: int) -> dict[str, Values]:
    """pass@k and pass^k; a task with fewer than k tries that have a verdict has none. A verdict of 1 is a success."""
    verdicts = [[item.success >= 1.0 for item in found if item.success is not None] for found in counted]
    columns: dict[str, Values] = {}
    for k in range(1, most + 1):
        for name, estimate in ((f"pass@{k}", pass_at_k), (f"pass^{k}", pass_all_k)):
            values = [estimate(len(tries), sum(tries), k) if len(tries) >= k else np.nan for tries in verdicts]
            columns[name] = np.array(values, dtype=np.float64)
    return columns
