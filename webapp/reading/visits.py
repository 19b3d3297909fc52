"""The tasks of a run over its steps, computed by the database from the outcomes of rollouts.

A *visit* is what a step says of a task: how many of its rollouts solved it, of those that have a verdict. A task is
solved at a visit where more than half of these did. Only the newest attempt that played a step counts, as everywhere.
Visits without any verdict are left out.

The kinds of a task, in this order:

- ``once``: it has one visit, so no change can be seen;
- ``forgotten``: at its last visit a smaller share solved it than at all visits before, by more than chance;
- ``learned``: at its last visit a larger share solved it than at its first one, by more than chance;
- ``never``: solved at no visit;
- ``flickering``: from one visit to the next it changed between solved and not solved ``FLICKERS`` times or more;
- ``kept``: solved at its first visit and at its last one;
- ``unclear``: it changed, and chance explains the change.

More than chance: Fisher's exact test, two-sided, at ``LEVEL``. Each of these two words is shown with how many tasks
would get it if none had changed: the sum of the tests' own sizes, given how often each task was solved in all.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from django.db import connection
from django.db.models import Max, Min

from training.evaluation.intervals import LEVEL, changes, fisher
from webapp.common.words import Outcome
from webapp.reading.courses import Courses
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

Kind = Literal["forgotten", "learned", "flickering", "never", "kept", "unclear", "once"]
Sort = Literal["row", "gain", "drop", "changes", "share"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SORTS: tuple[Sort, ...] = get_args(Sort)
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
), told AS (
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
    SELECT told.*, CASE WHEN visits = 1 THEN 'once' WHEN mark IS NOT NULL THEN mark
        WHEN first_solved IS NULL THEN 'never' WHEN changes >= %(flickers)s THEN 'flickering'
        WHEN first_ok AND last_ok THEN 'kept' ELSE 'unclear' END AS kind
    FROM told LEFT JOIN marks USING (first_hits, first_tries, last_hits, last_tries, solved, counted)
)"""
_MARKED = ("first_hits", "first_tries", "last_hits", "last_tries", "solved", "counted")
_ORDERS: dict[str, str] = {
    "row": "",
    "gain": "last_share - first_share DESC, ",
    "drop": "best_share - last_share DESC, ",
    "changes": "changes DESC, ",
    "share": "solved::float / counted, ",
}


def usual_sort(kind: Kind | None) -> Sort:
    """The order in which tasks of a kind are listed first."""
    usual: dict[Kind | None, Sort] = {"learned": "gain", "forgotten": "drop", "flickering": "changes"}
    return usual.get(kind, "row")


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
    """The counts of a task in the steps of one column, and the newest of these steps with its group, for a link."""

    dataset: int
    row: int
    column: int
    solved: int
    counted: int
    step: int
    group: int


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
    sql = f"WITH {visits}, {_TASKS} SELECT {names}, count(*) FROM told WHERE visits > 1 GROUP BY {names}"  # noqa: S608
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


def cells_of(run: Run, courses: Courses, tasks: list[Task], begin: int, width: int) -> list[Cell]:
    """The cells of a page of tasks, of columns of ``width`` steps from ``begin`` on; none where nothing was played."""
    rows = sorted({task.row for task in tasks})
    sql = f"""
        WITH {_visits_sql(run, courses, "AND r.row = ANY(%(rows)s)")}
        SELECT dataset, row, (step - %(begin)s) / %(width)s AS place, sum(solved)::int, sum(counted)::int, max(step),
            (array_agg(place ORDER BY step DESC))[1]
        FROM visits GROUP BY 1, 2, 3
    """  # noqa: S608 (of parts of ours)
    wanted = {(task.dataset, task.row) for task in tasks}
    found = _fetch_rows(sql, _query_values(run, courses, begin=begin, width=width, rows=rows))
    return [cell for row in found if ((cell := Cell(*row)).dataset, cell.row) in wanted]


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
