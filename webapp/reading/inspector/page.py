"""The page of a view of rollouts: rows in their groups, its step, the active filters, bars that are links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.common.text import figure
from webapp.common.words import Outcome
from webapp.reading.groups import expected_answers
from webapp.reading.inspector.causes import ANSWER, NOT_SOLVED, UNKNOWN, cause_title, whole_cause
from webapp.reading.inspector.filters import (
    CHOICES,
    MEASURES,
    PART,
    SORTS,
    Filters,
    Scope,
    Span,
    filters_of,
    number_text,
    without,
)
from webapp.reading.inspector.finding import Count, Figures, Histogram, View
from webapp.reading.task_map import shade_of
from webapp.runs.config import all_components, component_titles, config_of
from webapp.runs.rollouts.figures import Signal, judge_functions, signal_of
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.rollouts.selectors import Snippet, current_step, last_words, snippets
from webapp.runs.states import TERMINAL

PER_PAGE = 50
BAR_WIDTH, BAR_HEIGHT = 10, 48
LEAST_BAR = 2.0  # pixels: one rollout among thousands is still seen
MOST_CHIPS_COUNTED = 8
MOST_DRAWN = 128  # rollouts of all groups of a page, as squares in their heads
MOST_MEMBERS = 4_096  # of all groups of a page: imported runs may have one group a step
Pairs = Sequence[tuple[str, str]]
Place = tuple[UUID, int, int, int, bool]
"""Of a group: run, attempt, step, number, and whether it was held out."""


class Line(NamedTuple):
    """One rollout of the list. ``words`` are the end of the model's last message, ``expected`` what its task's row
    expects; both are empty where they are not known. ``why``: the cause of a task that was not solved."""

    rollout: Rollout
    snippet: Snippet | None
    why: str
    words: str
    expected: str


class Member(NamedTuple):
    """A rollout of a group, found or not, with the shade of its reward among those of the page."""

    rollout: Rollout
    shade: int | None


class Block(NamedTuple):
    """Rollouts of one group that are listed together; without a head where the order is not by step. ``outcomes``: how
    many of the whole group, found or not, came to what; ``signal``: what it teaches, where something is learned from
    it; ``members``: all of it, unless the page has too many; ``explained``: the first of the page with that signal."""

    head: Rollout | None
    group: RolloutGroup | None
    lines: list[Line]
    outcomes: Sequence[tuple[Outcome, int]] = ()
    signal: Signal | None = None
    members: Sequence[Member] = ()
    explained: bool = False


@dataclass(frozen=True)
class Chip:
    """A filter that is on: its words, the view without it, and how many rollouts that one has, where it was counted."""

    words: str
    url: str
    count: Count | None = None


class DrawnBar(NamedTuple):
    """A bar as the page draws it: a link to its rollouts."""

    x: float
    y: float
    height: float
    url: str
    words: str
    chosen: bool


@dataclass(frozen=True)
class Drawn:
    """A histogram as the page draws it."""

    name: str
    title: str
    low: str
    high: str
    count: int
    width: int
    bars: list[DrawnBar]


def component_names(scope: Scope) -> dict[str, str]:
    """The reward components of the scope's runs with their titles, in the spec's order."""
    found: dict[str, str] = {}
    for run in scope.runs:
        found |= component_titles(all_components(config_of(run)))
    return found


def blocks(rows: Sequence[Rollout], filters: Filters) -> list[Block]:
    """The rows of a page, in their groups where the order is by step."""
    lines = _lines_of(rows, filters.text)
    if filters.order.name != "step":
        return [Block(None, None, lines)] if lines else []
    known, members = _recorded_groups(rows), _whole_groups(rows)
    runs = {row.run_id: row.run for row in rows}
    functions = {pk: judge_functions(run) for pk, run in runs.items() if run.method.learns_from == "rollouts"}
    shade = _reward_shades([item for group in members.values() for item in group])
    found: list[Block] = []
    signals: list[Signal | None] = []
    for line in lines:
        place = _group_of(line.rollout)
        if not found or found[-1].head is None or _group_of(found[-1].head) != place:
            group = members.get(place, [])
            outcomes = Counter(Outcome(item.outcome) for item in group)
            counted = [(outcome, outcomes[outcome]) for outcome in Outcome if outcomes[outcome]]
            learned = functions.get(line.rollout.run_id) if not line.rollout.held_out else None
            signal = signal_of(group, learned) if learned is not None else None
            drawn = [Member(item, shade(item.reward)) for item in group] if shade is not None else []
            block = Block(line.rollout, known.get(place), [], counted, signal, drawn)
            found.append(block._replace(explained=_kind_of(signal) not in {"", *map(_kind_of, signals)}))
            signals.append(signal)
        found[-1].lines.append(line)
    return found


def _kind_of(signal: Signal | None) -> str:
    if signal is None:
        return ""
    return "flat" if signal.flat else "phantom" if signal.phantom else ""


def _lines_of(rows: Sequence[Rollout], text: str) -> list[Line]:
    found_texts, expected = snippets(rows, text), expected_answers(rows)
    unread = [item for item in rows if item.pk not in found_texts or getattr(item, "cause", None) == ANSWER]
    words = last_words([item.pk for item in unread])
    return [
        _line_of(item, found_texts.get(item.pk), words.get(item.pk, ""), expected.get(item.pk, "")) for item in rows
    ]


def _line_of(item: Rollout, snippet: Snippet | None, words: str, expected: str) -> Line:
    cause = whole_cause(getattr(item, "cause", None), words, expected)
    return Line(item, snippet, cause_title(cause) if cause not in ("", UNKNOWN) else "", words, expected)


def _reward_shades(members: Sequence[Rollout]) -> Callable[[float | None], int | None] | None:
    """The shade of each reward between the least and the highest of these, 0 and 1 among them; ``None`` of too many."""
    if len(members) > MOST_DRAWN:
        return None
    rewards = [item.reward for item in members if item.reward is not None]
    low, high = min(0.0, *rewards, 0.0), max(1.0, *rewards, 1.0)
    return lambda reward: shade_of(None if reward is None else (reward - low) / (high - low))


def first_to_read(found: Sequence[Block]) -> UUID | None:
    """The rollout that a page opens: the first that did not solve its task, else the first of all."""
    listed = [line.rollout for block in found for line in block.lines]
    failed = (item.pk for item in listed if item.outcome in NOT_SOLVED)
    return next(failed, listed[0].pk if listed else None)


class StepBar(NamedTuple):
    """Where a view is among the steps of its run. ``step``: the one that it shows, ``None`` of several; the addresses
    of the step before and after it, of the newest one and of all, empty where the view is there. ``to``: that of any
    step, which takes the place of ``STEP``. ``counts``: its rollouts by outcome."""

    step: int | None
    high: int
    before: str
    after: str
    newest: str
    every: str
    to: str
    at_work: bool
    following: bool
    counts: Sequence[tuple[Outcome, int]]


STEP = "000000000"
"""In an address: the place of a step's number."""


def step_bar(view: View, figures: Figures, rows: Sequence[Rollout]) -> StepBar | None:
    """The steps of a run's view; ``None`` of several runs."""
    run, filters = view.scope.run, view.filters
    if run is None:
        return None
    newest, span = bool(filters.one("newest")), filters.spans.get("step", Span())
    one = int(span.low) if span.low is not None and span.low == span.high else None
    if newest:
        one = rows[0].step if rows else current_step(run)
    at_work = run.state not in TERMINAL
    high = max(run.step + at_work, one or 0)
    others = without(filters, ["step", "newest"])

    def of_step(number: int | str) -> str:
        return f"?{urlencode([*others, ('step_from', number), ('step_to', number)])}"

    counts = dict(figures.values["outcome"])
    return StepBar(
        one,
        high,
        of_step(one - 1) if one else "",
        of_step(one + 1) if one is not None and one < high else "",
        "" if newest else f"?{urlencode([*others, ('newest', 'yes')])}",
        f"?{urlencode(others)}" if newest or "step" in filters.spans else "",
        of_step(STEP),
        at_work,
        newest and at_work,
        [(outcome, counts[outcome]) for outcome in Outcome if counts.get(outcome)],
    )


def _whole_groups(rows: Sequence[Rollout]) -> dict[Place, list[Rollout]]:
    """The groups of some rollouts, whole; none where they are too large to be read for a page."""
    steps = {(row.run_id, row.step): set[int]() for row in rows}
    for row in rows:
        steps[row.run_id, row.step].add(row.group)
    wanted = Q(pk=None)
    for (run, step), groups in steps.items():
        wanted |= Q(run=run, step=step, group__in=groups)
    columns = (
        "run",
        "attempt",
        "step",
        "group",
        "index",
        "held_out",
        "status",
        "outcome",
        "reward",
        "parts",
        "env_parts",
    )
    found: dict[Place, list[Rollout]] = {}
    members = list(Rollout.objects.filter(wanted).only(*columns).order_by("index")[: MOST_MEMBERS + 1])
    for item in members:
        found.setdefault(_group_of(item), []).append(item)
    return found if len(members) <= MOST_MEMBERS else {}


def _group_of(item: Rollout) -> Place:
    return item.run_id, item.attempt, item.step, item.group, item.held_out


def _recorded_groups(rows: Sequence[Rollout]) -> dict[Place, RolloutGroup]:
    places = {"run": {row.run_id for row in rows}, "attempt": {row.attempt for row in rows}}
    wanted = {f"{name}__in": values for name, values in places.items()}
    found = RolloutGroup.objects.filter(**wanted, step__in={row.step for row in rows}) if rows else ()
    return {(item.run_id, item.attempt, item.step, item.group, False): item for item in found}


# --- Links ----------------------------------------------------------------------------------------------------------
def chips(view: View, *, counted: bool = False) -> list[Chip]:
    """The filters that are on. ``counted``: how many rollouts there would be without each."""
    filters, found = view.filters, []
    titles = component_names(view.scope)
    named = [("q", f"“{filters.text}”")] if filters.text else []
    for name, values in filters.chosen.items():
        named.append((name, f"{CHOICES[name].title}: {', '.join(value_words(view.scope, name, v) for v in values)}"))
    for name in filters.spans:
        named.append((name, span_words(filters, name, titles)))
    for place, (name, words) in enumerate(named):
        pairs = without(filters, [name])
        count = View(view.scope, filters_of(Query(pairs))).count if counted and place < MOST_CHIPS_COUNTED else None
        found.append(Chip(words, f"?{urlencode(pairs)}", count))
    return found


class Query:
    """Pairs as a query string that was read."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = list(pairs)

    def getlist(self, key: str) -> list[str]:
        """All values of a parameter."""
        return [value for name, value in self._pairs if name == key]

    def keys(self) -> list[str]:
        """The names that occur."""
        return list(dict.fromkeys(name for name, _value_text in self._pairs))


def value_words(scope: Scope, name: str, value: str) -> str:
    """A filter's value as people know it."""
    if name == "outcome":
        return str(Outcome(value).label)
    if name in {"truncated", "held_out", "newest", "lost"}:
        return _("yes") if value == "yes" else _("no")
    if name == "cause":
        return cause_title(value)
    if name == "run":
        return next((run.name for run in scope.runs if str(run.pk) == value), value)
    return value


def measure_title(name: str, titles: dict[str, str]) -> str:
    """The title of a figure: a measure, or a reward component."""
    if name in MEASURES:
        return str(MEASURES[name].title)
    part = name.removeprefix(PART)
    return titles.get(part, part)


def span_words(filters: Filters, name: str, titles: dict[str, str]) -> str:
    """A bounded figure in words."""
    span, title = filters.spans[name], measure_title(name, titles)
    ends = (("≥", span.low), ("≤", span.high), ("<", span.below))
    return f"{title} " + ", ".join(f"{sign} {number_text(value)}" for sign, value in ends if value is not None)


def drawn(found: Figures, filters: Filters, titles: dict[str, str]) -> list[Drawn]:
    """Histograms with a link for each bar: the view with that bar's bounds instead of the figure's own."""
    return [_drawn_histogram(item, filters, titles) for item in found.histograms if len(item.bars) > 1]


def _drawn_histogram(item: Histogram, filters: Filters, titles: dict[str, str]) -> Drawn:
    others = without(filters, [item.name])
    span = filters.spans.get(item.name)
    last = len(item.bars) - 1
    bars = []
    for place, bar in enumerate(item.bars):
        closed = place == last or bar.high == bar.low
        bounds = [(f"{item.name}_from", bar.low), (f"{item.name}_{'to' if closed else 'below'}", bar.high)]
        height = max(LEAST_BAR, BAR_HEIGHT * bar.count / item.tallest) if bar.count else 0.0
        url = f"?{urlencode([*others, *((name, number_text(value)) for name, value in bounds)])}"
        chosen = span == Span(bar.low, bar.high if closed else None, None if closed else bar.high)
        low, high = _value_text(item.name, bar.low), _value_text(item.name, bar.high)
        reach = low if bar.high == bar.low else f"{low} … {high}"
        words = ngettext("%(reach)s: %(n)d rollout", "%(reach)s: %(n)d rollouts", bar.count)
        x = place * BAR_WIDTH
        bars.append(DrawnBar(x, BAR_HEIGHT - height, height, url, words % {"reach": reach, "n": bar.count}, chosen))
    title = measure_title(item.name, titles)
    ends = _value_text(item.name, item.low), _value_text(item.name, item.high)
    return Drawn(item.name, title, *ends, item.count, BAR_WIDTH * len(bars), bars)


def _value_text(name: str, value: float) -> str:
    """A figure as the page writes it: counts without a point."""
    return number_text(value) if name in MEASURES and MEASURES[name].whole else figure(value)


@dataclass(frozen=True)
class Option:
    """A value to choose: its words, how many rollouts have it, whether it is chosen."""

    value: str
    words: str
    count: int | None
    chosen: bool


def options(
    view: View, name: str, known: Sequence[tuple[str, int]], words: Callable[[str], str] | None = None
) -> list[Option]:
    """The choices of a filter: the values that the view has, and those that are chosen."""
    chosen = view.filters.chosen.get(name, ())
    counts: dict[str, int | None] = dict(known)
    for value in chosen:
        counts.setdefault(value, None)
    say = words or (lambda value: value_words(view.scope, name, value))
    return [Option(value, say(value), count, value in chosen) for value, count in counts.items() if value]


def sort_links(filters: Filters) -> list[dict[str, Any]]:
    """Each order as a link; the one that is on turns around."""
    found = []
    for sort in SORTS.values():
        on = sort.name == filters.order.name
        turned = sort.name if on and filters.descending else f"-{sort.name}"
        pairs = [*((n, v) for n, v in filters.pairs() if n != "sort"), ("sort", turned)]
        found.append(
            {
                "name": sort.name,
                "title": sort.title,
                "url": f"?{urlencode(pairs)}",
                "on": on,
                "down": filters.descending,
            }
        )
    return found
