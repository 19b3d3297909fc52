"""The table of figures: a row for each contestant, each figure with its interval. And a sentence on which of two is
better."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import RewardComponent
from training.evaluation import (
    ALPHA,
    FLOOR,
    PART,
    SUCCESS_PART,
    Interval,
    Paired,
    Sheet,
    Try,
    Values,
    holm,
    intervals_of,
    mean_intervals,
    paired_columns,
    sheet_of,
)
from webapp.common.text import duration, figure, finite, percent
from webapp.evaluation.comparison.contestants import Contestant, categories_of, tasks_sets
from webapp.evaluation.rescoring.columns import Lacks, Scale, columns_of_runs, versions_of
from webapp.launch.learned import Overlap, overlaps_of
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


def sheets_for(contestants: Sequence[Contestant]) -> list[Sheet]:
    """The values of each contestant with the rewards that it recorded, in two queries for all."""
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants)
    return [
        sheet_of([_try_of_row(row, row["reward"], row["parts"]) for row in rows.get(item.run.pk, [])], tasks)
        for item, tasks in zip(contestants, sets, strict=True)
    ]


def weighed_sheets(contestants: Sequence[Contestant], spec: Spec) -> list[Weighing]:
    """The values of each with the rewards that this spec would have given, from what was recorded and computed; in
    three queries for all.

    A try without a value of a counted component has no reward under it; an excluded try is not weighed.
    """
    rows, sets = _rollouts_by_run(contestants), tasks_sets(contestants)
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
    """The finished rollouts of each run, in one query."""
    found: dict[UUID, list[dict[str, Any]]] = {}
    for row in latest_rollouts(*(item.run for item in contestants)).values("run_id", *FIELDS):
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
    if not contestant.ended:
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


# --- Verdicts --------------------------------------------------------------------------------------------------------
# One sentence on which of two contestants is better, or on why that is not known.


class Verdict(NamedTuple):
    """A pair, the better one first where ``told`` (the difference is significant).

    ``p_value`` is corrected for all pairs of the page.
    """

    better: Contestant
    worse: Contestant
    told: bool
    text: str
    p_value: float | None


def verdicts(contestants: Sequence[Contestant], numbers: Numbers) -> list[Verdict]:
    """A verdict for each pair that played the same tasks, those with a significant difference first."""
    corrected = holm([found.p_value for found in numbers.pairs.values()])
    learned = overlaps_of(item.run for item in contestants)
    made = [
        _with_overlap(
            _verdict_of_pair(
                contestants[a], contestants[b], max(numbers.sheets[a].most, numbers.sheets[b].most), found, p_value
            ),
            learned,
        )
        for ((a, b), found), p_value in zip(numbers.pairs.items(), corrected, strict=True)
    ]
    return sorted(made, key=lambda verdict: (not verdict.told, 1.0 if verdict.p_value is None else verdict.p_value))


def _with_overlap(verdict: Verdict, learned: Mapping[UUID, Overlap]) -> Verdict:
    """The verdict with how many of the tasks either learned from."""
    sentences = [verdict.text]
    for item in (verdict.better, verdict.worse):
        overlap = learned.get(item.run.pk, Overlap())
        values = {"run": item.run.name, "seen": overlap.seen, "tasks": overlap.tasks}
        if overlap.seen is None:
            sentences.append(_("%(run)s learned from these tasks.") % values)
        elif overlap.seen:
            sentences.append(_("%(run)s learned from %(seen)d of these %(tasks)d tasks.") % values)
    return verdict._replace(text=" ".join(sentences))


def learned_notes(contestants: Sequence[Contestant]) -> list[str]:
    """For each contestant, a note on how many of its tasks it learned from."""
    learned = overlaps_of(item.run for item in contestants)
    named = [(item.run.name, learned[item.run.pk].words) for item in contestants if item.run.pk in learned]
    return [_("%(run)s: %(learned)s.") % {"run": name, "learned": words} for name, words in named if words]


def different_tasks(contestants: Sequence[Contestant]) -> list[tuple[Contestant, Contestant]]:
    """Pairs that cannot be compared by task."""
    return [(a, b) for a, b in combinations(contestants, 2) if not same_tasks(a, b)]


def _verdict_of_pair(a: Contestant, b: Contestant, tries: int, found: Paired, p_value: float | None) -> Verdict:
    swap = (found.difference.value or 0.0) < 0
    better, worse = (a, b) if swap else (b, a)
    sign = -1 if swap else 1
    wins, losses = (found.losses, found.wins) if swap else (found.wins, found.losses)
    apart = p_value is not None and p_value <= ALPHA
    values = {
        "better": better.run.name,
        "worse": worse.run.name,
        "wins": wins,
        "losses": losses,
        "points": _points_text(sign, found),
        "p": p_text(p_value, floor=at_floor(found.p_value)),
        "n": _count_text(found.tasks, tries),
    }
    if apart:
        text = _(
            "%(better)s solves %(wins)d tasks more often than not that %(worse)s does not; the reverse holds for "
            "%(losses)d: success %(points)s, %(p)s, n = %(n)s."
        )
    elif found.needed is not None:
        values["needed"] = _round_up(found.needed)
        text = _(
            "%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s. About %(needed)s "
            "tasks would be needed."
        )
    else:
        text = _("%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s.")
    return Verdict(better, worse, apart, text % values, p_value)


def _points_text(sign: int, found: Paired) -> str:
    """``+7.8 points (95%: 4.1 to 11.6)``."""
    value, low, high = found.difference.value, found.difference.low, found.difference.high
    shown = _("%(value)s points") % {"value": _signed_number(100 * sign * (value or 0.0))}
    if low is None or high is None:
        return shown
    ends = sorted((100 * sign * low, 100 * sign * high))
    return _("%(points)s (95%%: %(low)s to %(high)s)") % {
        "points": shown,
        "low": _one_decimal(ends[0]),
        "high": _one_decimal(ends[1]),
    }


def _signed_number(value: float) -> str:
    return _one_decimal(value) if value < 0 else f"+{_one_decimal(value)}"


def _one_decimal(value: float) -> str:
    return f"{value + 0.0:.1f}".replace("-", "−")


def at_floor(p_value: float | None) -> bool:
    """Whether a p-value, before it was corrected, is the least that its test can give: then only a bound is known."""
    return p_value is not None and p_value <= FLOOR


def p_text(p_value: float | None, *, floor: bool = False) -> str:
    """A p-value as it is printed, with its sign: never 0, and a bound of one digit where only a bound is known."""
    if p_value is None:
        return "p –"
    if floor and p_value >= 1e-4:
        unit = 10.0 ** math.floor(math.log10(p_value))
        return f"p < {(math.floor(p_value / unit) + 1) * unit:.1g}"
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def _count_text(tasks: int, tries: int) -> str:
    shown = ngettext("%(n)s task", "%(n)s tasks", tasks) % {"n": f"{tasks:,}"}
    return shown if tries <= 1 else f"{shown} × {tries}"


def _round_up(tasks: int) -> str:
    """Two digits: more would be claimed than is known."""
    if tasks > 1_000_000:
        return _("more than a million")
    digits = 10 ** max(0, len(str(tasks)) - 2)
    return f"{-(-tasks // digits) * digits:,}"
