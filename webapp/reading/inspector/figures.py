"""The distributions of a view's rollouts: histograms whose bars are links, and the values to choose from.

All of it is one statement over the rows of the view. Beyond ``SAMPLE`` rows it reads a sample: the rollouts whose id
lies below a bound. Ids are hashes, so it is even over steps, groups and rewards; the page says that it is one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet
from numpy.typing import NDArray

from webapp.reading.inspector.filters import MEASURES, PART
from webapp.reading.inspector.finding import COUNT_MOST, View
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of_phrase, texts_of

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


# The figures come in one piece for each measure, as numbers on the wire are written, and are counted here:
# PostgreSQL takes three times as long for the bars.
STATEMENT = """
WITH view AS MATERIALIZED ({view} LIMIT {limit})
{measures}
UNION ALL SELECT 'outcome', outcome, count(*), NULL FROM view GROUP BY outcome
UNION ALL SELECT 'tool', each, count(*), NULL FROM view CROSS JOIN unnest(tools) AS each GROUP BY each
UNION ALL SELECT 'boundary', error->>'boundary', count(*), NULL FROM view WHERE error IS NOT NULL
    GROUP BY error->>'boundary'
"""
MEASURE = "SELECT 'figures', {name}, 0, string_agg(float8send({value}), '') FROM view"


def figures_of(view: View, parts: Sequence[str]) -> Figures:
    """The distributions of a view's rollouts. ``parts`` are the reward components to include."""
    rows, sampled = _sample_rows(view)
    names = [*SHOWN, *(f"{PART}{name}" for name in parts[:PARTS_MOST])]
    params: list[Any] = []
    measures = []
    for name in names:
        if name in MEASURES:
            measures.append(MEASURE.format(name=f"'{name}'", value=f"{MEASURES[name].column}::float8"))
        else:
            measures.append(MEASURE.format(name="%s", value="(parts->>%s)::float8"))
            params += [name, name.removeprefix(PART)]
    columns = ("outcome", "step", "reward", "turns", "tokens", "parts", "tools", "error")
    try:
        sql, given = rows.order_by().values(*columns).query.sql_with_params()
    except EmptyResultSet:  # the query matches nothing: no id was found, or there is no run
        return Figures(0, False, [], {"outcome": [], "tool": [], "boundary": []})
    statement = STATEMENT.format(view=sql, limit=SAMPLE_LIMIT, measures="\nUNION ALL ".join(measures))
    with connection.cursor() as cursor:
        cursor.execute(statement, [*given, *params])
        return _figures_of_rows(cursor.fetchall(), names, sampled)


def _sample_rows(view: View) -> tuple[QuerySet[Rollout], bool]:
    """The rows to read: all, or those whose ids are below a bound; and whether it is a sample."""
    if view.searched is not None or not view.count.more:
        return view.rows, False
    share = min(1.0, SAMPLE / max(_expected_rows(view.rows), COUNT_MOST))
    if share > 0.5:
        return view.rows, False
    return view.rows.filter(pk__lt=UUID(int=int(share * 2**128))), True


def _expected_rows(rows: QuerySet[Rollout]) -> int:
    """How many rows PostgreSQL's planner expects."""
    plan = json.loads(rows.order_by().explain(format="json"))
    return int(plan[0]["Plan"]["Plan Rows"])


def _figures_of_rows(found: Sequence[tuple[Any, ...]], names: Sequence[str], sampled: bool) -> Figures:
    drawn: dict[str, Histogram] = {}
    values: dict[str, list[tuple[str, int]]] = {"outcome": [], "tool": [], "boundary": []}
    for kind, name, count, raw in found:
        if kind != "figures":
            values[kind].append((name or "", count))
        elif len(known := _finite_values(raw)):
            drawn[name] = _histogram(name, float(known.min()), float(known.max()), _bar_counts(known))
    rows = sum(count for _name, count in values["outcome"])
    ordered = {kind: sorted(listed, key=lambda item: (-item[1], item[0])) for kind, listed in values.items()}
    return Figures(rows, sampled, [drawn[name] for name in names if name in drawn], ordered)


def _finite_values(raw: bytes | None) -> NDArray[np.float64]:
    """The finite figures of one measure; ``raw`` is ``None`` where no rollout has one."""
    figures = np.frombuffer(raw or b"", ">f8").astype("f8")
    return figures[np.isfinite(figures)]


def _bar_counts(known: NDArray[np.float64]) -> dict[int, int]:
    """How many figures lie in each of ``BARS`` equal parts of their range; all in the first where they are the same."""
    low, high = known.min(), known.max()
    if high == low:
        return {0: len(known)}
    places = np.minimum(BARS - 1, np.floor(BARS * (known - low) / (high - low))).astype(np.int64)
    return {place: int(count) for place, count in enumerate(np.bincount(places, minlength=BARS)) if count}


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


# --- Snippets -------------------------------------------------------------------------------------------------------
# The words around a phrase that was found: which turn of a rollout says it, and where.

AROUND = 80  # characters before and after


class Snippet(NamedTuple):
    """A phrase as a turn says it, with the text before and after it."""

    turn: int
    before: str
    said: str
    after: str


def snippets(rollouts: Sequence[Rollout], phrase: str) -> dict[UUID, Snippet]:
    """For each rollout the first turn that holds the phrase; one query for all."""
    if not phrase or not rollouts:
        return {}
    wanted = Q(rollout=None)
    for run in {item.run_id for item in rollouts}:
        numbers = numbers_of_phrase(run, phrase)
        wanted |= Q(run=run, rollout__in=[item.pk for item in rollouts if item.run_id == run], words__contains=numbers)
    found: dict[UUID, Snippet] = {}
    for turn in Turn.objects.filter(wanted).defer("words").order_by("rollout", "number"):
        if turn.rollout_id not in found and (snippet := _in_turn(turn, phrase)):
            found[turn.rollout_id] = snippet
    return found


def _in_turn(turn: Turn, phrase: str) -> Snippet | None:
    wanted = phrase.lower()
    for text in (*texts_of(turn.messages), turn.wrote):
        at = text.lower().find(wanted)
        if at >= 0:
            end = at + len(phrase)
            before, after = text[max(0, at - AROUND) : at], text[end : end + AROUND]
            return Snippet(
                turn.number,
                ("…" if at > AROUND else "") + before,
                text[at:end],
                after + ("…" if end + AROUND < len(text) else ""),
            )
    return None
