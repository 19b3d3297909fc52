"""The page of workers."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import NamedTuple, cast

from django.contrib.auth.decorators import login_required
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET

from webapp.common.workers.models import GONE_AFTER, Worker
from webapp.engine.resuming import fault_text
from webapp.people.teams.access import projects_of
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import LEASED
from webapp.site.home.health import clock_age, is_late
from webapp.site.home.places import all_loads

# --- Workers --------------------------------------------------------------------------------------------------------
# Reading workers.

PROBLEMS = {
    "no_identity": gettext_noop("Its data folder has no identity, so it is not this installation's folder."),
    "other_identity": gettext_noop("Its data folder belongs to another installation."),
}


class RunAtWork(NamedTuple):
    """A run that a worker has. It is named only to those who may open it, and to administrators."""

    name: str
    url_args: tuple[str, str] | None


class WorkerLine(NamedTuple):
    """One worker as a reader may see it."""

    worker: Worker
    gone: bool
    age: timedelta
    problem: str
    runs: list[RunAtWork]


def worker_lines(user: User) -> list[WorkerLine]:
    """All workers, those that live first."""
    age = ExpressionWrapper(Now() - F("beat_at"), output_field=DurationField())
    rows = list(Worker.objects.annotate(age=age))
    runs = _runs_at_work(user)
    lines = [_worker_line(worker, runs[worker.name]) for worker in rows]
    return sorted(lines, key=lambda line: (line.gone, line.worker.name))


def _runs_at_work(user: User) -> dict[str, list[RunAtWork]]:
    """Runs by the name of the worker that has their lease, in the order in which they began."""
    mine, found = {project.pk for project in projects_of(user)}, defaultdict(list)
    at_work = Run.objects.filter(state__in=LEASED).exclude(lease_worker="").select_related("project")
    for run in at_work.order_by("lease_started_at"):
        own = run.project_id in mine
        address = (run.project.slug, str(run.pk)) if own else None
        found[run.lease_worker].append(RunAtWork(run.name if own or user.is_superuser else "", address))
    return found


def _worker_line(worker: Worker, runs: list[RunAtWork]) -> WorkerLine:
    age: timedelta = worker.age  # type: ignore[attr-defined]
    problem = _(PROBLEMS[worker.problem]) if worker.problem in PROBLEMS else worker.problem
    return WorkerLine(worker, age > GONE_AFTER, age, problem, runs)


@login_required
@require_GET
def worker_list(request: HttpRequest) -> HttpResponse:
    """The workers: members see names and states, administrators also machines, processes and versions."""
    user = cast(User, request.user)
    age_s = clock_age()
    shown = {"lines": worker_lines(user), "all": user.is_superuser, "loads": all_loads(), "disk_fault": fault_text()}
    return render(request, "workers/list.html", shown | {"clock_age_s": age_s, "clock_late": is_late(age_s)})
