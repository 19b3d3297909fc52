"""Clusters of rollouts that did not solve their task: how many have each cause, how that changed over the steps, and
what some of them say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import NamedTuple
from uuid import UUID

from webapp.common.words import Outcome, failure
from webapp.reading.groups import expected_answers
from webapp.reading.inspector.causes import ANSWER, NOT_SOLVED, PLACE, Answered, answer_causes, cause_of, cause_title
from webapp.reading.inspector.finding import View, sample_rows
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import last_errors, last_words

MOST_CLUSTERS = 8
QUOTES = 3
LOOKED_AT = 256  # of the newest rollouts of a cluster, for quotes of different groups
BINS = 12
JUDGED = (*NOT_SOLVED, Outcome.SOLVED)


class Quote(NamedTuple):
    """What one rollout of a cluster says; ``expected`` is the answer that its task expects. Both may be empty."""

    rollout: Rollout
    text: str
    expected: str


@dataclass(frozen=True)
class Cluster:
    """Rollouts with one cause. ``shares``: their part of all judged rollouts in equal ranges of steps, ``None`` where
    nothing was judged; empty with fewer than two steps. ``first`` and ``last``: how many of how many in the first and
    the last of these ranges."""

    cause: str
    title: str
    count: int
    quotes: Sequence[Quote]
    shares: Sequence[float | None]
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class Clusters:
    """Of ``judged`` rollouts, an even sample of the view's if ``sampled``, ``failed`` did not solve their task. The
    largest clusters come first; ``others`` are causes that are not listed, with their ``other_rollouts``."""

    judged: int
    failed: int
    sampled: bool
    items: Sequence[Cluster]
    others: int = 0
    other_rollouts: int = 0


class _Row(NamedTuple):
    """A judged rollout: its place and its cause, empty where it solved its task."""

    pk: UUID
    step: int
    group: int
    cause: str


def clusters_of(view: View) -> Clusters:
    """The clusters of a view's rollouts, whichever cause it is filtered by."""
    kept = {name: values for name, values in view.filters.chosen.items() if name != "cause"}
    everything = View(view.scope, replace(view.filters, chosen=kept))
    rows, sampled = _judged_rows(everything)
    members: dict[str, list[_Row]] = {}
    for row in rows:
        if row.cause:
            members.setdefault(row.cause, []).append(row)
    largest = sorted(members, key=lambda cause: (-len(members[cause]), cause))
    shown = {cause: _quotable_rows(members[cause]) for cause in largest[:MOST_CLUSTERS]}
    quotes = _quotes_of(everything, shown)
    bins = _Bins(rows)
    items = [_cluster_of(cause, members[cause], quotes[cause], bins) for cause in shown]
    hidden = largest[MOST_CLUSTERS:]
    failed = sum(map(len, members.values()))
    return Clusters(len(rows), failed, sampled, items, len(hidden), sum(len(members[cause]) for cause in hidden))


def _judged_rows(view: View) -> tuple[list[_Row], bool]:
    """The judged rollouts of a view, or an even sample of them."""
    found, sampled = sample_rows(view, whole=1.0)
    columns = ("outcome", "cause", "group", "pk", "run", *PLACE)
    asked = found.filter(outcome__in=JUDGED).annotate(cause=cause_of(view.scope.runs)).order_by().values_list(*columns)
    rows: list[_Row] = []
    answered: list[Answered] = []
    for outcome, cause, group, pk, run, step, *place in asked:
        cause = "" if outcome == Outcome.SOLVED else cause
        rows.append(_Row(pk, step, group, cause))
        if cause == ANSWER:
            answered.append(Answered(pk, view.scope.run_of[run], step, *place))
    kinds = answer_causes(answered)
    return [row._replace(cause=kinds[row.pk]) if row.pk in kinds else row for row in rows], sampled


def _quotable_rows(rows: Sequence[_Row]) -> list[UUID]:
    """The newest of some rollouts, each of another group as long as there are others."""
    newest = nsmallest(LOOKED_AT, rows, key=lambda row: (-row.step, row.group, row.pk))
    of_group: dict[tuple[int, int], _Row] = {}
    for row in newest:
        of_group.setdefault((row.step, row.group), row)
    firsts = list(of_group.values())[:QUOTES]
    return [row.pk for row in [*firsts, *(row for row in newest[: 2 * QUOTES] if row not in firsts)][:QUOTES]]


def _quotes_of(view: View, shown: Mapping[str, Sequence[UUID]]) -> dict[str, list[Quote]]:
    """What the chosen rollouts of each cause say: the error where one was the cause, else the model's last words."""
    rollouts = {item.pk: item for item in Rollout.objects.filter(pk__in=[pk for ids in shown.values() for pk in ids])}
    for item in rollouts.values():
        item.run = view.scope.run_of[item.run_id]
    errors = last_errors([pk for cause, ids in shown.items() if cause.startswith("call_failed") for pk in ids])
    words, expected = last_words(list(rollouts)), expected_answers(list(rollouts.values()))
    return {
        cause: [
            Quote(
                rollouts[pk], _outside_error(rollouts[pk]) or errors.get(pk) or words.get(pk, ""), expected.get(pk, "")
            )
            for pk in ids
            if pk in rollouts  # it may have been deleted since
        ]
        for cause, ids in shown.items()
    }


def _outside_error(rollout: Rollout) -> str:
    """What failed outside the policy, in the reporter's own words or the table's; empty where nothing did."""
    known = failure(rollout.error)
    return (known.detail or known.hint or known.title) if known else ""


class _Bins:
    """Equal ranges of steps, with the number of judged rollouts in each."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        steps = [row.step for row in rows]
        self.low, self.reach = min(steps, default=0), max(steps, default=0) - min(steps, default=0) + 1
        self.number = min(BINS, self.reach)
        self.judged = Counter(map(self.place, rows))

    def place(self, row: _Row) -> int:
        """The number of the range that a rollout's step lies in."""
        return (row.step - self.low) * self.number // self.reach


def _cluster_of(cause: str, rows: Sequence[_Row], quotes: Sequence[Quote], bins: _Bins) -> Cluster:
    counts = Counter(map(bins.place, rows))
    shares = [counts[at] / bins.judged[at] if bins.judged[at] else None for at in range(bins.number)]
    first, last = ((counts[at], bins.judged[at]) for at in (0, bins.number - 1))
    return Cluster(cause, cause_title(cause), len(rows), quotes, shares if bins.number > 1 else [], first, last)
