"""Evaluations on held-out tasks within a run that trains: their results, and their rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Case, QuerySet, When
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from training.evaluation.recorded import Report
from webapp.common.pages import page_number
from webapp.common.words import Outcome
from webapp.engine.resuming import whole_checkpoints
from webapp.evaluation.comparison.boards import interval_of
from webapp.evaluation.comparison.figures import Cell, Column, cell, known_columns
from webapp.runs.models import Run, RunEvent
from webapp.runs.records.reports import event_text
from webapp.runs.records.selectors import own_run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout

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
    told = RunEvent.objects.filter(run=run).order_by("-seq")
    parts = len(run.health["held_out"].get("parts") or [""])  # each part of a mix reports its own held-out tasks
    both = told.filter(kind="held_out_evaluated")[:SHOWN].union(told.filter(kind="tasks_held_out")[:parts], all=True)
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
