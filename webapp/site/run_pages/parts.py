"""Parts of the page of a run: the time of its steps, its family, its evaluations on held-out tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Case, QuerySet, When
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training.evaluation import Report
from webapp.common.pages import page_number
from webapp.common.text import duration, percent
from webapp.common.words import Outcome
from webapp.engine.services import whole_checkpoints
from webapp.evaluation.comparison.boards import interval_of
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns
from webapp.runs.metrics.devices import phase_names
from webapp.runs.metrics.selectors import figures_since
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.records.selectors import own_run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.reports import event_text
from webapp.runs.rollouts.models import Rollout

# The time of a run's last steps by phase: a bar for each step, cut into its phases.
#
# A step's own time (``timing/step``) is generation, environment, scoring, the handover of weights and the update; of a
# run that plays ahead of its training (``rollout.max_staleness``), the wait for rollouts replaces the first
# three, which take no time of their own. Saving and evaluating come after a step and are not in its own time. What was
# not measured is left out, never 0; what is left of the step is *other*.

STEPS = 20
WIDTH = 1000
LEAST_OTHER = 0.01
METRICS = {
    "generation": "timing/generation",
    "environment": "timing/environment",
    "scoring": "timing/scoring",
    "waiting": "timing/waiting",
    "handover": "sampling/sync_seconds",
    "training": "timing/training",
    "saving": "timing/saving",
    "evaluating": "timing/evaluating",
}
PLAYED = ("generation", "environment", "scoring")
AFTER = ("saving", "evaluating")
ORDER = (*METRICS, "other")
STEP, HANDOVER = "timing/step", "timing/handover"


class Piece(NamedTuple):
    """The time of one phase of a step: its place on the bar in thousandths of the longest one's length, and in
    words."""

    phase: str
    x: str
    width: str
    text: str


class StepLine(NamedTuple):
    """One step. ``parts`` are the durations of the table's columns; one that has not ended has none."""

    step: int | None
    total: str
    pieces: list[Piece]
    parts: list[str]


class Share(NamedTuple):
    """The time of one phase over all steps."""

    phase: str
    name: str
    share: str
    each: str


class Times(NamedTuple):
    """The card; ``lines`` has the newest step first, and a fixed number of lines."""

    lines: list[StepLine]
    shares: list[Share]
    steps: int
    each: str
    ahead: bool


def places_of(run: Run) -> int:
    """How many lines the card keeps for steps."""
    return min(STEPS, max(run.total_steps, run.step, 1))


def room_for(run: Run) -> Times | None:
    """The card before its figures are read: lines for the steps to come. ``None`` for runs without measured times:
    imported ones and those that train nothing."""
    if run.imported_from or not run.method.trains:
        return None
    return Times([StepLine(None, "", [], []) for _place in range(places_of(run))], [], 0, "", ahead=False)


def times_of(run: Run) -> Times:
    """The bars of the last ``STEPS`` steps that are over."""
    found = figures_since(run, [STEP, HANDOVER, *METRICS.values()], max(0, run.step - STEPS))
    steps = {step: parts for step in sorted(found, reverse=True) if (parts := parts_of(found[step]))}
    names, count = phase_names(), len(steps)
    totals = {phase: sum(parts.get(phase, 0.0) for parts in steps.values()) for phase in ORDER}
    kept = [phase for phase in ORDER if any(phase in parts for parts in steps.values())]
    whole, longest = sum(totals.values()), max((sum(parts.values()) for parts in steps.values()), default=0.0)
    lines = [_line_of(step, parts, kept, names, longest) for step, parts in steps.items()]
    shares = [
        Share(p, names[p], percent(_whole_percent(totals[p] / whole)), duration(totals[p] / count))
        for p in kept
        if whole
    ]
    empty = [StepLine(None, "", [], []) for _place in range(places_of(run) - count)]
    each = duration(whole / count) if count else ""
    return Times(lines + empty, shares, count, each, any("waiting" in parts for parts in steps.values()))


def parts_of(figures: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase of a step that took any; they add up to the step and what came after it.

    ``timing/training`` is the rest of the step. Of a run of before ``timing/handover`` the handover of weights lies in
    it.
    """
    step = figures.get(STEP)
    parts = {phase: figures[name] for phase, name in METRICS.items() if figures.get(name, 0.0) > 0}
    if step is None and not any(phase in parts for phase in PLAYED):
        return {}  # an evaluation of held-out tasks before the first step, or a step that is not over
    if METRICS["waiting"] in figures:
        parts = {phase: seconds for phase, seconds in parts.items() if phase not in PLAYED}
    if HANDOVER in figures:
        parts = {phase: seconds for phase, seconds in parts.items() if phase != "handover"}
        if figures[HANDOVER] > 0:
            parts["handover"] = figures[HANDOVER]
    elif "handover" in parts and "training" in parts:
        parts["training"] = max(0.0, parts["training"] - parts["handover"])
    left = (step or 0.0) - sum(seconds for phase, seconds in parts.items() if phase not in AFTER)
    if step is not None and left > LEAST_OTHER * step:
        parts["other"] = left
    return parts


def _line_of(
    step: int, parts: Mapping[str, float], kept: list[str], names: Mapping[str, str], longest: float
) -> StepLine:
    total, x, pieces = sum(parts.values()), 0.0, []
    at = _("step {n}").format(n=step)
    for phase in ORDER:
        if phase not in parts:
            continue
        width = WIDTH * parts[phase] / longest
        share = percent(_whole_percent(parts[phase] / total))
        text = f"{at} · {names[phase]} {duration(parts[phase])} ({share})"
        pieces.append(Piece(phase, f"{x:.1f}", f"{width:.1f}", text))
        x += width
    return StepLine(step, duration(total), pieces, [duration(parts.get(phase)) for phase in kept])


def _whole_percent(share: float) -> float:
    """The share in whole percents: tenths would change with every step."""
    return round(share, 2)


# The family of a run: the runs that it continues, those that continue it, and the attempts and stages of each.

MOST, DEEPEST = 40, 12
FIELDS = (
    "pk",
    "name",
    "state",
    "phase",
    "step",
    "attempt",
    "parent_id",
    "resume_step",
    "health",
    "total_steps",
    "created_at",
)


class Tick(NamedTuple):
    """Where something began within a run: ``x`` in percent of the axis that all bars share."""

    x: float
    kind: str
    title: str


class Member(NamedTuple):
    """A run of the family as a bar from ``x`` on, ``width`` wide, in percent of the axis; ``depth`` counts from the
    first run, as far as pages set it apart."""

    run: Run
    depth: int
    here: bool
    began: int
    x: float
    width: float
    ticks: list[Tick]

    @property
    def steps_text(self) -> str:
        """Its steps in words."""
        if self.run.step > self.began > 0:
            return _("steps %(first)s to %(last)s") % {"first": self.began, "last": self.run.step}
        if self.began:
            return _("from step %(step)s") % {"step": self.began}
        return _("step %(step)s") % {"step": self.run.step}


class Family(NamedTuple):
    """The members, each behind its parent; ``more`` were left out. ``steps`` is the length of the axis."""

    members: list[Member]
    steps: int
    more: bool


def family_of(run: Run) -> Family | None:
    """The family of a run; ``None`` for a run that is alone, with one attempt and one stage."""
    runs, more = _family_with_depth(run)
    if len(runs) == 1 and run.attempt <= 1 and len(_recorded_stages(run)) <= 1:
        return None
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.filter(run__in=[each.pk for each, _depth in runs]).order_by("number"):
        attempts[attempt.run_id].append(attempt)
    steps = max(1, *(each.step for each, _depth in runs))
    members = [_family_member(each, depth, attempts[each.pk], steps, here=each.pk == run.pk) for each, depth in runs]
    return Family(members, steps, more)


def _family_with_depth(run: Run) -> tuple[list[tuple[Run, int]], bool]:
    """The runs of the family with their depth, each behind its parent, and whether there are more."""
    above = _runs_before(run)
    first = above[0]
    known, level, more = [first], [first], False
    for _depth in range(DEEPEST):
        rows = Run.objects.filter(parent__in=[each.pk for each in level]).only(*FIELDS).order_by("created_at")
        level = list(rows[: MOST - len(known) + 1])
        more = len(known) + len(level) > MOST
        known += level[: MOST - len(known)]
        if more or not level:
            break
    if all(each.pk != run.pk for each in known):  # then its own line alone
        return [(each, depth) for depth, each in enumerate(above)], True
    children: dict[UUID | None, list[Run]] = defaultdict(list)
    for each in known[1:]:
        children[each.parent_id].append(each)
    return _in_order(first, children, 0), more


def _runs_before(run: Run) -> list[Run]:
    """The run after those that it continues, the first one first."""
    found = [run]
    while found[0].parent_id and len(found) < DEEPEST:
        parent = Run.objects.filter(pk=found[0].parent_id).only(*FIELDS).first()
        if parent is None:
            break
        found.insert(0, parent)
    return found


def _in_order(run: Run, children: dict[UUID | None, list[Run]], depth: int) -> list[tuple[Run, int]]:
    found = [(run, depth)]
    for child in children[run.pk]:
        found += _in_order(child, children, depth + 1)
    return found


def _recorded_stages(run: Run) -> list[dict[str, object]]:
    found = run.health.get("stages", []) if isinstance(run.health, dict) else []
    return list(found)


def _family_member(run: Run, depth: int, attempts: list[Attempt], steps: int, *, here: bool) -> Member:
    began = run.resume_step or 0

    def x(step: int) -> float:
        return round(100 * step / steps, 2)

    later = [
        Tick(x(each.first_step), "attempt", _("Attempt %(n)s begins after step %(step)s") % _attempt_values(each))
        for each in attempts[1:]
    ]
    stages = [_stage_tick(each, x) for each in _recorded_stages(run)[1:]]
    return Member(run, min(depth, 6), here, began, x(began), max(x(run.step) - x(began), 0.0), [*later, *stages])


def _stage_tick(found: dict[str, object], x: Callable[[int], float]) -> Tick:
    began = int(str(found["began"]))
    title = _("Stage “%(name)s” begins after step %(step)s") % {"name": found["name"], "step": began}
    return Tick(x(began), "stage", title)


def _attempt_values(attempt: Attempt) -> dict[str, int]:
    return {"n": attempt.number, "step": attempt.first_step}


# Evaluations on held-out tasks within a run that trains: their results, and their rollouts.

SHOWN = 100
PER_PAGE = 50
FIGURES = ("success", "reward", "turns", "tokens")


class Line(NamedTuple):
    """One evaluation. ``checkpoint`` holds its weights, if they were kept."""

    step: int
    best: bool
    cells: list[Cell]
    missing: int
    checkpoint: Checkpoint | None


class HeldOut(NamedTuple):
    """A run's held-out tasks: how they were chosen, and its evaluations, newest first."""

    chosen: str
    columns: list[Column]
    lines: list[Line]


def held_out_of(run: Run, whole: Sequence[Checkpoint] | None = None) -> HeldOut | None:
    """The newest ``SHOWN`` evaluations of a run; ``None`` where nothing was held out. ``whole`` are its whole
    checkpoints where they were read before."""
    if "held_out" not in (run.health or {}):
        return None
    events = RunEvent.objects.filter(run=run).order_by("-seq")
    parts = len(run.health["held_out"].get("parts") or [""])  # each part of a mix reports its own held-out tasks
    both = events.filter(kind="held_out_evaluated")[:SHOWN].union(
        events.filter(kind="tasks_held_out")[:parts], all=True
    )
    chosen, newest = list[RunEvent](), dict[int, RunEvent]()
    for event in both.order_by("-seq"):
        if event.kind == "tasks_held_out":
            chosen.insert(0, event)
        else:
            newest.setdefault(event.payload["step"], event)
    reports = {step: Report.model_validate(event.payload["report"]) for step, event in newest.items()}
    known = {column.name: column for column in known_columns(1)}
    columns = [known[name] for name in FIGURES if any(name in report.figures for report in reports.values())]
    points = whole_checkpoints(run) if whole is None else whole
    kept = {item.step: item for item in reversed(points) if not item.final}
    best = (run.health["held_out"].get("best") or {}).get("step")
    lines = [
        Line(
            step,
            step == best,
            [cell(column, interval_of(reports[step], column.name)) for column in columns],
            reports[step].excluded,
            kept.get(step),
        )
        for step in sorted(newest, reverse=True)
    ]
    text = " ".join(event_text({"kind": event.kind, "payload": event.payload}) for event in chosen)
    return HeldOut(text, columns, lines)


@login_required
@require_GET
def run_held_out(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The card of the run page, loaded again when another evaluation has ended."""
    project, run = own_run(request, slug, pk)
    return render(request, "runs/_held_out.html", {"project": project, "run": run, "held_out": held_out_of(run)})


@login_required
@require_GET
def run_held_out_step(request: HttpRequest, slug: str, pk: UUID, step: int) -> HttpResponse:
    """The rollouts of one evaluation: those that fail first, then those that have no verdict."""
    project, run = own_run(request, slug, pk)
    if step > 2**31 - 1:
        raise Http404
    found = _held_out_rollouts(run, step)
    attempt = found.order_by("-attempt").values_list("attempt", flat=True).first()
    if attempt is None:
        raise Http404
    order = Case(*(When(outcome=outcome, then=place) for place, outcome in enumerate(Outcome)))
    page = Paginator(found.filter(attempt=attempt).order_by(order, "row", "index"), PER_PAGE)
    shown = held_out_of(run)
    line = next((each for each in shown.lines if each.step == step), None) if shown else None
    context = {
        "project": project,
        "run": run,
        "step": step,
        "columns": shown.columns if shown else [],
        "line": line,
        "page": page.get_page(page_number(request.GET.get("page"))),
    }
    return render(request, "runs/held_out.html", context)


def _held_out_rollouts(run: Run, step: int) -> QuerySet[Rollout]:
    return Rollout.objects.filter(run=run, step=step, held_out=True)
