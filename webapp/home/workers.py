"""Reading workers."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from webapp.runs.states import LEASED
from webapp.teams.access import projects_of
from webapp.teams.models import User
from webapp.workers.models import GONE_AFTER, Worker

PROBLEMS = {
    "no_identity": gettext_noop("Its data folder carries no identity, so it is not this installation's folder."),
    "other_identity": gettext_noop("Its data folder belongs to another installation."),
}


def gpu_known() -> bool | None:
    """Whether a living worker that trains sees a GPU; ``None`` while no such worker is known."""
    rows = Worker.objects.filter(queues__contains=["train"], beat_at__gt=Now() - GONE_AFTER)
    devices = list(rows.values_list("device", flat=True))
    return any(device.startswith("GPU") for device in devices) if devices else None


class WorkerLine(NamedTuple):
    """One worker as a reader may see it: the run is named only to those who may open it, and to administrators."""

    worker: Worker
    gone: bool
    age: timedelta
    problem: str
    run_name: str
    run_url_args: tuple[str, str] | None
    busy: bool


def worker_lines(user: User) -> list[WorkerLine]:
    """All workers, those that live first."""
    age = ExpressionWrapper(Now() - F("beat_at"), output_field=DurationField())
    rows = Worker.objects.select_related("run__project").annotate(age=age)
    mine = {project.pk for project in projects_of(user)}
    lines = [_line(worker, user, mine) for worker in rows]
    return sorted(lines, key=lambda line: (line.gone, line.worker.name))


def _line(worker: Worker, user: User, mine: set[UUID]) -> WorkerLine:
    age: timedelta = worker.age  # type: ignore[attr-defined]
    run = worker.run if worker.run is not None and worker.run.state in LEASED else None
    own = run is not None and run.project.pk in mine
    name = run.name if run is not None and (own or user.is_superuser) else ""
    address = (run.project.slug, str(run.pk)) if run is not None and own else None
    problem = _(PROBLEMS[worker.problem]) if worker.problem in PROBLEMS else worker.problem
    return WorkerLine(worker, age > GONE_AFTER, age, problem, name, address, run is not None)
