"""The table of figures: a row for each contestant, each figure with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from training.evaluation.figures import PART, Sheet
from training.evaluation.intervals import Interval
from webapp.common.figures import duration, figure, percent
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.numbers import Numbers
from webapp.evaluation.comparison.sheets import Spec
from webapp.runs.config import component_titles


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
