"""Leaderboards: for each set of tasks that was evaluated, the newest evaluation of each contestant, the best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from training.config import name_in
from training.evaluation.intervals import Interval
from training.evaluation.recorded import Report
from webapp.evaluation.comparison.contestants import Contestant, Played
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns, left_out_text
from webapp.launch.learned.overlap import Overlap, overlaps_of
from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.selectors import Weights, marks_of, weights_of_run
from webapp.runs.states import RunState

READ = 300
SHOWN = 12


class BoardLine(NamedTuple):
    """A contestant's newest evaluation of these tasks; ``learned`` says how many of them it learned from."""

    contestant: Contestant
    cells: list[Cell]
    report: Report
    mark: str = ""
    learned: str = ""


class Board(NamedTuple):
    """A set of tasks. ``data`` and ``environment`` name it as configs do; ``share``: only this held-out part was
    played. ``baselines`` are those that the environment reported to the newest evaluation: simple policies with their
    mean reward and share of successes."""

    data: str
    environment: str
    share: float
    columns: list[Column]
    lines: list[BoardLine]
    baselines: list[dict[str, Any]]


def report_of_run(run: Run) -> Report | None:
    """The report of an evaluation that has ended; else ``None``."""
    return Report.model_validate(run.evaluation) if run.evaluation else None


def boards(project: Project) -> list[Board]:
    """The boards of a project, the one that was played last first."""
    rows = Run.objects.filter(project=project, state=RunState.SUCCEEDED, evaluation__isnull=False)
    found: dict[tuple[Played, float, int], dict[str, BoardLine]] = {}
    for number, run in enumerate(rows.order_by("-finished_at", "-created_at")[:READ]):
        contestant, report = Contestant(number, run, config_of(run)), report_of_run(run)
        if report is not None and contestant.config is not None and contestant.played is not None:
            part = contestant.config.evaluate  # figures over fewer tasks cannot be compared
            tasks = (contestant.played, part.share, part.tasks)
            found.setdefault(tasks, {}).setdefault(contestant.who, BoardLine(contestant, [], report))
    marks = marks_of(project)
    shown = [list(lines.values()) for lines in list(found.values())[:SHOWN]]
    overlaps = overlaps_of(line.contestant.run for lines in shown for line in lines)
    return [_board_of(lines, marks, overlaps) for lines in shown]


def _board_of(lines: Sequence[BoardLine], marks: dict[Weights, str], overlaps: dict[UUID, Overlap]) -> Board:
    most = min((line.report.most for line in lines if line.report.most), default=1)
    names = {name for line in lines for name in line.report.figures}
    columns = [column for column in known_columns(most) if column.name in names and column.name != "reward"]
    ranked = sorted(lines, key=_rank_key)
    config = lines[0].contestant.run.config
    read = lines[0].contestant.config
    return Board(
        name_in("dataset", str(config.get("data", {}).get("train", ""))),
        name_in("environment", str(config.get("environment", {}).get("name", ""))),
        read.evaluate.share if read is not None else 0.0,
        columns,
        [
            line._replace(
                cells=[cell(column, interval_of(line.report, column.name)) for column in columns],
                mark=mark_of(line.contestant.run, marks),
                learned=overlaps.get(line.contestant.run.pk, Overlap()).words,
            )
            for line in ranked
        ],
        list(lines[0].contestant.run.baselines or []),
    )


def mark_of(run: Run, marks: dict[Weights, str]) -> str:
    """The mark of the model that played; empty where none has one."""
    weights = weights_of_run(run) if marks else None
    return marks.get(weights, "") if weights is not None else ""


def _rank_key(line: BoardLine) -> float:
    """The sort key of a board: the most successful first, lines without a verdict last (that is not a success of 0)."""
    found = line.report.figures.get("success")
    return math.inf if found is None or found.value is None else -found.value


class Own(NamedTuple):
    """The figures of one evaluation, for its own page."""

    columns: list[Column]
    cells: list[Cell]
    left_out: str


def own_figures(run: Run) -> Own | None:
    """The figures of an evaluation that has ended; rewards are of its own spec."""
    report = report_of_run(run)
    if report is None:
        return None
    columns = [column for column in known_columns(report.most) if column.name in report.figures]
    cells = [cell(column, interval_of(report, column.name)) for column in columns]
    return Own(columns, cells, left_out_text(run.name, report.tasks, report.missing_tasks, report.excluded))


def interval_of(report: Report, name: str) -> Interval | None:
    """A figure of a report as an interval, for tables."""
    found = report.figures.get(name)
    return Interval(found.value, found.low, found.high, found.tasks) if found else None
