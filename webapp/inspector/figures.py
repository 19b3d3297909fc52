"""How the rollouts of a view are spread: histograms whose bars are links, and what there is to choose from.

All of it is one statement over the rows of the view. Beyond ``SAMPLE`` rows it reads a sample: the rollouts whose id
lies below a bound. Ids are hashes, so it is even over steps, groups and rewards; the page says that it is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet

from webapp.inspector.filters import MEASURES, PART
from webapp.inspector.finding import COUNT_MOST, View
from webapp.rollouts.models import Rollout

SAMPLE = 10_000
SAMPLE_LIMIT = 4 * SAMPLE
BARS = 20
PARTS_MOST = 12
SHOWN = ("step", "reward", "turns", "length")
"""Measures that have a histogram in every view."""


@dataclass(frozen=True)
class Bar:
    """Values from ``low`` to below ``high``, and how many rollouts have one.

    The last bar's bound is in it; where both are the same, it is that one value.
    """

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Histogram:
    """One figure of the view's rollouts. ``name`` is that of its filter."""

    name: str
    low: float
    high: float
    count: int
    bars: Sequence[Bar]

    @property
    def tallest(self) -> int:
        """The number of the fullest bar."""
        return max((bar.count for bar in self.bars), default=0)


@dataclass(frozen=True)
class Figures:
    """Of ``rows`` rollouts, which are a share of the view's if ``sampled``."""

    rows: int
    sampled: bool
    histograms: Sequence[Histogram]
    values: dict[str, list[tuple[str, int]]]
    """For ``outcome``, ``tool`` and ``boundary`` each value with its number of rollouts, the most frequent first."""


STATEMENT = """
WITH view AS MATERIALIZED ({view} LIMIT {limit}),
figure AS (
    SELECT each.name, each.value FROM view CROSS JOIN LATERAL (VALUES {measures}) AS each (name, value)
    WHERE each.value IS NOT NULL AND each.value NOT IN ('NaN', 'Infinity', '-Infinity')
),
span AS (SELECT name, min(value) AS low, max(value) AS high FROM figure GROUP BY name)
SELECT 'bar', name, low, high,
    CASE WHEN high = low THEN 0 ELSE least({bars} - 1, floor({bars} * (value - low) / (high - low)))::int END AS place,
    count(*)
FROM figure JOIN span USING (name) GROUP BY 2, 3, 4, 5
UNION ALL SELECT 'outcome', outcome, NULL, NULL, NULL, count(*) FROM view GROUP BY outcome
UNION ALL SELECT 'tool', each, NULL, NULL, NULL, count(*) FROM view CROSS JOIN unnest(tools) AS each GROUP BY each
UNION ALL SELECT 'boundary', error->>'boundary', NULL, NULL, NULL, count(*) FROM view WHERE error IS NOT NULL
    GROUP BY error->>'boundary'
"""


def figures_of(view: View, parts: Sequence[str]) -> Figures:
    """The spread of a view's rollouts. ``parts`` are the reward components that are looked at."""
    rows, sampled = _sample(view)
    names = [*SHOWN, *(f"{PART}{name}" for name in parts[:PARTS_MOST])]
    params: list[Any] = []
    measures = []
    for name in names:
        if name in MEASURES:
            measures.append(f"('{name}', {MEASURES[name].column}::float8)")
        else:
            measures.append("(%s, (parts->>%s)::float8)")
            params += [name, name.removeprefix(PART)]
    columns = ("outcome", "step", "reward", "turns", "tokens", "parts", "tools", "error")
    try:
        sql, given = rows.order_by().values(*columns).query.sql_with_params()
    except EmptyResultSet:  # nothing can be so: no id was found, or no run is looked in
        return Figures(0, False, [], {"outcome": [], "tool": [], "boundary": []})
    statement = STATEMENT.format(view=sql, limit=SAMPLE_LIMIT, measures=", ".join(measures), bars=BARS)
    with connection.cursor() as cursor:
        cursor.execute(statement, [*given, *params])
        return _read(cursor.fetchall(), names, sampled)


def _sample(view: View) -> tuple[QuerySet[Rollout], bool]:
    """The rows to look at: all, or those whose ids begin below a bound."""
    if view.searched is not None or not view.count.more:
        return view.rows, False
    share = min(1.0, SAMPLE / max(_guess(view.rows), COUNT_MOST))
    if share > 0.5:
        return view.rows, False
    return view.rows.filter(pk__lt=UUID(int=int(share * 2**128))), True


def _guess(rows: QuerySet[Rollout]) -> int:
    """How many rows the database expects."""
    plan = json.loads(rows.order_by().explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"])


def _read(found: Sequence[tuple[Any, ...]], names: Sequence[str], sampled: bool) -> Figures:
    bars: dict[str, dict[int, int]] = {}
    spans: dict[str, tuple[float, float]] = {}
    values: dict[str, list[tuple[str, int]]] = {"outcome": [], "tool": [], "boundary": []}
    for kind, name, low, high, place, count in found:
        if kind == "bar":
            bars.setdefault(name, {})[place], spans[name] = count, (low, high)
        else:
            values[kind].append((name or "", count))
    rows = sum(count for _name, count in values["outcome"])
    ordered = {kind: sorted(listed, key=lambda item: (-item[1], item[0])) for kind, listed in values.items()}
    drawn = [_histogram(name, *spans[name], bars[name]) for name in names if name in bars]
    return Figures(rows, sampled, drawn, ordered)


def _histogram(name: str, low: float, high: float, counts: dict[int, int]) -> Histogram:
    whole = name in MEASURES and MEASURES[name].whole
    if whole and high - low < BARS:  # a bar for each number
        by_number = {int(low) + math.ceil(place * (high - low) / BARS - 1e-9): count for place, count in counts.items()}
        drawn = [Bar(n, n, by_number.get(n, 0)) for n in range(int(low), int(high) + 1)]
        return Histogram(name, low, high, sum(counts.values()), drawn)
    if high == low:
        return Histogram(name, low, high, sum(counts.values()), [Bar(low, high, counts.get(0, 0))])
    edges: list[float] = [low + (high - low) * place / BARS for place in range(BARS)] + [high]
    if whole:  # the same numbers lie between edges that are whole
        edges = [math.ceil(edge - 1e-9) for edge in edges]
    drawn = [Bar(edges[place], edges[place + 1], counts.get(place, 0)) for place in range(BARS)]
    return Histogram(name, low, high, sum(counts.values()), drawn)
