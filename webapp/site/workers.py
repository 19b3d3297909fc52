"""The page of workers, how full their places are, and the health of the installation."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Count, DurationField, ExpressionWrapper, F, Min, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from training.machine import write_refusal
from webapp.chat.holder import holders
from webapp.chat.models import Answer, AnswerState
from webapp.common.broker import redis_problem
from webapp.common.database import rows_of
from webapp.common.errors import DATABASE_AWAY
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.text import duration, percent
from webapp.common.work import Load, loads
from webapp.common.workers.beating import living
from webapp.common.workers.models import GONE_AFTER, Drain, Worker, host_of
from webapp.engine.draining import drain_change
from webapp.engine.models import ReaperMark
from webapp.engine.services import fault_text
from webapp.people.teams.access import administrator, projects_of
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.records.order import can_start
from webapp.runs.states import LEASED

POOLS = (TRAIN, ENDPOINT)


def all_loads() -> list[Load]:
    """The load of every pool. Runs that wait for another run do not count: a place would not help them."""
    at_work = [ages_by_pool(_runs_at_work_by_pool), ages_by_pool(_chats_by_pool)]
    waiting = [ages_by_pool(startable_by_pool), ages_by_pool(_answers_by_pool)]
    return [*(_load_of(pool, at_work, waiting) for pool in POOLS), *loads()]


Ages = dict[str, tuple[int, float | None]]


def by_pool(rows: QuerySet[Any], since: Any) -> QuerySet[Any, Any]:
    """The pool, the count and the age of the first of these rows, by the database's clock."""
    return rows.order_by().values_list("pool").annotate(n=Count("pk"), age=Now() - Min(since))


def ages_by_pool(question: Callable[[], QuerySet[Any, Any]]) -> Ages:
    """The count and the age in seconds of the first row of each pool, of a question ``by_pool``."""
    return {pool: (count, seconds(age)) for pool, count, age in rows_of(question)}


def seconds(age: timedelta | None) -> float | None:
    """An age in seconds: the start of a row may be newer than the question by a moment."""
    return None if age is None else max(0.0, age.total_seconds())


def _runs_at_work_by_pool() -> QuerySet[Any, Any]:
    return by_pool(Run.objects.filter(state__in=LEASED, imported=False), "lease_started_at")


def _chats_by_pool() -> QuerySet[Any, Any]:
    return by_pool(holders(*POOLS), "heard_at")


def startable_by_pool() -> QuerySet[Any, Any]:
    """Runs that only wait for a place."""
    return by_pool(can_start(*POOLS), "queued_at")


def _answers_by_pool() -> QuerySet[Any, Any]:
    return by_pool(Answer.objects.filter(state=AnswerState.WAITING, token=""), "created_at")


def _places(pool: str) -> QuerySet[Any, Any]:
    return living(pool).order_by().values_list("places")


def _load_of(pool: str, at_work: list[Ages], waiting: list[Ages]) -> Load:
    """The load of a pool. Places are those of living workers."""
    places = sum(places for (places,) in rows_of(_places, pool))
    busy = sum(each[pool][0] for each in at_work if pool in each)
    found = [each[pool] for each in waiting if pool in each]
    waits = (age_s for _count, age_s in found if age_s is not None)
    return Load(pool, places, busy, sum(count for count, _age in found), max(waits, default=None))


# Is this installation well? For load balancers and monitors, which have no login: they show no name, no address,
# and no counts but those of waiting work.

# The age of the clockwork's last look at leases, which it notes itself.

LATE_S = 30.0
"""The clockwork looks every five seconds; a busy machine delays it by some."""


def clock_age() -> float | None:
    """Seconds since it looked for expired leases; ``None`` where it never did."""
    found = ReaperMark.objects.order_by().values_list(Now() - F("ran_at"), flat=True).first()
    return max(0.0, found.total_seconds()) if found is not None else None


def is_late(age_s: float | None) -> bool:
    """Whether the clockwork is so late that runs of lost workers are not given back."""
    return age_s is None or age_s > LATE_S


KEPT_S = 1.0
"""For how many seconds an answer is reused."""
logger = logging.getLogger(__name__)
BROKER_S = 2.0


@never_cache
@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200: this process works; nothing else is checked."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker, clockwork and the data folder's disk: 200 while all of them work, else 503, and how full the
    pools of workers are."""
    found = cache.get("readyz")
    if found is None:
        found = _read_health()
        cache.set("readyz", found, KEPT_S)
    return JsonResponse(found, status=200 if found["ok"] else 503)


def _read_health() -> dict[str, Any]:
    disk = write_refusal(Path(settings.DATA_DIR)) is None
    try:
        age_s, pools = clock_age(), [asdict(load) for load in all_loads()]
    except DATABASE_AWAY:
        connection.close()
        away = {"ok": False, "database": False, "broker": _broker_answers(), "disk": disk}
        return away | {"clock_age_seconds": None, "pools": []}
    broker = _broker_answers()
    well = broker and disk and not is_late(age_s)
    found = {"ok": well, "database": True, "broker": broker, "disk": disk}
    return found | {"clock_age_seconds": age_s, "pools": pools}


def _broker_answers() -> bool:
    problem = redis_problem(settings.CELERY_BROKER_URL, BROKER_S)
    if problem:
        logger.warning("broker away", extra={"action": "health", "error": problem})
    return not problem


# The page of workers.


class ProblemWords(NamedTuple):
    """Why a worker claims nothing, and what an administrator does about it."""

    sentence: str
    hint: str


FOLDER_HINT = gettext_noop("Mount the folder that the web server uses, or run manage.py adopt_data_folder there.")
PROBLEMS = {
    "no_identity": ProblemWords(
        gettext_noop("Its data folder has no identity, so it is not this installation's folder."), FOLDER_HINT
    ),
    "other_identity": ProblemWords(gettext_noop("Its data folder belongs to another installation."), FOLDER_HINT),
    "other_key": ProblemWords(
        gettext_noop("It has another secret key than this site: it could read no keys and tokens."),
        gettext_noop("Give every process the same TILTYARD_SECRET_KEY; docs/operations.md says how to replace it."),
    ),
    "older_version": ProblemWords(
        gettext_noop("It runs an older version than the database was migrated to."),
        gettext_noop("Update its host to the version of this site, and restart it."),
    ),
    "newer_version": ProblemWords(
        gettext_noop("It runs a newer version than the database was migrated to."),
        gettext_noop("Update the site's own host, which migrates the database when it starts."),
    ),
    "files_away": ProblemWords(
        gettext_noop("The store of files does not answer."),
        gettext_noop("Start it, or check TILTYARD_FILES_ENDPOINT and the network."),
    ),
    "files_refused": ProblemWords(
        gettext_noop("The store of files refuses its access."),
        gettext_noop("Check TILTYARD_FILES_KEY_ID, TILTYARD_FILES_SECRET and the rights on TILTYARD_FILES."),
    ),
    "files_unclaimed": ProblemWords(
        gettext_noop("The store of files belongs to no site yet."),
        gettext_noop("Start the site's own host with the same TILTYARD_FILES."),
    ),
    "other_site": ProblemWords(
        gettext_noop("The store of files belongs to another site."),
        gettext_noop("Give this site a bucket or a prefix of its own in TILTYARD_FILES."),
    ),
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
    hint: str
    clock: str
    runs: list[RunAtWork]
    readings: list[str]
    host: str


def worker_lines(user: User) -> list[WorkerLine]:
    """All workers, those that live first."""
    age = ExpressionWrapper(Now() - F("beat_at"), output_field=DurationField())
    rows = list(Worker.objects.with_drains().annotate(age=age))
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
    words = PROBLEMS.get(worker.problem)
    problem, hint = (_(words.sentence), _(words.hint)) if words else (worker.problem, "")
    gone = age > GONE_AFTER
    readings = [] if gone else _readings(worker.devices or [])
    clock = "" if gone else _clock(worker.clock_s or 0.0)
    return WorkerLine(worker, gone, age, problem, hint, clock, runs, readings, host_of(worker.name))


def _clock(ahead_s: float) -> str:
    """What is wrong with the clock of a host, if anything."""
    if not ahead_s:
        return ""
    values = {"t": duration(abs(ahead_s))}
    if ahead_s > 0:
        return _("Its clock is %(t)s ahead of the database's.") % values
    return _("Its clock is %(t)s behind the database's.") % values


def _readings(devices: list[dict[str, Any]]) -> list[str]:
    """“0: 93% busy · 40.1 of 139.8 GiB · 312 W · 61 °C”, without what a device does not report."""
    lines = []
    for each in devices:
        parts = []
        if each["busy"] is not None:
            parts.append(_("%(share)s busy") % {"share": percent(each["busy"])})
        if each["memory_used"] is not None and each["memory"]:
            used, size = (f"{each[name] / (1 << 30):.1f}" for name in ("memory_used", "memory"))
            parts.append(_("%(used)s of %(size)s GiB") % {"used": used, "size": size})
        parts += [f"{each['power_w']:.0f} W"] if each["power_w"] is not None else []
        parts += [f"{each['temperature_c']} °C"] if each["temperature_c"] is not None else []
        lines += [f"{each['id']}: {' · '.join(parts)}"] if parts else []
    return lines


@login_required
@require_POST
def worker_drain(request: HttpRequest) -> HttpResponse:
    """Drain a host, or have it work again (administrators)."""
    user, on = administrator(request), request.POST.get("on") == "1"
    try:
        drain_change(host=request.POST.get("host", ""), user=user, on=on)
    except ValidationError as exc:
        messages.error(request, exc.messages[0])
    return redirect("worker-list")


@login_required
@require_GET
def worker_list(request: HttpRequest) -> HttpResponse:
    """The workers: members see names and states, administrators also machines, processes and versions."""
    user = cast(User, request.user)
    age_s = clock_age()
    lines = worker_lines(user)
    hosts = [line.host for line in lines]
    shown = {"lines": lines, "all": user.is_superuser, "loads": all_loads(), "disk_fault": fault_text()}
    shown["empty_drains"] = Drain.objects.exclude(host__in=hosts).order_by("host")
    return render(request, "workers/list.html", shown | {"clock_age_s": age_s, "clock_late": is_late(age_s)})
