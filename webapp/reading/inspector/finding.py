"""Finding rollouts: filters as a query, a phrase as the turns that hold it, a page after a place, the distributions
of all."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import F, FloatField, Q, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils.translation import gettext as _
from numpy.typing import NDArray

from webapp.datasets.recorded import dataset_of_step
from webapp.datasets.rows import Categories, categories_in_file
from webapp.reading.inspector.causes import ids_in, of_failed, with_cause
from webapp.reading.inspector.filters import MEASURES, PART, Filters, Scope, Span
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.words import numbers_of_phrase

# --- Categories -----------------------------------------------------------------------------------------------------
# The tasks of runs by category.

MOST = 50


class _Course(NamedTuple):
    """The steps after ``began`` up to ``end`` (``None``: to the last), and the tasks that they, or a ``part`` of their
    mix, drew from."""

    began: int | None
    end: int | None
    tasks: Categories | None
    part: str | None = None


def rows_of_category(scope: Scope, category: str) -> Q:
    """Rollouts of tasks of this category."""
    wanted = Q(pk=None)
    for run in scope.runs:
        for course in _begun_courses(run):
            if course.tasks is not None and (places := course.tasks.rows(category)):
                steps = Q() if course.began is None else Q(step__gt=course.began)
                steps &= Q() if course.end is None else Q(step__lte=course.end)
                steps &= Q() if course.part is None else Q(part=course.part)
                wanted |= Q(run=run.pk, row__in=places) & steps
    return wanted


def categories_in(scope: Scope) -> list[tuple[str, int]]:
    """The categories that the scope's tasks have, each with its number of tasks, the largest first."""
    found: Counter[str] = Counter()
    for run in scope.runs:
        for course in _begun_courses(run):
            if course.tasks is not None:
                found.update(course.tasks.names[at] for at in course.tasks.of_row if at >= 0)
    return found.most_common(MOST)


def _begun_courses(run: Run) -> list[_Course]:
    """The stages of a run that have begun, or the parts of its mix; all of a run without either is one."""
    config = config_of(run)
    if config is not None and config.mix.parts:
        return [_Course(None, None, _categories_at(run, 1, part.name), part.name) for part in config.mix.parts]
    begun = [each["began"] for each in run.health.get("stages") or []] or [0]
    ends = [*begun[1:], None]
    return [
        _Course(began if number else None, end, _categories_at(run, began + 1))
        for number, (began, end) in enumerate(zip(begun, ends, strict=True))
    ]


def _categories_at(run: Run, step: int, part: str = "") -> Categories | None:
    """The categories of the dataset version that a step, or a part of it, drew from."""
    dataset = dataset_of_step(run, step, part)
    return categories_in_file(dataset.rows_path) if dataset is not None else None


# --- Finding --------------------------------------------------------------------------------------------------------

SEARCH_MOST = 10_000
READ_MOST = 20_000  # turns that have the words of a phrase and are read for the phrase itself: most of its time
COUNT_MOST = 10_000
UNREAD = ("env_parts", "cost", "failed_calls", "parse_errors")
"""Columns that a row of a list does not need."""


NONE = "{}"
READ = """
WITH known AS MATERIALIZED (SELECT rollout_id, ({said}) AS said FROM rollouts_turn WHERE {held} LIMIT %s),
found AS MATERIALIZED (SELECT DISTINCT rollout_id FROM known WHERE said ORDER BY rollout_id LIMIT %s)
SELECT (SELECT count(*) FROM known), (SELECT count(*) FROM found),
    ARRAY(SELECT rollout_id FROM found ORDER BY rollout_id LIMIT %s)::text
"""


class Searched(NamedTuple):
    """The rollouts that hold a phrase; ``more``: there are others. ``problem`` says why none was looked for.

    ``ids``: theirs as PostgreSQL writes an array. They go back to it with every question, and ten thousand objects
    would take longer than the search. ``behind``: turns of an older version are still to be indexed.
    """

    ids: str
    more: bool = False
    problem: str = ""
    behind: bool = False


class Count(NamedTuple):
    """How many rollouts; ``more``: at least that many."""

    number: int
    more: bool = False


class View:
    """Rollouts of a scope under filters. Queries run only when their result is needed."""

    def __init__(self, scope: Scope, filters: Filters) -> None:
        self.scope, self.filters = scope, filters

    @cached_property
    def searched(self) -> Searched | None:
        """The rollouts that hold the phrase that is looked for; ``None`` where none is."""
        return search(self.scope, self.filters.text) if self.filters.text else None

    @cached_property
    def rows(self) -> QuerySet[Rollout]:
        """The rollouts, in no order."""
        rows = Rollout.objects.filter(_filter_query(self.scope, self.filters))
        if self.searched is not None:
            rows = rows.filter(pk__in=ids_in(self.searched.ids))
        for name, span in self.filters.spans.items():
            rows = _within_span(rows, name, span)
        if cause := self.filters.one("cause"):
            rows = with_cause(rows, self.scope, cause, SEARCH_MOST)
        return rows

    @cached_property
    def count(self) -> Count:
        """How many there are."""
        number = self.rows.order_by()[: COUNT_MOST + 1].count()
        return Count(min(number, COUNT_MOST), number > COUNT_MOST or bool(self.searched and self.searched.more))

    def page(self, after: str, size: int) -> tuple[list[Rollout], str]:
        """Rollouts of a page in order, each with its ``cause`` (``of_failed``), and the place after which the next page
        begins; empty at the end."""
        rows = _rows_after(self.rows, self.filters, after).order_by(*_order_by(self.filters)).defer(*UNREAD)
        found: list[Rollout] = list(rows.annotate(cause=of_failed(self.scope.runs))[: size + 1])
        for row in found:
            row.run = self.scope.run_of[row.run_id]
        return found[:size], _place_of_row(self.filters, found[size - 1]) if len(found) > size else ""

    def beside(self, rollout: Rollout) -> tuple[Rollout | None, Rollout | None]:
        """The rollouts before and after one in the order, ``None`` at an end; it need not be in the view itself."""
        place, order = _place_of_row(self.filters, rollout), _order_by(self.filters)
        before = _rows_after(self.rows, self.filters, place, back=True).order_by(*order).reverse()
        after = _rows_after(self.rows, self.filters, place).order_by(*order)
        return before.defer(*UNREAD).first(), after.defer(*UNREAD).first()


def search(scope: Scope, phrase: str) -> Searched:
    """The rollouts with a turn that holds the phrase, upper or lower case."""
    asked = [(run.pk, numbers) for run in scope.runs if (numbers := numbers_of_phrase(run.pk, phrase))]
    if not asked and scope.runs:
        return Searched(NONE, problem=_("Search for at least one whole word or number, or two Chinese characters."))
    held = " OR ".join("(run_id = %s AND words @> %s::int[])" for _each in asked)
    params: list[Any] = [part for run, numbers in asked for part in (run, numbers)]
    if not asked:
        return Searched(NONE)
    said, patterns = said_sql(phrase)
    statement = READ.format(said=said, held=held)
    with connection.cursor() as cursor:
        cursor.execute(statement, [*patterns, *params, READ_MOST, SEARCH_MOST + 1, SEARCH_MOST])
        read, found, ids = cursor.fetchone()
    behind = Turn.objects.filter(run__in=[run.pk for run in scope.runs], words__isnull=True).exists()
    return Searched(ids, found > SEARCH_MOST or read == READ_MOST, behind=behind)


def said_sql(phrase: str) -> tuple[str, list[str]]:
    """The condition of SQL that a turn holds the phrase, and its parameters."""
    inside = needles(phrase)
    said = " OR ".join(["wrote ILIKE %s", *("messages::text ILIKE %s" for _each in inside)])
    return said, [f"%{escape_like(phrase)}%", *inside]


def needles(phrase: str) -> list[str]:
    """Patterns of a phrase as the JSON of messages has it: as text, and inside a call's arguments."""
    once = json.dumps(phrase, ensure_ascii=False)[1:-1]
    twice = json.dumps(once, ensure_ascii=False)[1:-1]
    return [f"%{escape_like(text)}%" for text in dict.fromkeys((once, twice))]


def escape_like(text: str) -> str:
    """The text with the wildcards of LIKE escaped."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _filter_query(scope: Scope, filters: Filters) -> Q:
    wanted = Q(run__in=[run.pk for run in scope.runs])
    if not filters.one("lost") and scope.lost:
        wanted &= ~scope.lost
    chosen: Mapping[str, Sequence[str]] = filters.chosen
    if outcomes := chosen.get("outcome"):
        wanted &= Q(outcome__in=outcomes)
    if tools := chosen.get("tool"):
        wanted &= Q(tools__overlap=list(tools))
    if truncated := filters.one("truncated"):
        cut = Q(status=RolloutStatus.TRUNCATED)
        wanted &= cut if truncated == "yes" else ~cut
    if held_out := filters.one("held_out"):
        wanted &= Q(held_out=held_out == "yes")
    if boundary := filters.one("boundary"):
        wanted &= Q(error__boundary=boundary)
    if stage := filters.one("stage"):
        wanted &= _stage_query(scope, int(stage[:6]))
    if category := filters.one("category"):
        wanted &= rows_of_category(scope, category)
    if filters.one("newest"):
        wanted &= _newest_query(scope)
    return wanted


def _newest_query(scope: Scope) -> Q:
    """The newest step of each run, as its newest attempt played it."""
    wanted = Q(pk=None)
    for run in scope.runs:
        places = Rollout.objects.filter(run=run.pk, held_out=False).order_by("-attempt", "-step")
        newest = {name: Subquery(places.values(name)[:1]) for name in ("attempt", "step")}
        wanted |= Q(run=run.pk, held_out=False, **newest)
    return wanted


def _stage_query(scope: Scope, number: int) -> Q:
    """Steps of the stage: it began after a step, and the one after it, where there is one, after another."""
    wanted = Q(pk=None)
    for run in scope.runs:
        stages = run.health.get("stages") or []
        began = next((each["began"] for each in stages if each["stage"] == number), None)
        if began is None:
            continue
        later = min((each["began"] for each in stages if each["stage"] > number), default=None)
        of_run = Q(run=run.pk, step__gt=began) if number > 1 else Q(run=run.pk)
        wanted |= of_run if later is None else of_run & Q(step__lte=later)
    return wanted


def _within_span(rows: QuerySet[Rollout], name: str, span: Span) -> QuerySet[Rollout]:
    if name in MEASURES:
        column = MEASURES[name].column
    else:
        column = f"value_of_{name}"
        rows = rows.alias(**{column: Cast(KeyTextTransform(name.removeprefix(PART), "parts"), FloatField())})
    for end, bound in (("gte", span.low), ("lte", span.high), ("lt", span.below)):
        if bound is not None:
            rows = rows.filter(**{f"{column}__{end}": bound})
    return rows


# --- Order and place ------------------------------------------------------------------------------------------------
STEP_KEYS = ("run_id", "held_out", "group", "index", "attempt", "id")
"""Within a step: a group stays together."""


def _order_by(filters: Filters) -> list[Any]:
    column, down = filters.order.column, filters.descending
    if column == "step":
        return [F("step").desc() if down else F("step").asc(), *STEP_KEYS]
    return [F(column).desc(nulls_last=True) if down else F(column).asc(nulls_last=True), "id"]


def _place_of_row(filters: Filters, last: Rollout) -> str:
    """The place of a row in the order, as an address has it."""
    column = filters.order.column
    names = ("step", *STEP_KEYS) if column == "step" else (column, "id")
    return "~".join(_place_part(getattr(last, name)) for name in names)


def _place_part(value: Any) -> str:
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)


def _rows_after(rows: QuerySet[Rollout], filters: Filters, after: str, *, back: bool = False) -> QuerySet[Rollout]:
    """The rows after a place, or before it with ``back``; an invalid place is the beginning."""
    parts = after.split("~")
    column = filters.order.column
    try:
        if column == "step" and len(parts) == 1 + len(STEP_KEYS):
            return rows.filter(_after_step(filters.descending, parts, back))
        if column != "step" and len(parts) == 2:
            return rows.filter(_after_value(column, filters.descending, parts[0], UUID(parts[1]), back))
    except (ValueError, OverflowError):
        pass
    return rows


def _after_value(column: str, down: bool, value: str, last: UUID, back: bool) -> Q:
    """Rollouts without the figure come last, in either direction of the figure."""
    side, missing = "lt" if back else "gt", Q(**{f"{column}__isnull": True})
    if not value:
        same = missing & Q(**{f"id__{side}": last})
        return same | ~missing if back else same
    bound = float(value)
    beyond = Q(**{f"{column}__{'lt' if down != back else 'gt'}": bound}) | Q(**{column: bound, f"id__{side}": last})
    return beyond if back else beyond | missing


def _after_step(down: bool, parts: Sequence[str], back: bool) -> Q:
    step, run, held_out, group, index, attempt, last = parts
    values: list[Any] = [UUID(run), held_out == "1", int(group), int(index), int(attempt), UUID(last)]
    wanted = Q(**{f"step__{'lt' if down != back else 'gt'}": int(step)})
    same = Q(step=int(step))
    for name, value in zip(STEP_KEYS, values, strict=True):
        wanted |= same & Q(**{f"{name}__{'lt' if back else 'gt'}": value})
        same &= Q(**{name: value})
    return wanted


# --- Distributions --------------------------------------------------------------------------------------------------
# The distributions of a view's rollouts: histograms whose bars are links, and the values to choose from.
#
# All of it is one statement over the rows of the view. Beyond ``SAMPLE`` rows it reads a sample: the rollouts whose id
# lies below a bound. Ids are hashes, so it is even over steps, groups and rewards; the page says that it is one.

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

    def of_outcome(self, outcome: str) -> int:
        """How many of them came to this."""
        return dict(self.values["outcome"]).get(outcome, 0)


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
    rows, sampled = sample_rows(view)
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


def sample_rows(view: View, whole: float = 0.5) -> tuple[QuerySet[Rollout], bool]:
    """The rows to read: all, or those whose ids are below a bound, where that is at most the ``whole`` share of them;
    and whether it is a sample."""
    if view.searched is not None or not view.count.more:
        return view.rows, False
    share = min(1.0, SAMPLE / max(_expected_rows(view.rows), COUNT_MOST))
    if share > whole:
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
