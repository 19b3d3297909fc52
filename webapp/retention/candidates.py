"""What a project's rules may remove: of each kind the ended runs that have some, and what keeps some of them.

A run is kept while something refers to it (``WHY``). Of a run from which a model is registered the other checkpoints
may go; a checkpoint that an advisory kept stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, CharField, Count, Exists, Model, OuterRef, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from training.config import kind_in, name_in
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.suites.models import SuiteRun
from webapp.evaluation.votes.models import RoundContestant
from webapp.people.teams.models import Project
from webapp.retention.rules import Rule
from webapp.runs.models import Run, RunStar
from webapp.runs.pins.models import PinnedChart
from webapp.runs.registry.models import Checkpoint, CheckpointState, RegisteredModel
from webapp.runs.registry.selectors import run_in
from webapp.runs.removal.models import Kept
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import TERMINAL

GIB = 2**30
MONTH = timedelta(days=30)
REGISTERED, COMPARED, AWAITED = "registered", "compared", "awaited"
WHY = {
    "starred": _("a person starred it"),
    "pinned": _("a chart of it is pinned to the project's page"),
    COMPARED: _("a saved comparison shows it"),
    "voted": _("people vote on it"),
    "suite": _("it is in a suite's evaluations"),
    "continued": _("a rollout of it was continued by hand"),
    "played on": _("a rollout of it was continued by a run"),
    "viewed": _("a view of its rollouts is saved"),
    AWAITED: _("a run that has not ended needs it"),
    REGISTERED: _("a model is registered from it"),
}
"""What keeps a run. The last counts only where no other holds: it leaves the run's other checkpoints free."""


class Item(NamedTuple):
    """What one ended run has of a kind, in bytes, and turns, files or checkpoints where they are counted."""

    run: UUID
    name: str
    ended_at: datetime
    bytes: int
    number: int
    kept: str = ""


class Forecast(NamedTuple):
    """What a rule removes of a kind: now, and within 30 days more than that, at the rate of the last 30 days."""

    now: list[Item]
    later_bytes: int
    aging: int
    recent: int
    recent_bytes: int

    @property
    def now_bytes(self) -> int:
        """The bytes that would be freed now."""
        return sum(item.bytes for item in self.now)


def items_of(project: Project, *, run: UUID | None = None) -> dict[Kept, list[Item]]:
    """What the ended runs of a project have of each kind, those that ended first first; of one run alone if given."""
    found: dict[Kept, list[Item]] = {kind: [] for kind in Kept}
    compared, (names, ids) = _compared(project), _awaited(project)
    fields = ("pk", "name", "ended_at", "why", "stored__words", "stored__tokens", "stored__logs", "stored__turns")
    ended = {}
    rows = _ended(project, run).order_by("ended_at", "pk")
    for pk, name, at, why, words, tokens, logs, turns in rows.values_list(*fields):
        if why in ("", REGISTERED):
            why = COMPARED if str(pk) in compared else AWAITED if name in names or pk in ids else why
        ended[pk] = (name, at, why)
        sizes = {Kept.WORDS: (words or 0) + (tokens or 0), Kept.TOKENS: tokens or 0, Kept.LOGS: logs or 0}
        for kind, size in sizes.items():
            if size:
                found[kind].append(Item(pk, name, at, size, turns if kind == Kept.WORDS else 0, why))
    for pk, size, number in _checkpoints(project, run).values_list("run", "size", "number"):
        if pk in ended:
            name, at, kept = ended[pk]
            found[Kept.CHECKPOINTS].append(Item(pk, name, at, size, number, "" if kept == REGISTERED else kept))
    found[Kept.CHECKPOINTS].sort(key=lambda item: (item.ended_at, item.run))
    return found


def due(items: Sequence[Item], rule: Rule, now: datetime) -> list[tuple[Item, str]]:
    """What a rule removes now, those that ended first first, each with the limit that it reached: age or size.

    A run's end may be exactly as old as the limit; a sum may be exactly as large.
    """
    free = [item for item in items if not item.kept]
    found = []
    if rule.days is not None:
        old = [item for item in free if item.ended_at <= now - timedelta(days=rule.days)]
        found += [(item, "age") for item in old]
        free = free[len(old) :]
    if rule.gib is not None:
        left = sum(item.bytes for item in free)
        for item in free:
            if left <= rule.gib * GIB:
                break
            left -= item.bytes
            found.append((item, "size"))
    return found


def forecast_of(items: Sequence[Item], rule: Rule, now: datetime) -> Forecast:
    """What a rule removes now and within 30 days.

    What will have reached the age is known. What runs leave within 30 days is taken to be as much as those left that
    ended in the last 30; it takes part in the size, and in the age where that is shorter than 30 days.
    """
    gone = [item for item, _by in due(items, rule, now)]
    rest = [item for item in items if not item.kept][len(gone) :]
    recent = [item for item in items if not item.kept and item.ended_at > now - MONTH]
    growth = sum(item.bytes for item in recent)
    aged, grown_old = [], 0
    if rule.days is not None:
        aged = [item for item in rest if item.ended_at <= now + MONTH - timedelta(days=rule.days)]
        grown_old = round(growth * max(0, MONTH.days - rule.days) / MONTH.days)
    later = sum(item.bytes for item in aged) + grown_old
    if rule.gib is not None:
        later += max(0, sum(item.bytes for item in rest) + growth - later - rule.gib * GIB)
    return Forecast(gone, later if rule.limits else 0, len(aged), len(recent), growth)


def checkpoints_free(project: Project, run: UUID | None = None) -> QuerySet[Checkpoint]:
    """The whole checkpoints of ended runs that no model is registered from and no advisory kept."""
    rows = Checkpoint.objects.filter(project=project, state=CheckpointState.WHOLE, run__state__in=TERMINAL)
    rows = rows.filter(models=None, kept_for=None)
    return rows if run is None else rows.filter(run=run)


def _checkpoints(project: Project, run: UUID | None) -> QuerySet[Any]:
    rows = checkpoints_free(project, run).order_by().values("run")
    return rows.annotate(size=Sum("bytes"), number=Count("pk"))


def _ended(project: Project, run: UUID | None) -> QuerySet[Any]:
    rows = Run.objects.filter(project=project, state__in=TERMINAL)
    rows = rows if run is None else rows.filter(pk=run)
    return rows.annotate(ended_at=Coalesce("finished_at", "created_at"), why=_why())


def _why() -> Case:
    """The first reason of ``WHY`` that rows of others give; ``_compared`` and ``_awaited`` have those in JSON."""
    this, rollouts = OuterRef("pk"), OuterRef("pk")
    reasons = {
        "starred": RunStar.objects.filter(run=this),
        "pinned": PinnedChart.objects.filter(run=this),
        "voted": RoundContestant.objects.filter(run=this),
        "suite": SuiteRun.objects.filter(run=this),
        # These rooms lie above this one, so their rows are reached by the relation.
        "continued": _related(Rollout, "branches").filter(rollout__run=rollouts),
        "played on": _related(Rollout, "continuations").filter(rollout__run=rollouts),
        "viewed": _related(Run, "rollout_views").filter(run=this),
        REGISTERED: RegisteredModel.objects.filter(checkpoint__run=this),
    }
    return Case(
        *(When(Exists(rows), then=Value(name)) for name, rows in reasons.items()),
        default=Value(""),
        output_field=CharField(),
    )


def _related(model: type[Model], relation: str) -> QuerySet[Any]:
    return model._meta.get_field(relation).related_model._base_manager.all()  # type: ignore[union-attr,return-value]


def _awaited(project: Project) -> tuple[set[str], set[UUID | None]]:
    """The runs that open runs of the project need: the names that their configs give, and the ids of those that they
    wait for, continue, or start from."""
    rows = Run.objects.filter(project=project).exclude(state__in=TERMINAL)
    fields = ("config__model__source", "resolved__model__source", "after", "parent", "resume_checkpoint__run")
    names, ids = set(), set[UUID | None]()
    for wanted, resolved, *others in rows.values_list(*fields):
        if kind_in(wanted or "") == "run":
            names.add(name_in("run", wanted))
        ids.update(others, [run_in(resolved or "")])
    return names, ids


def _compared(project: Project) -> set[str]:
    """The ids of the runs that saved comparisons show."""
    rows = SavedComparison.objects.filter(project=project).values_list("contestants", flat=True)
    return {str(item["id"]) for contestants in rows for item in contestants}
