"""The results of a suite: a score for each contestant, who is better, and the best over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from django.utils.translation import gettext as _

from training.evaluation import ALPHA, Interval, Score, Values, better_by, holm, joined
from webapp.evaluation.comparison.boards import interval_of, mark_of, report_of_run
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import (
    Cell,
    Column,
    at_floor,
    cell,
    known_columns,
    left_out_text,
    numbers_of,
    p_text,
    same_tasks,
)
from webapp.evaluation.suites.models import SuiteEvaluation, SuiteVersion
from webapp.evaluation.suites.services import pages_of, title_of_contestant
from webapp.launch.learned import overlaps_of
from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.selectors import marks_of
from webapp.runs.states import RunState

MOST_COMPARED = 8
READ = 200


class Part(NamedTuple):
    """One part of an evaluation: its run, and its success if it has ended well."""

    title: str
    weight: float
    run: Run | None
    success: Interval | None
    cell: Cell | None


@dataclass
class Line:
    """A contestant's evaluation. ``verdict`` compares it with the first of the board, ``page`` is the contestant's
    own, ``mark`` the one of the model that played."""

    evaluation: SuiteEvaluation
    title: str
    parts: list[Part]
    score: Interval | None
    score_cell: Cell | None
    notes: list[str]
    verdict: str = ""
    page: str = ""
    mark: str = ""

    @property
    def runs(self) -> list[Run]:
        """Its runs, in the order of the parts."""
        return [part.run for part in self.parts if part.run is not None]


class Columns(NamedTuple):
    """Success by task, a column for each line, and which lines played the same tasks as the first."""

    success: Values
    same: list[bool]


class Best(NamedTuple):
    """The best score that had been reached at a moment, and by whom."""

    at: datetime
    title: str
    value: float


@dataclass
class SuiteBoard:
    """A version's results: the newest evaluation of each contestant, the best first; those that have no score yet."""

    version: SuiteVersion
    lines: list[Line] = field(default_factory=list)
    waiting: list[Line] = field(default_factory=list)
    baselines: list[dict[str, Any]] = field(default_factory=list)
    history: list[Best] = field(default_factory=list)
    corrected: int = 0


def board_of(version: SuiteVersion, *, judged: bool = True) -> SuiteBoard:
    """Read everything that a version's page says; without ``judged`` not the comparison with the first contestant, for
    which every try of all of them is read."""
    rows = version.evaluations.select_related("created_by").prefetch_related("runs__run").order_by("-created_at", "pk")
    lines = [_line_of(version, evaluation) for evaluation in rows[:READ]]
    scored = [line for line in lines if line.score is not None and line.score.value is not None]
    board = SuiteBoard(version, history=_score_records(scored))
    newest: dict[str, Line] = {}
    for line in scored:
        newest.setdefault(line.evaluation.contestant, line)
    board.lines = sorted(newest.values(), key=lambda line: -_score_value(line))
    shown = {line.evaluation.pk for line in scored}
    board.waiting = [line for line in lines if line.evaluation.pk not in shown]
    board.baselines = _baselines_of(board.lines)
    _add_pages_and_notes(version.suite.project, [*board.lines, *board.waiting])
    if judged:
        board.corrected = _set_verdicts(version, board.lines[:MOST_COMPARED])
    return board


def _add_pages_and_notes(project: Project, lines: Sequence[Line]) -> None:
    """Give each line its contestant's page, the mark of its model, and a note if it learned from what it plays."""
    pages = pages_of(project, {line.evaluation.contestant for line in lines})
    marks = marks_of(project)
    learned = overlaps_of(run for line in lines for run in line.runs)
    for line in lines:
        line.notes += [
            _("%(part)s: %(learned)s.") % {"part": part.title, "learned": learned[part.run.pk].words}
            for part in line.parts
            if part.run is not None and part.run.pk in learned and learned[part.run.pk].words
        ]
        line.page = pages.get(line.evaluation.contestant, "")
        line.mark = mark_of(line.runs[0], marks) if line.runs else ""


def _score_value(line: Line) -> float:
    return line.score.value if line.score is not None and line.score.value is not None else 0.0


def _success_column(title: str) -> Column:
    success = next(column for column in known_columns(1) if column.name == "success")
    return success._replace(title=title)


def _line_of(version: SuiteVersion, evaluation: SuiteEvaluation) -> Line:
    runs = {item.part: item.run for item in evaluation.runs.all()}
    parts = [_part_of(part, runs.get(place)) for place, part in enumerate(version.parts)]
    found = [part.success for part in parts if part.success is not None]
    score = joined(found, [part.weight for part in parts]) if len(found) == len(parts) else None
    shown = cell(_success_column(_("Score")), score) if score is not None else None
    title = title_of_contestant(evaluation.contestant)
    return Line(evaluation, title, parts, score, shown, _notes_of(version, evaluation, parts))


def _part_of(part: dict[str, Any], run: Run | None) -> Part:
    title, weight = str(part["title"]), float(part["weight"])
    report = report_of_run(run) if run is not None else None
    success = interval_of(report, "success") if report is not None else None
    return Part(title, weight, run, success, cell(_success_column(title), success) if success is not None else None)


def _notes_of(version: SuiteVersion, evaluation: SuiteEvaluation, parts: Sequence[Part]) -> list[str]:
    """Sentences on what the score leaves out, and on what has changed since the version was made."""
    notes = []
    for place, part in enumerate(parts):
        if part.run is None:
            notes.append(_("The run of %(part)s was deleted.") % {"part": part.title})
            continue
        if part.run.state in {RunState.FAILED, RunState.CANCELLED}:
            state = {"part": part.title, "state": part.run.get_state_display()}
            notes.append(_("%(part)s has no result: its run is %(state)s.") % state)
        report = report_of_run(part.run)
        left = left_out_text(part.title, report.tasks, report.missing_tasks, report.excluded) if report else ""
        if left:
            notes.append(left)
        before, then = version.parts[place].get("environment", {}), dict(enumerate(evaluation.environments)).get(place)
        if then and before and then.get("version") != before.get("version"):
            versions = {"part": part.title, "then": then.get("version"), "before": before.get("version")}
            notes.append(
                _("%(part)s was played on version %(then)s of its environment; the suite was made on %(before)s.")
                % versions
            )
    return notes


def _score_records(scored: Sequence[Line]) -> list[Best]:
    """Each time that the best score rose, oldest first."""
    found: list[Best] = []
    for line in sorted(scored, key=lambda line: line.evaluation.created_at):
        if not found or _score_value(line) > found[-1].value:
            found.append(Best(line.evaluation.created_at, line.title, _score_value(line)))
    return found


def _baselines_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The environment's figures of simple policies, where the suite has one part: several have no common figure."""
    runs = next((line.runs for line in lines if len(line.runs) == len(line.parts) == 1), [])
    return list(runs[0].baselines or []) if runs else []


def _set_verdicts(version: SuiteVersion, lines: Sequence[Line]) -> int:
    """Compare each line with the first. Returns how many p-values were corrected for each other."""
    if len(lines) < 2:
        return 0
    parts = [_success_columns(lines, place) for place in range(len(version.parts))]
    weights = [float(part["weight"]) for part in version.parts]
    found = [_against_first(parts, number, weights) for number in range(1, len(lines))]
    corrected = holm([score.p_value if score is not None else None for score in found])
    for line, score, p_value in zip(lines[1:], found, corrected, strict=True):
        line.verdict = _verdict_text(score, p_value)
    return sum(p_value is not None for p_value in corrected)


def _against_first(parts: Sequence[Columns], number: int, weights: Sequence[float]) -> Score | None:
    """How much better the first is than another; ``None`` where they did not play the same tasks in every part."""
    if not all(columns.same[number] for columns in parts):
        return None
    return better_by([(columns.success[:, number], columns.success[:, 0]) for columns in parts], weights)


def _success_columns(lines: Sequence[Line], place: int) -> Columns:
    """The lines' success in one part."""
    runs = [line.parts[place].run for line in lines]
    playing = [Contestant(number, run, config_of(run)) for number, run in enumerate(runs) if run is not None]
    if len(playing) < len(lines):
        return Columns(np.empty((0, len(lines))), [False] * len(lines))
    sheets = numbers_of(playing, None).sheets
    tasks = sorted({task for sheet in sheets for task in sheet.tasks})
    columns = []
    for sheet in sheets:
        values = dict(zip(sheet.tasks, sheet.of("success"), strict=True))
        columns.append([values.get(task, np.nan) for task in tasks])
    return Columns(np.array(columns, dtype=np.float64).T, [same_tasks(playing[0], item) for item in playing])


def _verdict_text(score: Score | None, p_value: float | None) -> str:
    if score is None or score.difference.value is None:
        return _("played other tasks than the first, so they are not compared")
    points = -100 * score.difference.value
    said = {"points": f"{points:+.1f}".replace("-", "−"), "p": p_text(p_value, floor=at_floor(score.p_value))}
    if p_value is not None and p_value <= ALPHA:
        return _("%(points)s points to the first, %(p)s") % said
    return _("cannot be told apart from the first (%(points)s points, %(p)s)") % said
