"""The filters of the rollout inspector: their table, their form in an address, and the runs that are searched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.plain import number_in
from webapp.common.words import Outcome
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout

TEXT_MAX = 200
MOST_VALUES = 20
NAME_MAX = 200
PART = "part_"
_PART = re.compile(r"part_[a-z][a-z0-9_]{0,63}")
_NUMBER = re.compile(r"[+-]?(\d{1,12}(\.\d{0,12})?|\.\d{1,12})(e[+-]?\d{1,2})?", re.IGNORECASE)
Text = str | Promise


class Measure(NamedTuple):
    """A figure of a rollout that can be bounded: ``<name>_from``, ``<name>_to`` (both inclusive), ``<name>_below``."""

    name: str
    column: str
    title: Text
    help: Text
    whole: bool = False


MEASURES: dict[str, Measure] = {
    item.name: item
    for item in (
        Measure("reward", "reward", gettext_lazy("Reward"), gettext_lazy("The reward of the rollout.")),
        Measure(
            "advantage", "advantage", gettext_lazy("Advantage"), gettext_lazy("How much better than its group it was.")
        ),
        Measure(
            "surprise",
            "surprise",
            gettext_lazy("Surprise"),
            gettext_lazy(
                "How rare it is in its group, in bits: −log₂ of the share of the group that has its outcome and a "
                "reward at most half a standard deviation from its own. The only one of eight that solved its task "
                "has 3."
            ),
        ),
        Measure("turns", "turns", gettext_lazy("Turns"), gettext_lazy("Turns that the policy took."), True),
        Measure("length", "tokens", gettext_lazy("Length"), gettext_lazy("Tokens that the policy sampled."), True),
        Measure(
            "characters",
            "characters",
            gettext_lazy("Characters"),
            gettext_lazy("Characters that the policy wrote; imported runs have no tokens."),
            True,
        ),
        Measure("duration", "seconds", gettext_lazy("Duration"), gettext_lazy("Seconds from its start to its end.")),
        Measure("step", "step", gettext_lazy("Step"), gettext_lazy("The step that it was played in."), True),
        Measure(
            "policy",
            "policy_step",
            gettext_lazy("Policy version"),
            gettext_lazy("The number of steps for which the oldest weights that sampled it were trained."),
            True,
        ),
    )
}


class Choice(NamedTuple):
    """A filter by a value; ``many``: it may be given several times, and any of its values will do."""

    name: str
    title: Text
    help: Text
    many: bool = False
    values: tuple[str, ...] = ()


CHOICES: dict[str, Choice] = {
    item.name: item
    for item in (
        Choice(
            "outcome", gettext_lazy("Outcome"), gettext_lazy("The outcome of its task."), True, tuple(Outcome.values)
        ),
        Choice(
            "cause",
            gettext_lazy("Cause"),
            gettext_lazy(
                "Why it did not solve its task: `cut`, `unreadable`, `call_failed`, `call_failed:<tool>`, `no_call`, "
                "`error:<code>`, `named:<parts>`, `zero:<parts>` or `answer:<kind>`."
            ),
        ),
        Choice("tool", gettext_lazy("Tool"), gettext_lazy("A tool that it called."), True),
        Choice(
            "category",
            gettext_lazy("Category"),
            gettext_lazy(
                "The category in the dataset's row: the first of `category`, `data_source`, `ability`, `split` that "
                "it has."
            ),
        ),
        Choice(
            "boundary", gettext_lazy("Failed at"), gettext_lazy("The boundary at which an excluded rollout failed.")
        ),
        Choice("truncated", gettext_lazy("Truncated"), gettext_lazy("Whether it was cut off."), values=("yes", "no")),
        Choice(
            "held_out",
            gettext_lazy("Held-out tasks"),
            gettext_lazy("Whether it was played to evaluate a run that trains."),
            values=("yes", "no"),
        ),
        Choice("stage", gettext_lazy("Stage"), gettext_lazy("The stage of the run that played it.")),
        Choice("run", gettext_lazy("Run"), gettext_lazy("Within a project: the ids of the runs to search."), True),
        Choice(
            "newest",
            gettext_lazy("Newest step"),
            gettext_lazy("Only the newest step that was played, of each run."),
            values=("yes",),
        ),
        Choice(
            "lost",
            gettext_lazy("Lost steps"),
            gettext_lazy("Also rollouts of steps that a later attempt played again."),
            values=("yes",),
        ),
    )
}


class Sort(NamedTuple):
    """An order; ``-`` before its name turns it around. Rollouts without the figure come last either way."""

    name: str
    column: str
    title: Text


SORTS: dict[str, Sort] = {
    item.name: item
    for item in (
        Sort("step", "step", gettext_lazy("step")),
        Sort("reward", "reward", gettext_lazy("reward")),
        Sort("advantage", "advantage", gettext_lazy("advantage")),
        Sort("surprise", "surprise", gettext_lazy("surprise")),
        Sort("length", "tokens", gettext_lazy("length")),
        Sort("turns", "turns", gettext_lazy("turns")),
        Sort("duration", "seconds", gettext_lazy("duration")),
    )
}
NEWEST = "-step"


class Span(NamedTuple):
    """Bounds of a figure: at least ``low``, at most ``high`` and less than ``below``, each where it is given."""

    low: float | None = None
    high: float | None = None
    below: float | None = None


class Params(Protocol):
    """A query string, read."""

    def getlist(self, key: str) -> list[str]: ...
    def keys(self) -> Iterable[str]: ...


@dataclass(frozen=True)
class Filters:
    """The filters of a view. ``problems`` are sentences about what could not be read and was left out."""

    text: str = ""
    spans: Mapping[str, Span] = field(default_factory=dict)
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sort: str = NEWEST
    problems: tuple[str, ...] = ()

    def one(self, name: str) -> str:
        """The value of a filter that has one; empty without."""
        return next(iter(self.chosen.get(name, ())), "")

    @property
    def order(self) -> Sort:
        """The order, without its direction."""
        return SORTS[self.sort.removeprefix("-")]

    @property
    def descending(self) -> bool:
        """Whether the highest comes first."""
        return self.sort.startswith("-")

    def pairs(self) -> list[tuple[str, str]]:
        """The filters as parameters, in one fixed order."""
        found = [("q", self.text)] if self.text else []
        for name in CHOICES:
            found += [(name, value) for value in self.chosen.get(name, ())]
        for name in sorted(self.spans, key=_measure_order):
            span = self.spans[name]
            bounds = (("from", span.low), ("to", span.high), ("below", span.below))
            found += [(f"{name}_{end}", number_text(value)) for end, value in bounds if value is not None]
        return found if self.sort == NEWEST else [*found, ("sort", self.sort)]


def _measure_order(name: str) -> tuple[int, str]:
    names = list(MEASURES)
    return (names.index(name), "") if name in MEASURES else (len(names), name)


def number_text(value: float) -> str:
    """A bound as an address has it: whole numbers without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def filters_of(params: Params) -> Filters:
    """Read a query string; what cannot be read becomes a problem, and parameters of other names are ignored."""
    problems: list[str] = []
    sort = _last_value(params, "sort") or NEWEST
    if sort.removeprefix("-") not in SORTS:
        problems.append(_("There is no order “%(value)s”.") % {"value": sort[:40]})
        sort = NEWEST
    return Filters(
        text=" ".join(_last_value(params, "q").split())[:TEXT_MAX],
        spans=_parse_spans(params, problems),
        chosen=_parse_choices(params, problems),
        sort=sort,
        problems=tuple(problems),
    )


def _last_value(params: Params, name: str) -> str:
    values = params.getlist(name)
    return values[-1].strip() if values else ""


def _parse_choices(params: Params, problems: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for choice in CHOICES.values():
        values = [value.strip()[:NAME_MAX] for value in params.getlist(choice.name)[:MOST_VALUES] if value.strip()]
        unknown = [value for value in values if choice.values and value not in choice.values]
        problems += [_unknown_value(choice, value) for value in unknown[:1]]
        if choice.name == "stage" and values and number_in(values[-1]) is None:
            problems.append(_unknown_value(choice, values[-1]))
            values = []
        known = [value for value in dict.fromkeys(values) if value not in unknown]
        if known:
            found[choice.name] = tuple(known) if choice.many else (known[-1],)
    return found


def _unknown_value(choice: Choice, value: str) -> str:
    return _("%(title)s: there is no “%(value)s”.") % {"title": choice.title, "value": value[:40]}


def _parse_spans(params: Params, problems: list[str]) -> dict[str, Span]:
    found: dict[str, Span] = {}
    names = {key.rpartition("_")[0] for key in params.keys() if key.endswith(("_from", "_to", "_below"))}  # noqa: SIM118
    for name in sorted(names):
        if name not in MEASURES and not _PART.fullmatch(name):
            continue
        ends = (_parse_number(params, f"{name}_{end}", problems) for end in ("from", "to", "below"))
        span = Span(*ends)
        if span != Span():
            found[name] = span
    return found


def _parse_number(params: Params, name: str, problems: list[str]) -> float | None:
    raw = _last_value(params, name)
    if not raw:
        return None
    value = float(raw) if _NUMBER.fullmatch(raw) else math.nan
    if not math.isfinite(value):
        problems.append(_("%(name)s: “%(value)s” is not a number.") % {"name": name, "value": raw[:40]})
        return None
    return value


def without(filters: Filters, names: Sequence[str]) -> list[tuple[str, str]]:
    """The parameters of a view less those of some filters, by a filter's name or a parameter's."""
    dropped = {f"{name}_{end}" for name in names for end in ("from", "to", "below")} | set(names)
    return [(name, value) for name, value in filters.pairs() if name not in dropped]


# --- Scope ----------------------------------------------------------------------------------------------------------
# Where rollouts are searched: in one run, or in several of a project.

MOST_RUNS = 20


@dataclass(frozen=True)
class Scope:
    """A project and those of its runs that are searched; ``run`` where it is one run's page."""

    project: Project
    runs: Sequence[Run]
    run: Run | None = None

    @cached_property
    def run_of(self) -> dict[UUID, Run]:
        """Its runs by id, so that rollouts that were read get theirs without a query."""
        return {run.pk: run for run in self.runs}

    @cached_property
    def lost(self) -> Q:
        """Rollouts of steps that a later attempt played again: only the later ones count."""
        lost = Q()
        ids = [run.pk for run in self.runs]
        attempts = Attempt.objects.filter(run__in=ids, number__gt=1).order_by("run", "number")
        for attempt in attempts:
            if attempt.last_step > attempt.first_step:
                lost |= Q(run=attempt.run_id, attempt__lt=attempt.number, step__gt=attempt.first_step)
        return lost


def run_scope(project: Project, run: Run) -> Scope:
    """One run, or one evaluation."""
    return Scope(project, [run], run)


def project_scope(project: Project, chosen: Sequence[str]) -> Scope:
    """The chosen runs of a project, at most ``MOST_RUNS``; without any its newest ones that played rollouts."""
    ids = [pk for pk in map(parse_uuid, chosen) if pk is not None]
    if chosen:
        return Scope(project, list(Run.objects.filter(project=project, pk__in=ids)[:MOST_RUNS]))
    return Scope(project, list(played_runs(project)[:MOST_RUNS]))


def played_runs(project: Project) -> QuerySet[Run]:
    """The runs of a project that played rollouts, without archived ones, the newest first."""
    runs = Run.objects.filter(project=project, archived_at=None).order_by("-created_at")
    return runs.filter(Exists(Rollout.objects.filter(run=OuterRef("pk"))))


def parse_uuid(text: str) -> UUID | None:
    """The id that a text is; ``None`` of another text."""
    try:
        return UUID(text)
    except ValueError:
        return None


def address_of(project: Project, run: Run | None, name: str = "rollouts") -> str:
    """Where the inspector of a run is, or of several runs of the project, or a page below it."""
    if run is not None:
        return reverse(f"run-{name}", args=[project.slug, run.pk])
    return reverse(f"project-{name}", args=[project.slug])


def carried(run: Run | None, pairs: Sequence[tuple[str, str]]) -> str:
    """The query string that says in which view a rollout was found (``webapp.reading.views`` reads it), so that its
    page leads to the next one there."""
    return "?" + urlencode([("found", urlencode(pairs)), *([] if run else [("in", "project")])])
