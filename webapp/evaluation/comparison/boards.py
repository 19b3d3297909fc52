"""What evaluations scored: leaderboards, an evaluation's own figures, and those by the names that papers print."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.utils.translation import gettext as _

from training.config import name_in
from training.data import row_value
from training.evaluation import Interval, Report, joined, mean_interval
from webapp.common.text import figure, percent
from webapp.evaluation.comparison.contestants import Contestant, Played, categories_of
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns, left_out_text
from webapp.launch.learned import Overlap, overlaps_of
from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.selectors import Weights, marks_of, weights_of_run
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.states import RunState

RUNS_READ = 300
BOARDS_SHOWN = 12


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
    for number, run in enumerate(rows.order_by("-finished_at", "-created_at")[:RUNS_READ]):
        contestant, report = Contestant(number, run, config_of(run)), report_of_run(run)
        if report is not None and contestant.config is not None and contestant.played is not None:
            part = contestant.config.evaluate  # figures over fewer tasks cannot be compared
            tasks = (contestant.played, part.share, part.tasks)
            found.setdefault(tasks, {}).setdefault(contestant.who, BoardLine(contestant, [], report))
    marks = marks_of(project)
    shown = [list(lines.values()) for lines in list(found.values())[:BOARDS_SHOWN]]
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


# --- Papers ---------------------------------------------------------------------------------------------------------
# Evaluations by the names and rules that papers print: BFCL's checker, WebShop's score, ToolBench's pass rate.
#
# An environment that plays such a benchmark ends each episode with the benchmark's own verdict among its reward parts;
# these become figures here. A figure that needs what was not played is left out, with a note.

BFCL_VALID, BFCL_ERROR = "bfcl_valid", "bfcl_error/"
BFCL_SPLITS = ("base", "miss_func", "miss_param", "long_context")
TOOLBENCH_JUDGE = "toolbench_pass"
READ_BYTES = 256 << 20


class Official(NamedTuple):
    """A benchmark's figures of one evaluation. ``files``: whether its score files can be had."""

    title: str
    about: str
    columns: list[Column]
    cells: list[Cell]
    notes: list[str]
    files: bool = False


class Try(NamedTuple):
    """One counted try: its task, the parts that its environment ended with, and the values of the reward components."""

    task: int
    number: int
    parts: dict[str, float]
    rewards: dict[str, float | None]


def official_of(run: Run) -> Official | None:
    """The benchmark's figures of an evaluation that has ended, if its environment plays one."""
    if not run.evaluation or not run.method.evaluates:
        return None
    first = Rollout.objects.filter(run=run).exclude(env_parts={}).values_list("env_parts", flat=True).first() or {}
    made = next((make for knows, make in _BENCHMARKS if knows(first)), None)
    return made(run, tries_of(run)) if made is not None else None


def tries_of(run: Run) -> list[Try]:
    """The counted tries; where two attempts played the same place, the later one's."""
    rows = Rollout.objects.filter(run=run).exclude(status__in=(RolloutStatus.RUNNING, RolloutStatus.EXCLUDED))
    found = {
        (row["step"], row["group"], row["index"]): Try(row["row"], row["index"], row["env_parts"], row["parts"])
        for row in rows.order_by("attempt").values("step", "group", "index", "row", "env_parts", "parts")
        if row["row"] is not None
    }
    return list(found.values())


def _mean_over_tasks(tries: Sequence[Try], value: Callable[[Try], float | None]) -> Interval:
    """Mean over tasks of the means over their tries."""
    by_task: dict[int, list[float]] = {}
    for item in tries:
        if (each := value(item)) is not None:
            by_task.setdefault(item.task, []).append(each)
    return mean_interval(np.array([sum(found) / len(found) for found in by_task.values()], dtype=np.float64))


def _bfcl_figures(run: Run, tries: Sequence[Try]) -> Official:
    contestant = Contestant(0, run, config_of(run))
    named = categories_of(contestant, sorted({item.task for item in tries}))
    splits = {task: name.removeprefix("multi_turn_") for task, name in named.items()}
    columns, cells, parts = [], [], []
    for split in BFCL_SPLITS:
        found = _mean_over_tasks(
            [item for item in tries if splits.get(item.task) == split], lambda item: item.parts.get(BFCL_VALID)
        )
        column = Column(split, split, _("Share of entries that BFCL's own checker calls valid."), percent)
        if found.value is not None:
            columns.append(column)
            cells.append(cell(column, found))
            parts.append(found)
    notes = []
    if len(parts) == len(BFCL_SPLITS):
        overall = Column("overall", _("Overall"), _("Mean of the four splits, as BFCL counts it."), percent)
        columns.insert(0, overall)
        cells.insert(0, cell(overall, joined(parts, [1.0] * len(parts))))
    else:
        played = ", ".join(column.name for column in columns) or _("none that the rows name")
        notes.append(
            _("The overall accuracy is the mean of four splits; played were: %(splits)s.") % {"splits": played}
        )
    about = _(
        "Every call is carried out and checked as BFCL's own checker does; up to five messages with calls a turn."
    )
    return Official(_("BFCL multi-turn accuracy"), about, columns, cells, notes, files=bool(columns))


def _webshop_figures(run: Run, tries: Sequence[Try]) -> Official:
    score = Column("score", _("Score"), _("100 × the mean reward, as WebShop counts it."), figure)
    rate = Column("success_rate", _("Success rate"), _("Share of episodes with the full reward of 1."), percent)
    found = _mean_over_tasks(tries, lambda item: None if "score" not in item.parts else 100 * item.parts["score"])
    solved = _mean_over_tasks(
        tries, lambda item: None if "score" not in item.parts else float(item.parts["score"] == 1.0)
    )
    about = _("As the WebShop paper prints them.")
    return Official("WebShop", about, [score, rate], [cell(score, found), cell(rate, solved)], [])


def _toolbench_figures(run: Run, tries: Sequence[Try]) -> Official:
    config = config_of(run)
    judges = [item.name for item in config.rewards.components if item.registered == TOOLBENCH_JUDGE] if config else []
    about = _("By a judge over the whole conversation; a task without Finish is unsolved.")
    if not judges:
        wanted = _("The pass rate needs the component %(name)s in the reward spec.") % {"name": TOOLBENCH_JUDGE}
        return Official("ToolBench", about, [], [], [wanted])
    rate = Column("pass_rate", _("Pass rate"), _("Solved counts 1, partially solved 0.5, unsolved 0."), percent)
    found = _mean_over_tasks(tries, lambda item: item.rewards.get(judges[0]))
    return Official("ToolBench", about, [rate], [cell(rate, found)], [])


_BENCHMARKS: tuple[tuple[Callable[[dict[str, Any]], bool], Callable[[Run, Sequence[Try]], Official]], ...] = (
    (lambda parts: BFCL_VALID in parts, _bfcl_figures),
    (lambda parts: {"score", "r_type"} <= parts.keys(), _webshop_figures),
    (lambda parts: {"finish", "valid_turns", "function_call"} <= parts.keys(), _toolbench_figures),
)


def bfcl_score_files(run: Run) -> bytes:
    """A zip of BFCL's score files, one for each split: a line with the accuracy, then one for each entry that failed.

    Of several tries of an entry the first counts, because BFCL makes one.
    """
    config, tries = config_of(run), tries_of(run)
    names = _entry_ids(Path(config.data.train), {item.task for item in tries}) if config is not None else {}
    by_split: dict[str, dict[str, Try]] = {}
    for item in sorted(tries, key=lambda each: (each.task, each.number)):
        name = names.get(item.task, "")
        split = name.removeprefix("multi_turn_").rpartition("_")[0]
        if split in BFCL_SPLITS:
            by_split.setdefault(split, {}).setdefault(name, item)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for split, found in by_split.items():
            archive.writestr(f"BFCL_multi_turn_{split}_score.json", _score_file(run, split, found))
    return packed.getvalue()


def _score_file(run: Run, split: str, found: Mapping[str, Try]) -> str:
    correct = sum(item.parts.get(BFCL_VALID) == 1.0 for item in found.values())
    lines: list[dict[str, Any]] = [
        {"accuracy": correct / len(found), "correct_count": correct, "total_count": len(found)}
    ]
    for name, item in found.items():
        if item.parts.get(BFCL_VALID) != 1.0:
            kinds = [key.removeprefix(BFCL_ERROR) for key in item.parts if key.startswith(BFCL_ERROR)]
            error = {"error_type": f"multi_turn:{kinds[0]}"} if kinds else {}
            lines.append(
                {
                    "id": name,
                    "model_name": run.name,
                    "test_category": f"multi_turn_{split}",
                    "valid": False,
                    "error": error,
                }
            )
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _entry_ids(path: Path, wanted: set[int]) -> dict[int, str]:
    """BFCL's ids of the rows at these places."""
    found: dict[int, str] = {}
    left = READ_BYTES
    try:
        with path.open("rb") as file:
            for place, line in enumerate(file):
                left -= len(line)
                if left < 0 or place > max(wanted, default=-1):
                    break
                if place in wanted:
                    row = json.loads(line)
                    values = (row_value(row, key) for key in ("id", "extra_info.original_id"))
                    found[place] = next((value for value in values if isinstance(value, str)), "")
    except (OSError, ValueError):
        return found
    return found
