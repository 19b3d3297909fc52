"""Curves, thinned to what a screen can show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection

from training.config import METHODS
from webapp.common.text import finite
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.thinning import Column, curve_of
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

MAX_POINTS = 2000
MIN_POINTS = 40
FIRST_POINTS, FIRST_POINTS_EACH = 2_800, 400
ASKED_POINTS = 20_000
DIGITS = 9  # of a figure on its way to a screen: a float32 survives it, and a frame is half as long
SPARKLINE_POINTS = 40
CHUNK = 5_000
# What a run page shows before anybody asks for more; a page that wants other curves asks for them.
# What is drawn around these lines: the band of the reward and the intervals of evaluations (`specs.js`).
_AROUND = ("reward_std", "heldout/success_low", "heldout/success_high")
FIRST_NAMES = frozenset({*_AROUND, *(name for method in METHODS.values() for name in (*method.curves, *method.tiles))})
FIRST_COMPONENTS = re.compile(r"rewards/.+/mean")


# A later attempt that has trained a step takes the place of all that earlier ones had trained beyond its first step:
# those steps were lost, and a curve or tile that still showed them would be of another training.
_STANDS = (
    "AND NOT EXISTS (SELECT 1 FROM runs_attempt AS later WHERE later.run_id = metrics_metricpoint.run_id"
    " AND later.number > attempt AND later.first_step < step AND later.last_step > later.first_step)"
)
# Of two attempts at one step the later one counts; the unique index (run, name, step, attempt) gives the order.
# A run with one attempt has nothing to choose between, which halves the work at a million points.
_ALL = "SELECT name, step, attempt, value FROM metrics_metricpoint WHERE run_id = %s {where}"
_WINNERS = (
    "SELECT DISTINCT ON (name, step) name, step, attempt, value FROM metrics_metricpoint"
    " WHERE run_id = %s {where} {stands} ORDER BY name DESC, step DESC, attempt DESC"
)
# The points of a curve as one value, as numbers on the wire are written: a row each would cost more than the reading.
_COLUMNS = (
    "SELECT name, string_agg(int4send(step) || int4send(attempt) || float8send(value), '') AS points"
    " FROM ({won}) AS won GROUP BY name"
)
_POINT = np.dtype([("step", ">i4"), ("attempt", ">i4"), ("value", ">f8")])

_NEWEST = (
    "WITH RECURSIVE newest AS ((SELECT name, value FROM metrics_metricpoint WHERE run_id = %s {stands}"
    " ORDER BY name DESC, step DESC, attempt DESC LIMIT 1) UNION ALL SELECT point.* FROM newest, LATERAL"
    " (SELECT name, value FROM metrics_metricpoint WHERE run_id = %s AND name < newest.name {stands}"
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
    return _COLUMNS.format(won=(_WINNERS if several else _ALL).format(where=where, stands=_STANDS)), values


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
    return (_WINNERS if several else _ALL).format(where=where, stands=_STANDS)


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
    """Whether a run page shows this curve before anybody asks for it."""
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
        cursor.execute(_NEWEST.format(stands=_STANDS), [run.pk, run.pk])
        return {name: rounded(value) for name, value in cursor.fetchall()}


def values_at(run: Run, names: Sequence[str], step: int) -> dict[str, float | None]:
    """The newest figure of each of these metrics up to a step."""
    rows = MetricPoint.objects.filter(run=run, name__in=names, step__lte=step).order_by("name", "-step", "-attempt")
    return {name: rounded(value) for name, value in rows.distinct("name").values_list("name", "value")}


def newest_values(run: Run, names: Sequence[str], count: int) -> dict[str, list[float | None]]:
    """The newest ``count`` figures of each of these metrics, oldest first, without reading what lies before them."""
    sql = (
        "SELECT asked.name, step, value FROM unnest(%s::text[]) AS asked(name), LATERAL (SELECT step, attempt, value"
        " FROM metrics_metricpoint WHERE run_id = %s AND name = asked.name {stands}"
        " ORDER BY step DESC, attempt DESC LIMIT %s) AS newest ORDER BY asked.name, step, attempt"
    )
    found: dict[str, dict[int, float | None]] = {}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(stands=_STANDS), [list(names), run.pk, 2 * count])  # a step may have two attempts
        for name, step, value in cursor.fetchall():
            found.setdefault(name, {})[step] = finite(value)
    return {name: list(values.values())[-count:] for name, values in found.items()}


def figures_since(run: Run, names: Sequence[str], step: int) -> dict[int, dict[str, float]]:
    """The figures of each step after ``step``, by step; those that are NaN or infinite are left out."""
    sql = _WINNERS.format(where="AND name = ANY(%s) AND step > %s", stands=_STANDS)
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
        " WHERE run_id = ANY(%s) AND name IN ('reward', 'loss') {stands}"
        " ORDER BY run_id, name, step, attempt DESC),"
        " tiles AS (SELECT *, ntile(%s) OVER (PARTITION BY run_id, name ORDER BY step) AS tile FROM won)"
        " SELECT DISTINCT ON (run_id, name, tile) run_id, name, value FROM tiles ORDER BY run_id, name, tile, step DESC"
    )
    lines: dict[str, dict[UUID, list[float | None]]] = {"reward": {}, "loss": {}}
    with connection.cursor() as cursor:
        cursor.execute(sql.format(stands=_STANDS), [ids, count])
        for run_id, name, value in cursor.fetchall():
            lines[name].setdefault(run_id, []).append(finite(value))
    return {run_id: lines["reward"].get(run_id) or lines["loss"].get(run_id, []) for run_id in ids}
