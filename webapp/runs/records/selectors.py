"""Reading runs: rows for pages, API and sockets, and the changes after a ``seq``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Count, DurationField, Exists, ExpressionWrapper, F, OuterRef, QuerySet, Sum
from django.db.models.functions import Greatest, Now
from django.http import HttpRequest

from webapp.people.teams.access import own
from webapp.people.teams.models import Project, Role, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import curves
from webapp.runs.models import Run, RunEvent, RunStar
from webapp.runs.numbering import by_number, changed, changed_sql
from webapp.runs.registry.models import Checkpoint
from webapp.runs.removal.models import Expiry
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.runs.states import TERMINAL

Rows = dict[str, list[Any]]


def runs_with_ages() -> QuerySet[Run]:
    """Runs with their ages and those that they wait for, in one query."""
    return with_ages(Run.objects.select_related("after"))


def with_ages(runs: QuerySet[Run]) -> QuerySet[Run]:
    """The runs with their ages, by the database's clock."""
    return runs.annotate(
        beat_age=ExpressionWrapper(Now() - F("lease_beat_at"), output_field=DurationField()),
        # Greatest passes over nulls: an attempt that has not reported anything yet counts from its beginning.
        progress_age=ExpressionWrapper(
            Now() - Greatest("last_event_at", "lease_started_at"), output_field=DurationField()
        ),
        read_at=Now(),
    )


def run_read(run_id: UUID) -> Run | None:
    """The run as it is now. The caller has checked the reader's rights."""
    try:
        return runs_with_ages().get(pk=run_id)  # first() would order by a key that one row has
    except Run.DoesNotExist:
        return None


def aged(run: Run) -> Run:
    """The run with its ages, which is read again where it was read without them."""
    return run if hasattr(run, "beat_age") else runs_with_ages().select_related("project").get(pk=run.pk)


def stalled(run: Run) -> bool:
    """Whether the trainer of a run with its ages has been silent for too long."""
    age = run.progress_age_seconds
    return age is not None and age >= settings.STALL_AFTER_S


def run_events_after(run: Run, after: int, limit: int) -> dict[str, Any]:
    """Up to ``limit`` events of a run after a ``seq``, and the ``seq`` to continue after. ``ended``: no more follow,
    unless the run is resumed."""
    after = max(-1, min(after, run.seq))  # a number that the run has not reached, or not any more, cannot be waited for
    rows = list(RunEvent.objects.filter(run=run, seq__gt=after, seq__lte=run.seq).order_by("seq")[: limit + 1])
    more = len(rows) > limit
    return {
        "items": rows[:limit],
        "seq": run.seq,
        "more": more,
        "after": rows[limit - 1].seq if more else run.seq,
        "ended": not more and run.state in TERMINAL,
        "run": run,
    }


_MODELS: dict[str, type[Any]] = {
    "points": MetricPoint,
    "rollouts": Rollout,
    "turns": Turn,
    "groups": RolloutGroup,
    "events": RunEvent,
    "checkpoints": Checkpoint,
}


LEFT_OUT: dict[type[Any], dict[str, bool]] = {Rollout: {"held_out": True}, Turn: {"rollout__held_out": True}}
"""The live view shows what is learned from; evaluations in between have a page of their own."""


_NEW = "SELECT " + ", ".join(  # noqa: S608 - names of our own tables
    f"EXISTS (SELECT FROM {model._meta.db_table} WHERE {changed_sql(model)})" for model in _MODELS.values()
)


def _kinds_after(run: Run, seq: int) -> set[str]:
    """Which kinds of rows are newer than ``seq``: mostly one or two, and the others need not be asked for."""
    with connection.cursor() as cursor:
        cursor.execute(_NEW, {"run": run.pk, "after": seq, "upto": run.seq})
        return {key for key, new in zip(_MODELS, cursor.fetchone(), strict=True) if new}


@dataclass
class Changes:
    """The changes after a ``seq``, up to ``seq``; ``more`` when the limit cut it off there."""

    run: Run
    seq: int
    rows: Rows = field(default_factory=dict)
    more: bool = False


def run_changes_after(run: Run, seq: int, limit: int = 2000) -> Changes:
    """The rows of ``run`` that changed after ``seq``, at most about ``limit`` of each kind.

    ``run`` was read first, so everything up to ``run.seq`` is committed. A row that changes while we read gets a number
    above ``run.seq`` and is left to the next call. If a kind has more than ``limit`` rows, all kinds are cut at its
    last one, so that the next call can continue after the returned ``seq``.
    """
    found: dict[str, list[Any]] = {key: [] for key in _MODELS}
    upto, kinds = run.seq, _kinds_after(run, seq)
    for key, model in _MODELS.items():
        if key not in kinds:
            continue
        new = changed(model.objects.filter(run_id=run.pk), seq, run.seq).exclude(**LEFT_OUT.get(model, {}))
        rows = list(by_number(new)[: limit + 1])
        if len(rows) > limit:
            upto = min(upto, rows[limit - 1].seq)
        found[key] = rows
    kept = {key: [row for row in rows if row.seq <= upto] for key, rows in found.items()}
    return Changes(run, upto, kept, more=upto < run.seq)


# The run of an address, if the person may see it.


def own_run(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Run]:
    """A run of the project, if the person may see it."""

    def within(project: Project) -> QuerySet[Run]:
        rows = runs_with_ages().filter(project=project)
        rows = rows.select_related("project", "after", "parent", "created_by", "examination")
        rows = rows.defer("examination__memory")  # which has 230 KB after 20,000 steps
        stars = RunStar.objects.filter(run=OuterRef("pk"), user=cast(User, request.user))
        sweep = {"sweep_id": F("sweep_run__sweep"), "sweep_name": F("sweep_run__sweep__name")}
        expired = Exists(Expiry.objects.filter(run=OuterRef("pk")))
        return rows.annotate(starred=Exists(stars), expired=expired, **sweep)

    return own(request, slug, Run, pk, need=need, within=within)


# Hours, rollouts and tokens that a run had used at the end of each step, for axes other than steps.

STEP_TIME = "timing/step"
KNOTS = 400  # of an axis on a screen; between them it is straight
Axes = dict[str, dict[str, list[Any]]]
"""``{time, rollouts, tokens}``, each ``{steps, at}``; those that the run does not know are left out."""


def run_axes(run: Run) -> Axes:
    """The axes of one run, of at most ``KNOTS`` steps each."""
    found = axes(curves(run, [STEP_TIME], 2**31).get(STEP_TIME, {}), played([run.pk]).get(run.pk, []))
    return {name: {part: _evenly_spaced(values) for part, values in axis.items()} for name, axis in found.items()}


def played(runs: Iterable[UUID]) -> dict[UUID, list[tuple[int, int, int]]]:
    """Of each run its steps, with how many rollouts and tokens each had; what was held out teaches nothing."""
    rows = Rollout.objects.filter(run__in=list(runs), held_out=False)
    found: dict[UUID, list[tuple[int, int, int]]] = {}
    for pk, step, count, tokens in (
        rows.values_list("run", "step").annotate(Count("pk"), Sum("tokens")).order_by("step")
    ):
        found.setdefault(pk, []).append((step, count, tokens or 0))
    return found


def axes(spent: dict[str, Any], steps_played: Sequence[tuple[int, int, int]]) -> Axes:
    """The axes of a run from the whole curve of its steps' seconds, and its steps with their rollouts and tokens."""
    seconds = [value or 0.0 for value in spent.get("values", [])]
    found = {"time": {"steps": spent.get("steps", []), "at": [value / 3600 for value in accumulate(seconds)]}}
    steps = [step for step, _count, _tokens in steps_played]
    found["rollouts"] = {"steps": steps, "at": list(accumulate(float(count) for _step, count, _tokens in steps_played))}
    found["tokens"] = {"steps": steps, "at": list(accumulate(float(tokens) for _step, _count, tokens in steps_played))}
    return {name: axis for name, axis in found.items() if axis["steps"]}


def _evenly_spaced(values: list[Any]) -> list[Any]:
    if len(values) <= KNOTS:
        return values
    return [values[place * (len(values) - 1) // (KNOTS - 1)] for place in range(KNOTS)]
