"""The tasks of a run over its steps: as numbers, computed by the database, and as a map: tasks against their visits, or
their categories against steps, each cell coloured by the share that solved it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

import numpy as np
from django.db import connection
from django.db.models import Max, Min

from training.evaluation import LEVEL, changes, fisher, share_interval
from webapp.common.words import Outcome
from webapp.datasets.models import Dataset
from webapp.datasets.rows import Categories, categories_in_file
from webapp.runs.config import config_of, of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

# --- Courses --------------------------------------------------------------------------------------------------------
# Which dataset a step's tasks are rows of: a run's stages may have several, and then one number is several tasks.


class Courses(NamedTuple):
    """From step ``begins[i]`` on (until the next one) tasks are rows of dataset ``numbers[i + 1]``; before the first
    of them, of dataset ``numbers[0]``. ``paths`` has the rows of each dataset by its number. In a mix the part says
    which dataset it is, by ``parts``."""

    begins: list[int]
    numbers: list[int]
    paths: list[str]
    parts: dict[str, int] = {}

    def at(self, step: int, part: str = "") -> int:
        """The number of the dataset whose rows a step, or a part of its mix, played."""
        return self.parts.get(part, self.numbers[sum(begin <= step for begin in self.begins)])


def courses_of(run: Run) -> Courses:
    """The datasets of a run in the order of its stages, each once."""
    config = config_of(run)
    if config is None:
        return Courses([], [0], [""])
    if config.mix.parts:
        of_part = {name: course.data.train for name, course in config.named_courses.items()}
        paths = list(dict.fromkeys(of_part.values()))
        return Courses([], [0], paths, {name: paths.index(path) for name, path in of_part.items()})
    begins = sorted({int(stage["began"]) + 1 for stage in (run.health or {}).get("stages") or []})
    begins = [begin for begin in begins if begin > 1]
    paths = []
    numbers = []
    for step in (0, *begins):
        path = of_step(run, config, max(step, 1)).data.train
        if path not in paths:
            paths.append(path)
        numbers.append(paths.index(path))
    return Courses(begins, numbers, paths)


def dataset_at(run: Run, courses: Courses, number: int) -> Dataset | None:
    """The dataset of that number, if it is one of the project's."""
    path = Path(courses.paths[number])
    try:
        found = Dataset.objects.filter(pk=UUID(path.parent.name), project=run.project_id).first()
    except ValueError:
        return None
    return found if found is not None and found.rows_path == path else None


# --- Visits ---------------------------------------------------------------------------------------------------------
# The tasks of a run over its steps, computed by the database from the outcomes of rollouts.
#
# A *visit* is what a step says of a task: how many of its rollouts solved it, of those that have a verdict. A task is
# solved at a visit where more than half of these did. Only the newest attempt that played a step counts, as everywhere.
# Visits without any verdict are left out.
#
# The kinds of a task, in this order:
#
# - ``once``: it has one visit, so no change can be seen;
# - ``forgotten``: at its last visit a smaller share solved it than at all visits before, by more than chance;
# - ``learned``: at its last visit a larger share solved it than at its first one, by more than chance;
# - ``never``: solved at no visit;
# - ``flickering``: from one visit to the next it changed between solved and not solved ``FLICKERS`` times or more;
# - ``kept``: solved at its first visit and at its last one;
# - ``unclear``: it changed, and chance explains the change.
#
# More than chance: Fisher's exact test, two-sided, at ``LEVEL``. Each of these two words is shown with how many tasks
# would get it if none had changed: the sum of the tests' own sizes, given how often each task was solved in all.

Kind = Literal["forgotten", "learned", "flickering", "never", "kept", "unclear", "once"]
Sort = Literal["need", "row", "gain", "drop", "changes", "share"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SORTS: tuple[Sort, ...] = get_args(Sort)
NEEDS: tuple[Kind, ...] = ("forgotten", "never", "unclear", "flickering", "once", "kept", "learned")
"""What was lost and what was not learned comes first."""
FLICKERS = 3
VERDICTS = (Outcome.SOLVED, Outcome.PARTLY, Outcome.FAILED)

# Dataset, row and step of each visit with its counts. width_bucket finds the stage of a step.
_OF_STEP = "(%(numbers)s::int[])[width_bucket(r.step, %(begins)s::int[])]"
_VISITS = """
visits AS (
    SELECT (%(numbers)s::int[])[width_bucket(r.step, %(begins)s::int[])] AS dataset, r.row, r.step,
        max(r."group") AS place,
        count(*) FILTER (WHERE r.outcome = 'solved') AS solved,
        count(*) FILTER (WHERE r.outcome IN ('solved', 'partly', 'failed')) AS counted
    FROM rollouts_rollout r
    WHERE r.run_id = %(run)s AND NOT r.held_out AND r.row IS NOT NULL
    GROUP BY 1, 2, 3
)"""
_NEWEST = """
newest AS (
    SELECT step, max(attempt) AS attempt FROM rollouts_rollout
    WHERE run_id = %(run)s AND NOT held_out AND row IS NOT NULL GROUP BY step
), """
_TASKS = """
stepped AS (
    SELECT dataset, row, step, solved, counted, solved::float / counted AS share, 2 * solved > counted AS ok,
        lag(2 * solved > counted) OVER of_task AS before, lead(step) OVER of_task AS later
    FROM visits WHERE counted > 0 WINDOW of_task AS (PARTITION BY dataset, row ORDER BY step)
), summed AS (
    SELECT dataset, row, count(*) AS visits, sum(solved)::int AS solved, sum(counted)::int AS counted,
        bool_or(ok) FILTER (WHERE before IS NULL) AS first_ok, bool_or(ok) FILTER (WHERE later IS NULL) AS last_ok,
        max(share) FILTER (WHERE before IS NULL) AS first_share, max(share) FILTER (WHERE later IS NULL) AS last_share,
        max(solved) FILTER (WHERE before IS NULL)::int AS first_hits,
        max(counted) FILTER (WHERE before IS NULL)::int AS first_tries,
        max(solved) FILTER (WHERE later IS NULL)::int AS last_hits,
        max(counted) FILTER (WHERE later IS NULL)::int AS last_tries,
        max(share) AS best_share, count(*) FILTER (WHERE ok <> before) AS changes,
        min(step) FILTER (WHERE ok) AS first_solved, max(step) FILTER (WHERE ok) AS last_solved
    FROM stepped GROUP BY dataset, row
)"""
_KINDS = """
marks AS (
    SELECT * FROM unnest(%(first_hits)s::int[], %(first_tries)s::int[], %(last_hits)s::int[], %(last_tries)s::int[],
        %(solved)s::int[], %(counted)s::int[], %(mark)s::text[])
        AS m(first_hits, first_tries, last_hits, last_tries, solved, counted, mark)
), tasks AS (
    SELECT summed.*, CASE WHEN visits = 1 THEN 'once' WHEN mark IS NOT NULL THEN mark
        WHEN first_solved IS NULL THEN 'never' WHEN changes >= %(flickers)s THEN 'flickering'
        WHEN first_ok AND last_ok THEN 'kept' ELSE 'unclear' END AS kind
    FROM summed LEFT JOIN marks USING (first_hits, first_tries, last_hits, last_tries, solved, counted)
)"""
_MARKED = ("first_hits", "first_tries", "last_hits", "last_tries", "solved", "counted")
_ORDERS: dict[str, str] = {
    "need": "array_position(%(needs)s::text[], kind), last_share, ",
    "row": "",
    "gain": "last_share - first_share DESC, ",
    "drop": "best_share - last_share DESC, ",
    "changes": "changes DESC, ",
    "share": "solved::float / counted, ",
}


def usual_sort(kind: Kind | None) -> Sort:
    """The order in which tasks of a kind are listed first."""
    usual: dict[Kind | None, Sort] = {"learned": "gain", "forgotten": "drop", "flickering": "changes"}
    return usual.get(kind, "row" if kind else "need")


class Task(NamedTuple):
    """A task and its kind. ``row`` counts from 0; shares are of the rollouts with a verdict:
    ``first_tries`` of its first visit, ``last_tries`` of its last one."""

    dataset: int
    row: int
    kind: Kind
    visits: int
    solved: int
    counted: int
    changes: int
    first_solved: int | None
    last_solved: int | None
    first_share: float
    last_share: float
    first_hits: int = 0
    first_tries: int = 0
    last_hits: int = 0
    last_tries: int = 0

    @property
    def first(self) -> list[int]:
        """Rollouts that solved it at its first visit, of how many."""
        return [self.first_hits, self.first_tries]

    @property
    def last(self) -> list[int]:
        """The same at its last visit."""
        return [self.last_hits, self.last_tries]

    @property
    def place(self) -> str:
        """Which task of the run it is."""
        return f"{self.dataset}:{self.row}"

    @property
    def p(self) -> float | None:
        """Of as large a change by chance alone: of the last visit against all before it for what was forgotten, else
        against the first one; ``None`` of one visit."""
        if self.visits < 2:
            return None
        before = (self.first_hits, self.first_tries)
        if self.kind == "forgotten":
            before = (self.solved - self.last_hits, self.counted - self.last_tries)
        return fisher(before, (self.last_hits, self.last_tries))


class Tasks(NamedTuple):
    """A page of tasks, how many there are of each kind, and how many of two kinds chance alone would give."""

    tasks: list[Task]
    counts: dict[Kind, int]
    by_chance: dict[Kind, float]


class Cell(NamedTuple):
    """The counts of a task in the visits of one column; the newest step of these with its group, for a link, and the
    oldest one. ``visits``: the most that a task of the page has."""

    dataset: int
    row: int
    column: int
    solved: int
    counted: int
    step: int
    group: int
    since: int
    visits: int


class Visit(NamedTuple):
    """The counts of a task in one step."""

    step: int
    group: int
    solved: int
    counted: int

    @property
    def share(self) -> float | None:
        """The share that solved it; ``None`` without a verdict."""
        return self.solved / self.counted if self.counted else None


def _query_values(run: Run, courses: Courses, **more: Any) -> dict[str, Any]:
    known = {"run": run.pk, "begins": [0, *courses.begins], "numbers": courses.numbers, "flickers": FLICKERS}
    known["needs"] = list(NEEDS)
    return known | {"parts": json.dumps(courses.parts)} | more


def _visits_sql(run: Run, courses: Courses, rows: str = "AND r.row IS NOT NULL") -> str:
    """The visits of a run, of all its tasks or of some ``rows``; a run with one attempt needs no search for the
    newest."""
    visits = _VISITS.replace("AND r.row IS NOT NULL", rows)
    if courses.parts:
        visits = visits.replace(_OF_STEP, "(%(parts)s::jsonb ->> r.part)::int")
    if run.attempt <= 1:
        return visits
    return _NEWEST + visits.replace(
        "FROM rollouts_rollout r", "FROM rollouts_rollout r JOIN newest USING (step, attempt)"
    )


def _fetch_rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def tasks_of(run: Run, courses: Courses, *, kind: Kind | None, sort: Sort, offset: int, limit: int) -> Tasks:
    """A page of the tasks of one kind, or of all, in an order."""
    order = _ORDERS[sort]
    marks, by_chance = _change_marks(run, courses)
    sql = f"""
        WITH {_visits_sql(run, courses)}, {_TASKS}, {_KINDS}, counts AS (
            SELECT coalesce(jsonb_object_agg(kind, n), '{{}}'::jsonb)::text AS found
            FROM (SELECT kind, count(*) AS n FROM tasks GROUP BY kind) AS each
        ), page AS (
            SELECT dataset, row, kind, visits, solved, counted, changes, first_solved, last_solved, first_share,
                last_share, first_hits, first_tries, last_hits, last_tries,
                row_number() OVER (ORDER BY {order} dataset, row) AS place
            FROM tasks WHERE %(kind)s = '' OR kind = %(kind)s
            ORDER BY place OFFSET %(offset)s LIMIT %(limit)s
        )
        SELECT counts.found, page.* FROM counts LEFT JOIN page ON true ORDER BY place
    """  # noqa: S608 (the order is one of ours)
    found = _fetch_rows(sql, _query_values(run, courses, kind=kind or "", offset=offset, limit=limit, **marks))
    counts = json.loads(found[0][0])
    return Tasks(
        [Task(*row[1:-1]) for row in found if row[1] is not None],
        {kind: counts.get(kind, 0) for kind in KINDS},
        by_chance,
    )


def _change_marks(run: Run, courses: Courses) -> tuple[dict[str, list[Any]], dict[Kind, float]]:
    """Which counts of a task mean that it was forgotten or learned, and how many tasks would be by chance alone.

    Tasks of equal counts are tested once: there are far fewer of these than tasks.
    """
    names = ", ".join(_MARKED)
    visits = _visits_sql(run, courses)
    sql = f"WITH {visits}, {_TASKS} SELECT {names}, count(*) FROM summed WHERE visits > 1 GROUP BY {names}"  # noqa: S608
    rows = np.array(_fetch_rows(sql, _query_values(run, courses)), np.int64).reshape(-1, len(_MARKED) + 1)
    first, last, whole, tasks = rows[:, 0:2], rows[:, 2:4], rows[:, 4:6], rows[:, 6]
    forgotten, learned = changes(whole - last, last, LEVEL), changes(first, last, LEVEL)
    fell = (forgotten.p <= LEVEL) & (last[:, 0] * (whole - last)[:, 1] < (whole - last)[:, 0] * last[:, 1])
    rose = (learned.p <= LEVEL) & (last[:, 0] * first[:, 1] > first[:, 0] * last[:, 1]) & ~fell
    marked = fell | rose
    marks: dict[str, list[Any]] = {name: rows[marked, at].tolist() for at, name in enumerate(_MARKED)}
    marks["mark"] = np.where(fell, "forgotten", "learned")[marked].tolist()
    by_chance: dict[Kind, float] = {
        "forgotten": float(forgotten.fell @ tasks),
        "learned": float(learned.rose @ tasks),
    }
    return marks, by_chance


def cells_of(run: Run, courses: Courses, tasks: list[Task]) -> list[Cell]:
    """The cells of a page of tasks: a column for each visit, or for as many as let ``COLUMNS`` hold all of them."""
    sql = f"""
        WITH {_visits_sql(run, courses, "AND r.row = ANY(%(rows)s)")}, numbered AS (
            SELECT visits.*, row_number() OVER (PARTITION BY dataset, row ORDER BY step) - 1 AS number
            FROM visits JOIN unnest(%(sets)s::int[], %(rows)s::int[]) AS wanted (dataset, row) USING (dataset, row)
        ), longest AS (SELECT max(number) + 1 AS visits FROM numbered)
        SELECT dataset, row, (number / ((visits + %(columns)s - 1) / %(columns)s))::int AS place,
            sum(solved)::int, sum(counted)::int, max(step), (array_agg(numbered.place ORDER BY step DESC))[1],
            min(step), visits::int
        FROM numbered CROSS JOIN longest GROUP BY 1, 2, 3, visits
    """  # noqa: S608 (of parts of ours)
    given = {"sets": [task.dataset for task in tasks], "rows": [task.row for task in tasks], "columns": COLUMNS}
    return [Cell(*row) for row in _fetch_rows(sql, _query_values(run, courses, **given))]


def visits_of(run: Run, courses: Courses, dataset: int, row: int) -> list[Visit]:
    """The visits of one task in a run, in order."""
    played = Rollout.objects.filter(run=run, held_out=False)
    found = list(played.filter(row=row).values_list("step", "attempt", "group", "outcome", "part"))
    newest: dict[int, int] = {}
    if run.attempt > 1:
        steps = played.filter(step__in={step for step, *_rest in found}).order_by()
        newest = dict(steps.values_list("step").annotate(newest=Max("attempt")))
    visits: dict[int, Visit] = {}
    for step, attempt, group, outcome, part in found:
        if courses.at(step, part) == dataset and attempt == newest.get(step, attempt):
            known = visits.get(step, Visit(step, group, 0, 0))
            solved, counted = known.solved + (outcome == Outcome.SOLVED), known.counted + (outcome in VERDICTS)
            visits[step] = Visit(step, max(group, known.group), solved, counted)
    return [visits[step] for step in sorted(visits)]


def steps_of(run: Run) -> tuple[int, int] | None:
    """The first and the last step that played a task of a dataset."""
    rows = Rollout.objects.filter(run=run, held_out=False, row__isnull=False)
    found = rows.aggregate(first=Min("step"), last=Max("step"))
    return None if found["first"] is None else (found["first"], found["last"])


def by_category(
    run: Run, courses: Courses, categories: dict[int, list[int]], begin: int, width: int
) -> list[tuple[int, int, int, int]]:
    """Category, column, solved and counted rollouts; ``categories`` has that of each row, by dataset."""
    triples = [(number, row, kind) for number, kinds in categories.items() for row, kind in enumerate(kinds)]
    sql = f"""
        WITH {_visits_sql(run, courses)}, kinds AS (
            SELECT * FROM unnest(%(sets)s::int[], %(rows)s::int[], %(kinds)s::int[]) AS k(dataset, row, kind)
        )
        SELECT kind, (step - %(begin)s) / %(width)s AS place, sum(solved)::int, sum(counted)::int
        FROM visits JOIN kinds USING (dataset, row) GROUP BY 1, 2 ORDER BY 1, 2
    """  # noqa: S608 (of parts of ours)
    given = {name: [triple[at] for triple in triples] for at, name in enumerate(("sets", "rows", "kinds"))}
    return [tuple(row) for row in _fetch_rows(sql, _query_values(run, courses, begin=begin, width=width, **given))]  # type: ignore[misc]


def texts_of(run: Run, cells: list[Cell]) -> dict[tuple[int, int], str]:
    """The first words of tasks, each from one of its groups."""
    newest = {(cell.dataset, cell.row): cell for cell in sorted(cells, key=lambda cell: cell.step)}
    places = {(cell.step, cell.group): key for key, cell in newest.items()}
    sql = """
        SELECT DISTINCT ON (r.step, r."group") r.step, r."group", left(r.task, 300)
        FROM unnest(%(steps)s::int[], %(groups)s::int[]) AS p(step, place)
        JOIN rollouts_rollout r ON r.run_id = %(run)s AND r.step = p.step AND r."group" = p.place AND NOT r.held_out
        ORDER BY r.step, r."group"
    """
    given = {"run": run.pk, "steps": [step for step, _group in places], "groups": [group for _step, group in places]}
    return {places[step, group]: text for step, group, text in _fetch_rows(sql, given)}


# --- Map ------------------------------------------------------------------------------------------------------------
# Tasks against their visits, or categories against steps, each cell coloured by the share that solved it.
#
# A task of a large dataset is played every few hundred steps: against steps nearly all of its cells would be empty.

COLUMNS = 60
PER_PAGE = 40
SHADES = 6
"""Colours of a share, ``reward-0`` to ``reward-5`` of the style sheet."""
CATEGORIES_SHOWN = 40


class Box(NamedTuple):
    """One cell as it is drawn: the share from 0 to 1 (``None`` without a verdict), its shade, and where it leads;
    ``since``: the oldest of its steps."""

    share: float | None
    shade: int | None
    solved: int
    counted: int
    step: int | None
    group: int | None
    since: int | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the share lies with 95% confidence, if its rollouts are independent; ``None`` without a verdict."""
        return share_interval(self.solved, self.counted) if self.counted else None


class Line(NamedTuple):
    """A line of the map; no box where it was not played in a column. ``task`` is ``None`` of a category."""

    task: Task | None
    text: str
    category: str
    boxes: list[Box | None]


class TaskMap(NamedTuple):
    """A page of the map. ``columns`` are the first and last of each: visits of tasks, steps of categories; ``counts``
    has tasks by kind, ``by_chance`` how many of two kinds there would be if no task had changed."""

    lines: list[Line]
    columns: list[tuple[int, int]]
    counts: dict[Kind, int]
    total: int
    by_chance: dict[Kind, float] = {}


def shade_of(share: float | None) -> int | None:
    """The shade of a share: 0 only where nothing solved it, the last one only where all did."""
    if share is None:
        return None
    if share in (0.0, 1.0):
        return 0 if share == 0.0 else SHADES - 1
    return min(SHADES - 2, 1 + int(share * (SHADES - 2)))


def columns_of(first: int, last: int) -> tuple[list[tuple[int, int]], int]:
    """The steps, or visits, of each column, ``COLUMNS`` at most, and how many one has."""
    width = -(-(last - first + 1) // COLUMNS)
    return [(step, min(step + width - 1, last)) for step in range(first, last + 1, width)], width


def task_map(run: Run, *, kind: Kind | None = None, sort: Sort = "row", page: int = 1) -> TaskMap:
    """A page of the run's tasks, those of one kind or all of them, in an order; empty where it played none."""
    courses = courses_of(run)
    if steps_of(run) is None:
        return TaskMap([], [], dict.fromkeys(KINDS, 0), 0)
    found = tasks_of(run, courses, kind=kind, sort=sort, offset=(page - 1) * PER_PAGE, limit=PER_PAGE)
    cells = cells_of(run, courses, found.tasks) if found.tasks else []
    columns, _width = columns_of(1, max((cell.visits for cell in cells), default=1))
    texts = texts_of(run, cells)
    known = _categories_by_dataset(run, courses)
    boxes: dict[tuple[int, int], list[Box | None]] = {}
    for cell in cells:
        line = boxes.setdefault((cell.dataset, cell.row), [None] * len(columns))
        line[cell.column] = _box_of(cell.solved, cell.counted, cell)
    lines = [
        Line(
            task,
            texts.get((task.dataset, task.row), ""),
            known[task.dataset].of(task.row) if task.dataset in known else "",
            boxes.get((task.dataset, task.row), [None] * len(columns)),
        )
        for task in found.tasks
    ]
    total = sum(found.counts.values()) if kind is None else found.counts[kind]
    return TaskMap(lines, columns, found.counts, total, found.by_chance)


def category_map(run: Run) -> TaskMap:
    """The same by category, the largest first; no line where no row says what it is."""
    span, courses = steps_of(run), courses_of(run)
    known = _categories_by_dataset(run, courses)
    names = sorted({name for found in known.values() for name in found.names})
    if span is None or not names:
        return TaskMap([], [], dict.fromkeys(KINDS, 0), 0)
    columns, width = columns_of(*span)
    place = {name: at for at, name in enumerate(names)}
    given = {
        number: [place[found.names[at]] if at >= 0 else -1 for at in found.of_row] for number, found in known.items()
    }
    boxes: dict[int, list[Box | None]] = {}
    for at, column, solved, counted in by_category(run, courses, given, span[0], width):
        if at >= 0:
            boxes.setdefault(at, [None] * len(columns))[column] = _box_of(solved, counted, None)
    lines = [Line(None, names[at], names[at], line) for at, line in boxes.items()]
    lines.sort(key=lambda line: -sum(box.counted for box in line.boxes if box))
    return TaskMap(lines[:CATEGORIES_SHOWN], columns, dict.fromkeys(KINDS, 0), len(lines))


def _box_of(solved: int, counted: int, cell: Cell | None) -> Box:
    share = solved / counted if counted else None
    place = (cell.step, cell.group, cell.since) if cell else (None, None, None)
    return Box(share, shade_of(share), solved, counted, *place)


def _categories_by_dataset(run: Run, courses: Courses) -> dict[int, Categories]:
    """The categories of the run's datasets, by the number of the dataset."""
    found = {}
    for number in range(len(courses.paths)):
        dataset = dataset_at(run, courses, number)
        if dataset is not None:
            found[number] = categories_in_file(dataset.rows_path)
    return found
