"""How a run's figures changed: their first tenth, their last, and the best; and what the run used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from django.db import connection
from numpy.lib.stride_tricks import sliding_window_view

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import standing
from webapp.runs.models import Attempt, Run, RunEvent

WINDOW = 5
"""Steps over which a best value is averaged: a best single step would be mostly luck."""
_FINITE = "abs(value) < 1e150"
"""NaN is above all in PostgreSQL, and sums of larger values might overflow."""
# Steps and values in one piece, as numbers on the wire are written: PostgreSQL's windows take five times as long.
_FOLLOWED = (
    "SELECT 'ends', name, NULL::float8[], '', string_agg(int4send(step) || float8send(value), '')"
    " FROM ({won}) AS won WHERE {finite} GROUP BY name"
)
_POINT = np.dtype([("step", ">i4"), ("value", ">f8")])
_SUMS = (
    "SELECT 'sum', name, ARRAY[sum(value), count(*)], '', NULL FROM {points}"
    " WHERE run_id = %s AND name = ANY(%s) AND {finite} GROUP BY name"
)
_TIME = (
    "SELECT 'time', '', ARRAY[extract(epoch FROM sum(coalesce(ended_at, now()) - started_at))::float8],"
    " coalesce((SELECT payload->>'device' FROM {events} WHERE run_id = %s AND kind = 'attempt'"
    " AND payload->>'device' <> '' ORDER BY seq DESC LIMIT 1), ''), NULL FROM {attempts} WHERE run_id = %s"
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
    """A summary of a whole run from its figures."""

    ends: dict[str, Ends]
    spent: Spent


def taken(run: Run, followed: Sequence[str], summed: Sequence[str]) -> Taken:
    """The ends of the ``followed`` figures, without steps that a later attempt trained again, and what the run took.

    One query: it is asked with every page of an ended run.
    """
    points, attempts, events = (model._meta.db_table for model in (MetricPoint, Attempt, RunEvent))
    ends = _FOLLOWED.format(won=standing(run.attempt > 1, "AND name = ANY(%s)"), finite=_FINITE)
    sums, time = _SUMS.format(points=points, finite=_FINITE), _TIME.format(events=events, attempts=attempts)
    asked: list[Any] = [run.pk, list(followed), run.pk, list(summed), run.pk, run.pk]
    with connection.cursor() as cursor:
        cursor.execute(f"{ends} UNION ALL {sums} UNION ALL {time}", asked)
        rows = cursor.fetchall()
    ways = {name: _ends_of_curve(raw) for kind, name, _figures, _word, raw in rows if kind == "ends"}
    added = {name: (sum_, int(count)) for kind, name, (sum_, count), _word, _raw in _rows_of_kind(rows, "sum")}
    (_kind, _name, (seconds,), device, _raw), *_none = _rows_of_kind(rows, "time")
    return Taken(ways, Spent(added, seconds, device))


def _rows_of_kind(rows: list[tuple[Any, ...]], kind: str) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] == kind]


def _ends_of_curve(raw: bytes) -> Ends:
    points = np.frombuffer(raw, _POINT)
    points = points[np.argsort(points["step"])]
    steps, values = points["step"], points["value"].astype("f8")
    total, part, window = len(values), -(-len(values) // 10), min(WINDOW, len(values))
    late = values[max(total - 2 * part, 0) : total - part]
    around = sliding_window_view(values, window).mean(axis=1)
    best = int(np.argmax(around))  # of equal ones the first
    return Ends(
        total,
        part,
        before=float(values[:part].mean()),
        late=float(late.mean()) if len(late) else None,
        after=float(values[-part:].mean()),
        last=int(steps[-1]),
        best=float(around[best]),
        best_step=int(steps[best + window - 1]),
    )
