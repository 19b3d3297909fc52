"""Reading runs: one view for pages, API and sockets, and the changes after a ``seq``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from django.conf import settings
from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest, Now

from training.config import Kind
from webapp.failures import Failure, failure
from webapp.metrics import selectors as metrics
from webapp.metrics.models import MetricPoint
from webapp.records.reports import held_text
from webapp.registry.models import Checkpoint
from webapp.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.rollouts.selectors import group_view, rollout_view, turn_view
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import AT_WORK, LEASED, TERMINAL, RunState
from webapp.teams.models import Project
from webapp.text import finite

Rows = dict[str, list[dict[str, Any]]]
PAGE_MAX = 200
KINDS = frozenset(get_args(Kind))
KEYS = ("points", "rollouts", "turns", "groups", "events", "checkpoints")


def runs_with_ages() -> QuerySet[Run]:
    """Runs with what ``run_view`` needs, in one query; ages are by the database's clock."""
    return Run.objects.select_related("after").annotate(
        beat_age=ExpressionWrapper(Now() - F("lease_beat_at"), output_field=DurationField()),
        # Greatest passes over nulls: an attempt that has not said a word yet counts from its beginning.
        progress_age=ExpressionWrapper(
            Now() - Greatest("last_event_at", "lease_started_at"), output_field=DurationField()
        ),
        read_at=Now(),
    )


def run_read(run_id: UUID) -> Run | None:
    """The run as it stands, for those who were authorised before."""
    return runs_with_ages().filter(pk=run_id).first()


def run_view(run: Run) -> dict[str, Any]:
    """RunView of docs/live.md."""
    if not hasattr(run, "beat_age"):
        run = runs_with_ages().get(pk=run.pk)
    state, before = RunState(run.state), run.after
    return {
        "id": str(run.pk),
        "name": run.name,
        "kind": run.kind,
        "state": run.state,
        "phase": run.phase,
        "step": run.step,
        "total_steps": run.total_steps,
        "attempt": run.attempt,
        "last_reward": finite(run.last_reward),
        "seq": run.seq,
        "queued_at": _iso(run.queued_at),
        "started_at": _iso(run.started_at),
        "finished_at": _iso(run.finished_at),
        "step_seconds": finite(run.step_seconds),
        "eta_seconds": _eta(run),
        "error": run.error,
        "held": run.held,
        "health": run.health,
        "beat_age_seconds": _seconds(run, "beat_age") if state in LEASED else None,
        "progress_age_seconds": _seconds(run, "progress_age") if state in AT_WORK else None,
        "waiting_for": before.name if before and state == RunState.QUEUED and before.state != "succeeded" else None,
    }


def _seconds(run: Run, name: str) -> float | None:
    """One of the ages of ``runs_with_ages``."""
    age: timedelta | None = getattr(run, name, None)
    return age.total_seconds() if age is not None else None


def stalled(view: Mapping[str, Any]) -> bool:
    """Whether the trainer of this RunView has been silent for too long."""
    age = view["progress_age_seconds"]
    return age is not None and age >= settings.STALL_AFTER_S


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _eta(run: Run) -> float | None:
    if run.state != RunState.RUNNING or run.step_seconds is None:
        return None
    return finite(max(run.total_steps - run.step, 0) * run.step_seconds)


def event_view(event: RunEvent) -> dict[str, Any]:
    """EventView of docs/live.md."""
    return {
        "seq": event.seq,
        "attempt": event.attempt,
        "kind": event.kind,
        "payload": event.payload,
        "at": event.at.isoformat(),
    }


def checkpoint_view(checkpoint: Checkpoint) -> dict[str, Any]:
    """CheckpointView of docs/live.md."""
    return {
        "id": str(checkpoint.pk),
        "attempt": checkpoint.attempt,
        "step": checkpoint.step,
        "path": checkpoint.path,
        "bytes": checkpoint.bytes,
        "final": checkpoint.final,
        "state": checkpoint.state,
        "created_at": checkpoint.created_at.isoformat(),
        "seq": checkpoint.seq,
    }


def point_view(point: MetricPoint) -> dict[str, Any]:
    """PointView of docs/live.md."""
    return {"attempt": point.attempt, "step": point.step, "name": point.name, "value": metrics.rounded(point.value)}


_SOURCES: tuple[tuple[str, type[Any], Callable[[Any], dict[str, Any]]], ...] = (
    ("points", MetricPoint, point_view),
    ("rollouts", Rollout, rollout_view),
    ("turns", Turn, turn_view),
    ("groups", RolloutGroup, group_view),
    ("events", RunEvent, event_view),
    ("checkpoints", Checkpoint, checkpoint_view),
)


LEFT_OUT: dict[type[Any], dict[str, bool]] = {Rollout: {"held_out": True}, Turn: {"rollout__held_out": True}}
"""The live view shows what is learned from; evaluations in between have a page of their own."""


@dataclass
class Changes:
    """What is new after a ``seq``, up to ``seq``; ``more`` when the limit cut it off there."""

    run: Run
    seq: int
    rows: Rows = field(default_factory=dict)
    more: bool = False


def run_changes_after(run: Run, seq: int, limit: int = 2000) -> Changes:
    """The rows of ``run`` that changed after ``seq``, at most about ``limit`` of each kind.

    ``run`` was read first, so everything up to ``run.seq`` is committed. A row that changes while we read gets a number
    above
    ``run.seq`` and is left to the next call. If a kind has more than ``limit`` rows, all kinds are cut at its last one,
    so that the returned ``seq`` is a place to go on from.
    """
    found: dict[str, list[Any]] = {}
    upto = run.seq
    for key, model, _view in _SOURCES:
        new = model.objects.filter(run_id=run.pk, seq__gt=seq, seq__lte=run.seq).exclude(**LEFT_OUT.get(model, {}))
        rows = list(new.order_by("seq")[: limit + 1])
        if len(rows) > limit:
            upto = min(upto, rows[limit - 1].seq)
        found[key] = rows
    shown = {key: [view(row) for row in found[key] if row.seq <= upto] for key, _model, view in _SOURCES}
    return Changes(run, upto, shown, more=upto < run.seq)


# --- The list -------------------------------------------------------------------------------------------------------
SORTS: dict[str, Any] = {
    "created": F("created_at"),
    "name": F("name"),
    "state": F("state"),
    "step": F("step"),
    "reward": F("last_reward"),
    "duration": ExpressionWrapper(Coalesce("finished_at", Now()) - F("started_at"), output_field=DurationField()),
}


@dataclass(frozen=True)
class RunRow:
    """One line of the list of runs."""

    run: Run
    view: dict[str, Any]
    owner: str
    duration_seconds: float | None
    sparkline: list[float | None]
    failure: Failure | None
    stalled: bool
    held: str


@dataclass(frozen=True)
class RunPage:
    """One page of the list, and how many runs there are on all."""

    rows: list[RunRow]
    total: int
    page: int
    pages: int


def run_list(
    project: Project,
    filters: Mapping[str, str] | None = None,
    sort: str = "-created",
    page: int = 1,
    per_page: int = 50,
) -> RunPage:
    """A page of the project's runs, in a constant number of queries.

    ``filters`` knows ``state`` (a state, or ``active``), ``kind``, ``owner`` (user name) and ``q`` (part of the name);
    ``sort`` is a key of ``SORTS``, with ``-`` for the highest first. Unknown ones are ignored.
    """
    rows = _filtered(runs_with_ages().filter(project=project).select_related("after", "created_by"), filters or {})
    total = rows.count()
    per_page = max(1, min(per_page, PAGE_MAX))
    pages = max(1, -(-total // per_page))
    page = max(1, min(page, pages))
    key, down = sort.removeprefix("-"), sort.startswith("-")
    by = SORTS.get(key, SORTS["created"])
    order = by.desc(nulls_last=True) if down or key not in SORTS else by.asc(nulls_last=True)
    found = list(rows.order_by(order, "-created_at", "pk")[(page - 1) * per_page : page * per_page])
    lines = metrics.sparklines(run.pk for run in found)
    return RunPage([_row(run, lines.get(run.pk, [])) for run in found], total, page, pages)


def _filtered(rows: QuerySet[Run], filters: Mapping[str, str]) -> QuerySet[Run]:
    state, kind, owner, text = (str(filters.get(key) or "")[:80] for key in ("state", "kind", "owner", "q"))
    if state == "active":
        rows = rows.exclude(state__in=TERMINAL).exclude(state=RunState.DRAFT, phase="")
    elif state in RunState.values:
        rows = rows.filter(state=state)
    if kind in KINDS:
        rows = rows.filter(kind=kind)
    if owner:
        rows = rows.filter(created_by__username=owner.replace("\x00", ""))
    return rows.filter(Q(name__icontains=text.replace("\x00", ""))) if text else rows


def _row(run: Run, line: list[float | None]) -> RunRow:
    end = run.finished_at or getattr(run, "read_at", None)
    seconds = (end - run.started_at).total_seconds() if run.started_at and end else None
    owner = run.created_by.get_username() if run.created_by else ""
    view = run_view(run)
    return RunRow(
        run, view, owner, seconds, line, failure(view["error"]), stalled(view), held_text(run.held, short=True)
    )
