"""Figures of evaluations: of their rollouts, as a run records them, and of the suites that they belong to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from training.config import JobConfig
from training.data.identity import split_rows
from training.data.schema import Row
from training.errors import CannotContinue
from training.evaluation.comparisons import (
    Z_ALPHA,
    Interval,
    change_intervals,
    mean_interval,
    mean_intervals,
    paired,
    pass_all_k,
    pass_at_k,
    sign_flip,
)
from training.journal import JOURNAL_NAME, RolloutFinished, RolloutStarted, read_events
from training.rollout.figures import SUCCESS_PART
from training.rollout.rewinding import read_past

# The figures of an evaluation: each a mean over tasks with its interval; what is missing is counted, never 0.
#
# A task's value is the mean over its tries that count. A try counts unless it was excluded: it failed outside the
# policy, and its replays did too. Figures are of the tasks that have a value; the others are counted next to them.

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
        """A figure's values; all missing where it was not recorded."""
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


# An evaluation read from its journals, and what came out as JSON.

WHOLE_FILE = 1 << 50
REPORT_NAME = "evaluation.json"


def tries_of(folders: Sequence[Path]) -> list[Try]:
    """Every try of an evaluation, from the folders of its attempts, oldest first.

    Of a step that two attempts played, the later one's count.
    """
    found: dict[tuple[int, int, int], Try] = {}
    for folder in folders:
        playing: dict[str, RolloutStarted] = {}
        for _offset, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, RolloutStarted):
                playing[event.rollout] = event
            elif isinstance(event, RolloutFinished) and event.rollout in playing:
                started = playing.pop(event.rollout)
                found[started.step, started.group, started.index] = _try(started, event)
    return [found[place] for place in sorted(found)]


def _try(started: RolloutStarted, event: RolloutFinished) -> Try:
    return Try(
        task=started.row if started.row is not None else -1,
        excluded=event.status == "excluded",
        success=event.env_parts.get(SUCCESS_PART),
        reward=event.reward,
        parts=event.parts,
        turns=event.turns,
        tokens=event.tokens,
        seconds=event.seconds,
        parse_errors=event.parse_errors,
        calls=event.calls or 0,
        failed_calls=event.failed_calls or 0,
        truncated=event.status == "truncated",
        cost=event.cost,
    )


class Figure(BaseModel):
    """A mean over ``tasks`` tasks with its 95% interval."""

    model_config = ConfigDict(allow_inf_nan=False)

    value: float | None
    low: float | None
    high: float | None
    tasks: int = Field(ge=0)


class Report(BaseModel):
    """The result of an evaluation, and what its figures leave out. ``most`` is the most tries that a task has."""

    figures: dict[str, Figure]
    tasks: int = Field(ge=0)
    missing_tasks: int = Field(ge=0)
    tries: int = Field(ge=0)
    excluded: int = Field(ge=0)
    most: int = Field(default=0, ge=0)


def report_of(sheet: Sheet) -> Report:
    """The figures of a contestant, and what they leave out."""
    return Report(
        figures={name: Figure(**found._asdict()) for name, found in sheet.intervals().items()},
        tasks=len(sheet.tasks),
        missing_tasks=sheet.missing,
        tries=int(sheet.tries.sum()),
        excluded=int(sheet.excluded.sum()),
        most=sheet.most,
    )


def evaluation_of(folders: Sequence[Path], tasks: Sequence[int]) -> Report:
    """The report of an evaluation whose ``tasks`` were set."""
    return report_of(sheet_of(tries_of(folders), tasks))


# One score of several sets of tasks, each with its weight, and who is better by it.
#
# The score is the weighted mean of the sets' means. Its interval joins those of the sets by the method of variance
# estimates recovery (MOVER; Zou & Donner 2008): with one set it is that set's own interval, whatever that was made by.


class Score(NamedTuple):
    """The difference of two contestants over a suite, its interval, and the p-value of there being none."""

    difference: Interval
    p_value: float | None


def joined(intervals: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """The weighted mean of several means with its interval. A set without a value leaves the whole without one: a score
    over fewer sets would be another score."""
    total = math.fsum(weights)
    tasks = sum(interval.tasks for interval in intervals)
    if not intervals or total <= 0 or any(interval.value is None for interval in intervals):
        return Interval(None, None, None, tasks)
    shares = [weight / total for weight in weights]
    value = math.fsum(share * (each.value or 0.0) for share, each in zip(shares, intervals, strict=True))
    if any(each.low is None or each.high is None for share, each in zip(shares, intervals, strict=True) if share):
        return Interval(value, None, None, tasks)
    below = _spread(shares, [(each.value or 0.0) - (each.low or 0.0) for each in intervals])
    above = _spread(shares, [(each.high or 0.0) - (each.value or 0.0) for each in intervals])
    return Interval(value, value - below, value + above, tasks)


def _spread(shares: Sequence[float], distances: Sequence[float]) -> float:
    return math.sqrt(math.fsum((share * distance) ** 2 for share, distance in zip(shares, distances, strict=True)))


def better_by(parts: Sequence[tuple[Values, Values]], weights: Sequence[float], *, seed: int = 0) -> Score:
    """How much better the second is than the first. Each part has one value a task of both, in the same order, NaN
    where there is none; tasks that only one of them has are left out."""
    if len(parts) == 1:
        found = paired(*parts[0], seed=seed)
        return Score(found.difference, found.p_value)
    changes = [second - first for first, second in parts]
    changes = [change[~np.isnan(change)] for change in changes]
    difference = joined([change_intervals(change[:, None], seed=seed)[0] for change in changes], weights)
    if difference.value is None:
        return Score(difference, None)
    # A task of a small set with a large weight moves the score more: its sign is flipped with all that it moves.
    moved = [weight * change / change.size for weight, change in zip(weights, changes, strict=True)]
    return Score(difference, sign_flip(np.concatenate(moved), seed=seed))


def ahead_by(first: Values, second: Values, *, seed: int = 0) -> Score:
    """How much better the second is than the first where each played other tasks: one value a task of each.

    The interval joins those of the two means (MOVER, as ``joined``). The p-value is that of the normal distribution
    whose 95% interval has the end nearest to 0 there, so the two never contradict each other; ``None`` where there is
    no interval, or one of no width around a difference.
    """
    a, b = (mean_interval(values[~np.isnan(values)], seed=seed) for values in (first, second))
    tasks = a.tasks + b.tasks
    if a.value is None or b.value is None:
        return Score(Interval(None, None, None, tasks), None)
    value = b.value - a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Score(Interval(value, None, None, tasks), None)
    low = value - math.hypot(b.value - b.low, a.high - a.value)
    high = value + math.hypot(b.high - b.value, a.value - a.low)
    found = Interval(value, max(-1.0, low), min(1.0, high), tasks)
    to_zero = value - low if value > 0 else high - value
    if not value:
        return Score(found, 1.0)
    return Score(found, math.erfc(Z_ALPHA * abs(value) / to_zero / math.sqrt(2)) if to_zero > 0 else None)


# --- Tasks ----------------------------------------------------------------------------------------------------------
# Which tasks an evaluation plays: the same for every contestant.

DRAWN_TASKS = 100
"""Tasks of an evaluation for which neither a dataset nor an option says how many."""


def drawn_tasks(config: JobConfig, places: Sequence[int]) -> list[int]:
    """Those of ``places`` that are played, in order."""
    wanted = config.evaluate.tasks
    if not wanted or wanted >= len(places):
        return list(places)
    return sorted(random.Random(config.run.seed).sample(places, wanted))  # noqa: S311 - a draw, not a secret


def evaluated_places(config: JobConfig, rows: Sequence[Row]) -> list[int]:
    """Places of the rows that an evaluation may play: the recorded one where it continues from a recorded rollout, the
    held-out ones where a share is held out, else all. Raises ``CannotContinue``."""
    if config.evaluate.continue_from:
        place = read_past(Path(config.evaluate.continue_from)).row
        if place >= len(rows):
            raise CannotContinue(f"The recorded rollout played row {place + 1} of a dataset that has {len(rows)} now.")
        return [place]
    return split_rows(rows, config.evaluate.share).held_out if config.evaluate.share else list(range(len(rows)))
