"""From where to where a run's figures went: the first tenth of their steps, the last, and the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db import connection

from webapp.metrics.models import MetricPoint
from webapp.metrics.selectors import standing
from webapp.runs.models import Attempt, Run, RunEvent

WINDOW = 5
"""Steps over which a best value is averaged: of single steps the luckiest would always win."""
_ENDS = (
    "WITH won AS ({won}), placed AS (SELECT name, step, value, count(*) OVER (PARTITION BY name) AS total,"
    " row_number() OVER (PARTITION BY name ORDER BY step) AS place, avg(value) OVER"
    " (PARTITION BY name ORDER BY step ROWS %s PRECEDING) AS around FROM won"
    " WHERE value > '-Infinity' AND value < 'Infinity'),"  # NaN is above infinity here
    " sized AS (SELECT *, ceil(total / 10.0)::int AS part FROM placed)"
    " SELECT name, total, part, avg(value) FILTER (WHERE place <= part),"
    " avg(value) FILTER (WHERE place > total - 2 * part AND place <= total - part),"
    " avg(value) FILTER (WHERE place > total - part),"
    " max(ARRAY[around, -step]) FILTER (WHERE place >= least(%s, total)), max(step)"
    " FROM sized GROUP BY name, total, part"
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
    best: float
    best_step: int
    last: int

    @property
    def window(self) -> int:
        """Steps that ``best`` is the mean of."""
        return min(WINDOW, self.total)


def ends_of(run: Run, names: Sequence[str]) -> dict[str, Ends]:
    """Those of the figures that the run has; steps that a later attempt trained again are left out, and NaN."""
    sql = _ENDS.format(won=standing(run.attempt > 1, "AND name = ANY(%s)"))
    with connection.cursor() as cursor:
        cursor.execute(sql, [run.pk, list(names), WINDOW - 1, WINDOW])
        return {
            name: Ends(total, part, before, late, after, best[0], -int(best[1]), last)
            for name, total, part, before, late, after, best, last in cursor.fetchall()
        }


class Spent(NamedTuple):
    """What a run took: of figures the sum over all steps, those that were lost too, and how many steps have it,
    ``device_seconds`` of all its attempts, ``None`` where it never was at work, and the ``device`` as its trainer
    called it."""

    sums: dict[str, tuple[float, int]]
    device_seconds: float | None
    device: str


def spent_by(run: Run, names: Sequence[str]) -> Spent:
    """In one query: this is asked for with every page of an ended run."""
    points, attempts, events = (model._meta.db_table for model in (MetricPoint, Attempt, RunEvent))
    sql = (
        f"SELECT name, sum(value), count(*)::int, '' FROM {points} WHERE run_id = %s AND name = ANY(%s)"  # noqa: S608 (our own tables)
        " AND value > '-Infinity' AND value < 'Infinity' GROUP BY name"
        " UNION ALL SELECT '', extract(epoch FROM sum(coalesce(ended_at, now()) - started_at)), 0,"
        f" coalesce((SELECT payload->>'device' FROM {events} WHERE run_id = %s AND kind = 'attempt'"
        " AND payload->>'device' <> '' ORDER BY seq DESC LIMIT 1), '')"
        f" FROM {attempts} WHERE run_id = %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [run.pk, list(names), run.pk, run.pk])
        rows = {name: (value, count, word) for name, value, count, word in cursor.fetchall()}
    seconds, _none, device = rows.pop("", (None, 0, ""))
    sums = {name: (float(value), count) for name, (value, count, _word) in rows.items()}
    return Spent(sums, None if seconds is None else float(seconds), device)
