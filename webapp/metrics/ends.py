"""From where to where a run's figures went: their first tenth, their last, and the best; and what the run took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connection

from webapp.metrics.models import MetricPoint
from webapp.metrics.selectors import standing
from webapp.runs.models import Attempt, Run, RunEvent

WINDOW = 5
"""Steps over which a best value is averaged: of single steps the luckiest would always win."""
_FINITE = "abs(value) < 1e150"
"""NaN is above all here; PostgreSQL's means add squares, and those of larger values overflow."""
_ENDS = (
    "WITH won AS ({won}), placed AS (SELECT name, step, value, count(*) OVER (PARTITION BY name) AS total,"
    " row_number() OVER (PARTITION BY name ORDER BY step) AS place, avg(value) OVER"
    " (PARTITION BY name ORDER BY step ROWS %s PRECEDING) AS around FROM won WHERE {finite}),"
    " sized AS (SELECT *, ceil(total / 10.0)::int AS part FROM placed)"
    " SELECT 'ends', name, ARRAY[total, part, avg(value) FILTER (WHERE place <= part),"
    " avg(value) FILTER (WHERE place > total - 2 * part AND place <= total - part),"
    " avg(value) FILTER (WHERE place > total - part), max(step)]"
    " || max(ARRAY[around, -step]) FILTER (WHERE place >= least(%s, total)), '' FROM sized GROUP BY name, total, part"
)
_SUMS = (
    "SELECT 'sum', name, ARRAY[sum(value), count(*)], '' FROM {points}"
    " WHERE run_id = %s AND name = ANY(%s) AND {finite} GROUP BY name"
)
_TIME = (
    "SELECT 'time', '', ARRAY[extract(epoch FROM sum(coalesce(ended_at, now()) - started_at))::float8],"
    " coalesce((SELECT payload->>'device' FROM {events} WHERE run_id = %s AND kind = 'attempt'"
    " AND payload->>'device' <> '' ORDER BY seq DESC LIMIT 1), '') FROM {attempts} WHERE run_id = %s"
)


class Ends(NamedTuple):
    """A figure over a run. ``before`` and ``after`` are means of the first and of the last ``part`` of the ``total``
    steps that have it, a tenth each, ``late`` of the tenth before the last; ``best`` is the highest mean of ``window``
    steps in a row, which ``best_step`` ends. ``last``: the last step that has it."""

    total: int
    part: int
    before: float
    late: float | None
    after: float
    last: int
    best: float
    best_step: int

    @property
    def window(self) -> int:
        """Steps that ``best`` is the mean of."""
        return min(WINDOW, self.total)


class Spent(NamedTuple):
    """What a run took: of figures the sum over all steps, those that were lost too, and how many steps have it,
    ``device_seconds`` of all its attempts, ``None`` where it never was at work, and the ``device`` as its trainer
    called it."""

    sums: dict[str, tuple[float, int]]
    device_seconds: float | None
    device: str


class Taken(NamedTuple):
    """What the figures of a run tell of it as a whole."""

    ends: dict[str, Ends]
    spent: Spent


def taken(run: Run, followed: Sequence[str], summed: Sequence[str]) -> Taken:
    """The ends of the ``followed`` figures, without steps that a later attempt trained again, and what the run took.

    One query: it is asked with every page of an ended run.
    """
    points, attempts, events = (model._meta.db_table for model in (MetricPoint, Attempt, RunEvent))
    ends = _ENDS.format(won=standing(run.attempt > 1, "AND name = ANY(%s)"), finite=_FINITE)
    sums, time = _SUMS.format(points=points, finite=_FINITE), _TIME.format(events=events, attempts=attempts)
    asked: list[Any] = [run.pk, list(followed), WINDOW - 1, WINDOW, run.pk, list(summed), run.pk, run.pk]
    with connection.cursor() as cursor:
        cursor.execute(f"({ends}) UNION ALL {sums} UNION ALL {time}", asked)
        rows = cursor.fetchall()
    found: dict[str, dict[str, list[float]]] = {"ends": {}, "sum": {}, "time": {}}
    for kind, name, figures, _word in rows:
        found[kind][name] = figures
    device = next((word for kind, _name, _figures, word in rows if kind == "time"), "")
    seconds = found["time"].get("", [None])[0]
    added = {name: (figures[0], int(figures[1])) for name, figures in found["sum"].items()}
    return Taken({name: _ends(figures) for name, figures in found["ends"].items()}, Spent(added, seconds, device))


def _ends(figures: list[float]) -> Ends:
    total, part, before, late, after, last, best, step = figures
    return Ends(int(total), int(part), before, late, after, int(last), best, -int(step))
