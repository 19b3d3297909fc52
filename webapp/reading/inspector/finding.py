"""Finding rollouts: filters as a query, a phrase as the turns that hold it, a page after a place.

1. A phrase is looked up first (``searched``): the turns that have its words, of them those that hold it literally, as
   the ids of at most ``SEARCH_MOST`` rollouts. All that follows reads these alone.
2. Rows come a page at a time from a place in the order (a value and an id), so that a late page costs what the first
   one does.
3. Counts stop at ``COUNT_MOST``: beyond it the exact number is of no use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import F, FloatField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from webapp.reading.inspector.categories import rows_of_category
from webapp.reading.inspector.filters import MEASURES, PART, Filters, Span
from webapp.reading.inspector.scope import Scope, lost_steps
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.words import numbers_of_phrase

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
            # One parameter instead of thousands: half of the time of a count.
            rows = rows.filter(pk__in=RawSQL("SELECT unnest(%s::uuid[])", [self.searched.ids]))
        for name, span in self.filters.spans.items():
            rows = _within_span(rows, name, span)
        return rows

    @cached_property
    def count(self) -> Count:
        """How many there are."""
        number = self.rows.order_by()[: COUNT_MOST + 1].count()
        return Count(min(number, COUNT_MOST), number > COUNT_MOST or bool(self.searched and self.searched.more))

    def page(self, after: str, size: int) -> tuple[list[Rollout], str]:
        """Rollouts of a page in order, and the place after which the next page begins; empty at the end."""
        rows = _rows_after(self.rows, self.filters, after).order_by(*_order_by(self.filters)).defer(*UNREAD)
        found, runs = list(rows[: size + 1]), {run.pk: run for run in self.scope.runs}
        for row in found:
            row.run = runs[row.run_id]
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
    said = " OR ".join(["wrote ILIKE %s", *("messages::text ILIKE %s" for _each in needles(phrase))])
    if not asked:
        return Searched(NONE)
    statement = READ.format(said=said, held=held)
    with connection.cursor() as cursor:
        patterns = [f"%{_escape_like(phrase)}%", *needles(phrase)]
        cursor.execute(statement, [*patterns, *params, READ_MOST, SEARCH_MOST + 1, SEARCH_MOST])
        read, found, ids = cursor.fetchone()
    behind = Turn.objects.filter(run__in=[run.pk for run in scope.runs], words__isnull=True).exists()
    return Searched(ids, found > SEARCH_MOST or read == READ_MOST, behind=behind)


def needles(phrase: str) -> list[str]:
    """Patterns of a phrase as the JSON of messages has it: as text, and inside a call's arguments."""
    once = json.dumps(phrase, ensure_ascii=False)[1:-1]
    twice = json.dumps(once, ensure_ascii=False)[1:-1]
    return [f"%{_escape_like(text)}%" for text in dict.fromkeys((once, twice))]


def _escape_like(text: str) -> str:
    """The text with the wildcards of LIKE escaped."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _filter_query(scope: Scope, filters: Filters) -> Q:
    wanted = Q(run__in=[run.pk for run in scope.runs])
    if not filters.one("lost") and (lost := lost_steps(scope.runs)):
        wanted &= ~lost
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
