"""Curves, thinned to what a screen can show, and how a run's figures changed from its first steps to its last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from training.config import METHODS
from webapp.common.text import finite
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.states import TERMINAL

# Long curves made short without losing what is seen: the first and last point, and the ends of each stretch. Pure.
#
# A stretch keeps its lowest and highest figure, so that no spike is thinned away, and a point that is not finite, so
# that gaps stay gaps. The mean of all its figures is returned with them: a line smoothed over the ends alone would run
# midway between the spikes, not where the figures are.

MEAN_DIGITS = 6  # of a mean on its way to a screen


class Column(NamedTuple):
    """The points of one curve in the order of their steps."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    attempts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.steps)


class Means(NamedTuple):
    """Of each stretch that has finite figures: its middle step, their mean, and how many they are."""

    steps: list[int]
    values: list[float]
    counts: list[int]


def curve_of(column: Column, limit: int) -> dict[str, Any]:
    """``{steps, values, attempts}`` with about ``limit`` points, and ``means`` where it had more of them."""
    kept, means = (column, None) if len(column) <= limit else _thin_column(column, max(limit // 2 - 1, 1))
    found = {
        "steps": kept.steps.tolist(),
        "values": [finite(value) for value in kept.values.tolist()],
        "attempts": kept.attempts.tolist(),
    }
    return found if means is None else found | {"means": means._asdict()}


def _thin_column(column: Column, stretches: int) -> tuple[Column, Means]:
    steps, values = column.steps, column.values
    place = (steps - steps[0]) * stretches // (steps[-1] - steps[0] + 1)
    starts = np.flatnonzero(np.diff(place, prepend=-1))  # of each stretch that has points
    sizes = np.diff(np.append(starts, len(values)))
    known = np.isfinite(values)
    low = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    ends = [known & (values == np.repeat(low, sizes)), known & (values == np.repeat(high, sizes)), ~known]
    kept = np.unique(np.concatenate([[0, len(values) - 1], *(_last_places(mask, starts) for mask in ends)]))
    counts = np.add.reduceat(known.astype(np.int64), starts)
    return Column(steps[kept], values[kept], column.attempts[kept]), _stretch_means(column, known, starts, counts)


def _last_places(mask: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each stretch the last place where the mask holds; of some there is none."""
    found = np.maximum.reduceat(np.where(mask, np.arange(len(mask)), -1), starts)
    return found[found >= 0]


def _stretch_means(
    column: Column, known: NDArray[np.bool_], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> Means:
    some = counts > 0
    last = np.append(starts[1:], len(column)) - 1
    middle = (column.steps[starts] + column.steps[last]) // 2
    sums = np.add.reduceat(np.where(known, column.values, 0.0), starts)
    means = [float(f"{mean:.{MEAN_DIGITS}g}") for mean in sums[some] / counts[some]]
    return Means(middle[some].tolist(), means, counts[some].tolist())


# Curves, thinned to what a screen can show.

MAX_POINTS = 2000
MIN_POINTS = 40
FIRST_POINTS, FIRST_POINTS_EACH = 2_800, 400
ASKED_POINTS = 20_000
DIGITS = 9  # of a figure on its way to a screen: a float32 survives it, and a frame is half as long
SPARKLINE_POINTS = 40
CHUNK = 5_000
# The curves that a run page shows at first; a page that wants other curves asks for them.
# What is drawn around these lines: the band of the reward and the intervals of evaluations (`specs.js`).
_AROUND = ("reward_std", "heldout/success_low", "heldout/success_high")
FIRST_NAMES = frozenset({*_AROUND, *(name for method in METHODS.values() for name in (*method.curves, *method.tiles))})
FIRST_COMPONENTS = re.compile(r"rewards/.+/mean")


# A later attempt that has trained a step takes the place of all that earlier ones had trained beyond its first step:
# those steps were lost, and a curve or tile that still showed them would be of another training.
_NOT_LOST = (
    "AND NOT EXISTS (SELECT 1 FROM runs_attempt AS later WHERE later.run_id = metrics_metricpoint.run_id"
    " AND later.number > attempt AND later.first_step < step AND later.last_step > later.first_step)"
)
# Of two attempts at one step the later one counts; the unique index (run, name, step, attempt) gives the order.
# A run with one attempt has nothing to choose between, which halves the work at a million points.
_ALL = "SELECT name, step, attempt, value FROM metrics_metricpoint WHERE run_id = %s {where}"
_WINNERS = (
    "SELECT DISTINCT ON (name, step) name, step, attempt, value FROM metrics_metricpoint"
    " WHERE run_id = %s {where} {not_lost} ORDER BY name DESC, step DESC, attempt DESC"
)
# The points of a curve as one value, as numbers on the wire are written: a row each would cost more than the reading.
_COLUMNS = (
    "SELECT name, string_agg(int4send(step) || int4send(attempt) || float8send(value), '') AS points"
    " FROM ({won}) AS won GROUP BY name"
)
_POINT = np.dtype([("step", ">i4"), ("attempt", ">i4"), ("value", ">f8")])

_NEWEST = (
    "WITH RECURSIVE newest AS ((SELECT name, value FROM metrics_metricpoint WHERE run_id = %s {not_lost}"
    " ORDER BY name DESC, step DESC, attempt DESC LIMIT 1) UNION ALL SELECT point.* FROM newest, LATERAL"
    " (SELECT name, value FROM metrics_metricpoint WHERE run_id = %s AND name < newest.name {not_lost}"
    " ORDER BY name DESC, step DESC, attempt DESC LIMIT 1) AS point) SELECT name, value FROM newest ORDER BY name"
)


Steps = tuple[int | None, int | None]
"""First and last step that are asked for; ``None``: from the beginning, to the end."""


def _columns_query(run: Run, names: Sequence[str] | None, span: Steps, several: bool) -> tuple[str, list[Any]]:
    where = ""
    values: list[Any] = [run.pk]
    bounds = (("AND name = ANY(%s)", names and list(names)), ("AND step >= %s", span[0]), ("AND step <= %s", span[1]))
    for condition, value in bounds:
        if value is not None:
            where += f" {condition}"
            values.append(value)
    return _COLUMNS.format(won=(_WINNERS if several else _ALL).format(where=where, not_lost=_NOT_LOST)), values


def _column_of_bytes(raw: bytes) -> Column:
    points = np.frombuffer(raw, _POINT)
    points = points[np.argsort(points["step"], kind="stable")]
    return Column(*(points[field].astype(kind) for field, kind in (("step", "i8"), ("value", "f8"), ("attempt", "i8"))))


def _with_several_attempts(runs: Sequence[Run]) -> set[UUID]:
    """Which runs have more than one attempt. For runs that have not ended the database is asked: they may have been
    read before their second one began."""
    going_on = [run.pk for run in runs if run.state not in TERMINAL]
    found = {run.pk for run in runs if run.state in TERMINAL and run.attempt > 1}
    rows = Run.objects.filter(pk__in=going_on, attempt__gt=1)
    return found | set(rows.values_list("pk", flat=True)) if going_on else found


def standing(several: bool, where: str = "") -> str:
    """SQL of the points of a run that count, as name, step, attempt and value; its first parameter is the run's id.

    ``several``: whether the run has more than one attempt.
    """
    return (_WINNERS if several else _ALL).format(where=where, not_lost=_NOT_LOST)


def all_points(run: Run) -> Iterator[tuple[int, int, str, float]]:
    """Step, attempt, name and value of every figure that counts, by step and name; NaN and infinities as they are.

    They come from the database piece by piece, however many they are.
    """
    several = Run.objects.filter(pk=run.pk, attempt__gt=1).exists()
    won = standing(several)
    with connection.chunked_cursor() as cursor:  # it holds without a transaction, in which progress would not be seen
        cursor.execute(f"SELECT step, attempt, name, value FROM ({won}) AS won ORDER BY step, name", [run.pk])  # noqa: S608
        while rows := cursor.fetchmany(CHUNK):
            yield from rows


Curves = dict[str, dict[str, Any]]
"""``{name: {steps, values, attempts}}``, with ``means`` where points were left out; NaN and infinities are ``None``."""


def curves(
    run: Run, names: Sequence[str] | None = None, max_points: int = MAX_POINTS, span: Steps = (None, None)
) -> Curves:
    """The curves of a run between two steps, each thinned to about ``max_points``."""
    if names is not None and not names:
        return {}
    sql, values = _columns_query(run, names, span, bool(_with_several_attempts([run])))
    with connection.cursor() as cursor:
        cursor.execute(sql + " ORDER BY name", values)
        return {name: curve_of(_column_of_bytes(raw), max_points) for name, raw in cursor.fetchall()}


def curves_of(runs: Sequence[Run], *asked: tuple[Sequence[str], int]) -> list[Curves]:
    """The curves of several runs in one query; ``asked`` are names, each with the ``max_points`` of those."""
    several = _with_several_attempts(runs)
    parts: list[str] = []
    values: list[Any] = []
    for place, run in enumerate(runs):
        for limit, (names, _points) in enumerate(asked):
            sql, own = _columns_query(run, names, (None, None), run.pk in several)
            parts.append(f"SELECT {place} AS place, {limit} AS asked, found.* FROM ({sql}) AS found")  # noqa: S608 (ours)
            values += own
    found: list[Curves] = [{} for _run in runs]
    if parts:
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(parts) + " ORDER BY place, name", values)
            for place, limit, name, raw in cursor.fetchall():
                found[place][name] = curve_of(_column_of_bytes(raw), asked[limit][1])
    return found


def is_first(name: str) -> bool:
    """Whether a run page shows this curve at first."""
    return name in FIRST_NAMES or FIRST_COMPONENTS.fullmatch(name) is not None


def first_curves(run: Run, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The curves among ``names`` that a page shows first, thinned so that they are ``FIRST_POINTS`` together."""
    shown = [name for name in names if is_first(name)][: FIRST_POINTS // MIN_POINTS]
    if not shown:
        return {}
    return _on_screen(run, shown, min(FIRST_POINTS_EACH, FIRST_POINTS // len(shown)))


def asked_curves(run: Run, names: Sequence[str], span: Steps = (None, None)) -> dict[str, dict[str, Any]]:
    """The curves that a page asked for by name, between two steps where it zooms in; one without a point is empty,
    so that the page does not wait for it."""
    found = _on_screen(run, names, min(MAX_POINTS, ASKED_POINTS // max(len(names), 1)), span)
    return {name: found.get(name, {"steps": [], "values": [], "attempts": []}) for name in names}


def _on_screen(
    run: Run, names: Sequence[str], max_points: int, span: Steps = (None, None)
) -> dict[str, dict[str, Any]]:
    """``curves`` as a frame carries them: figures rounded, ``attempts`` one number where all points have the same."""
    found = curves(run, names, max_points, span)
    for curve in found.values():
        curve["values"] = [rounded(value) for value in curve["values"]]
        if len(set(curve["attempts"])) == 1:
            curve["attempts"] = curve["attempts"][0]
    return found


def rounded(value: float | None) -> float | None:
    """A figure as frames carry it; ``None`` where it was NaN or infinite."""
    found = finite(value)
    return None if found is None else float(f"{found:.{DIGITS}g}")


def last_values(run: Run) -> dict[str, float | None]:
    """The newest figure of each of the run's metrics, found by hopping through the index."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST.format(not_lost=_NOT_LOST), [run.pk, run.pk])
        return {name: rounded(value) for name, value in cursor.fetchall()}


def values_at(run: Run, names: Sequence[str], step: int) -> dict[str, float | None]:
    """The newest figure of each of these metrics up to a step."""
    rows = MetricPoint.objects.filter(run=run, name__in=names, step__lte=step).order_by("name", "-step", "-attempt")
    return {name: rounded(value) for name, value in rows.distinct("name").values_list("name", "value")}


def newest_values(run: Run, names: Sequence[str], count: int) -> dict[str, list[float | None]]:
    """The newest ``count`` figures of each of these metrics, oldest first, without reading what lies before them."""
    sql = (
        "SELECT asked.name, step, value FROM unnest(%s::text[]) AS asked(name), LATERAL (SELECT step, attempt, value"
        " FROM metrics_metricpoint WHERE run_id = %s AND name = asked.name {not_lost}"
        " ORDER BY step DESC, attempt DESC LIMIT %s) AS newest ORDER BY asked.name, step, attempt"
    )
    found: dict[str, dict[int, float | None]] = {}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(not_lost=_NOT_LOST), [list(names), run.pk, 2 * count])  # a step may have two attempts
        for name, step, value in cursor.fetchall():
            found.setdefault(name, {})[step] = finite(value)
    return {name: list(values.values())[-count:] for name, values in found.items()}


def figures_since(run: Run, names: Sequence[str], step: int) -> dict[int, dict[str, float]]:
    """The figures of each step after ``step``, by step; those that are NaN or infinite are left out."""
    sql = _WINNERS.format(where="AND name = ANY(%s) AND step > %s", not_lost=_NOT_LOST)
    found: dict[int, dict[str, float]] = {}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT step, name, value FROM ({sql}) AS won ORDER BY step, name", [run.pk, list(names), step])  # noqa: S608
        for at, name, value in cursor.fetchall():
            if finite(value) is not None:
                found.setdefault(at, {})[name] = value
    return found


def metric_names(run: Run) -> list[str]:
    """Names of the run's curves, found by hopping through the index rather than reading every point."""
    sql = (
        "WITH RECURSIVE names AS ((SELECT name FROM metrics_metricpoint WHERE run_id = %s ORDER BY name LIMIT 1)"
        " UNION ALL SELECT (SELECT name FROM metrics_metricpoint WHERE run_id = %s AND name > names.name"
        " ORDER BY name LIMIT 1) FROM names WHERE names.name IS NOT NULL) SELECT name FROM names WHERE name IS NOT NULL"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [run.pk, run.pk])
        return [row[0] for row in cursor.fetchall()]


def sparklines(run_ids: Iterable[UUID], count: int = SPARKLINE_POINTS) -> dict[UUID, list[float | None]]:
    """For each run at most ``count`` values of ``reward``, or of ``loss`` where there is no reward, in one query."""
    ids = list(run_ids)
    if not ids:
        return {}
    sql = (
        "WITH won AS (SELECT DISTINCT ON (run_id, name, step) run_id, name, step, value FROM metrics_metricpoint"
        " WHERE run_id = ANY(%s) AND name IN ('reward', 'loss') {not_lost}"
        " ORDER BY run_id, name, step, attempt DESC),"
        " tiles AS (SELECT *, ntile(%s) OVER (PARTITION BY run_id, name ORDER BY step) AS tile FROM won)"
        " SELECT DISTINCT ON (run_id, name, tile) run_id, name, value FROM tiles ORDER BY run_id, name, tile, step DESC"
    )
    lines: dict[str, dict[UUID, list[float | None]]] = {"reward": {}, "loss": {}}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(not_lost=_NOT_LOST), [ids, count])
        for run_id, name, value in cursor.fetchall():
            lines[name].setdefault(run_id, []).append(finite(value))
    return {run_id: lines["reward"].get(run_id) or lines["loss"].get(run_id, []) for run_id in ids}


# How a run's figures changed: their first tenth, their last, and the best; and what the run used.

WINDOW = 5
"""Steps over which a best value is averaged: a best single step would be mostly luck."""
_FINITE = "abs(value) < 1e150"
"""NaN is above all in PostgreSQL, and sums of larger values might overflow."""
# Steps and values in one piece, as numbers on the wire are written: PostgreSQL's windows take five times as long.
_FOLLOWED = (
    "SELECT 'ends', name, NULL::float8[], '', string_agg(int4send(step) || float8send(value), '')"
    " FROM ({won}) AS won WHERE {finite} GROUP BY name"
)
_STEP_AND_VALUE = np.dtype([("step", ">i4"), ("value", ">f8")])
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
    """The cost of a run: of figures the sum over all steps, those that were lost too, and how many steps have it,
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
    points = np.frombuffer(raw, _STEP_AND_VALUE)
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
