"""Runs that paused for a cause that time can fix resume by themselves once it is over.

Every 15 seconds, for each paused run whose error is one of ``CAUSES``, the oldest first:

1. A project may keep its runs paused (``DoctorRules.resumes``).
2. Is the cause over? The disk has room, or can be written again; the keeper has seen all of the run's environments
   answer since it paused; its endpoint may be asked again. Whether an endpoint, a sampler or a Ray cluster is back
   is known only by trying.
3. Each time within a day waits twice as long as the one before, counted from the pause, and after ``most`` of them a
   person is needed. What needs no try (a disk, a day's budget) waits for its cause alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import chain

from django.conf import settings
from django.db import connection, transaction
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.translation import gettext as _
from pydantic import ValidationError

from training.config import JobConfig, kind_in, name_in
from training.errors import ConfigError, TiltyardError
from training.journal import JOURNAL_NAME
from training.machine import write_refusal
from training.words import Sentence, sentence
from webapp.common import objects
from webapp.common.storage import attempt_dir, run_dir
from webapp.common.words import ANSWERS_AGAIN, BUDGET_AGAIN, RECOVERED, ROOM, TAKES_FILES, TRIED_AGAIN, WRITABLE
from webapp.common.workers.beating import folder_problem
from webapp.endpoints.spending import BY_DAY, day_over
from webapp.engine import history
from webapp.engine.attempts import attempt_end, beat, expired, take_over, worker_lost
from webapp.engine.history import Lease, LeaseLost, event_add
from webapp.engine.models import Outbox, ReaperMark
from webapp.engine.projection import Projector
from webapp.engine.resolve import environments_of
from webapp.engine.services import Disk, disk, needed_bytes, run_resume
from webapp.engine.trainer import kill_orphan
from webapp.environments.models import Environment
from webapp.runs.advisories.models import DoctorRules
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.states import RunState

logger = logging.getLogger(__name__)
DAY = timedelta(days=1)
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Paused:
    """A run that waits: since when, and how often it has been resumed by itself within a day."""

    run: Run
    since: datetime
    tries: int
    disk: Disk
    store_takes_files: Callable[[], bool]


@dataclass(frozen=True)
class Cause:
    """``over`` gives the reason to resume, or nothing yet. The first try waits ``first_s``, where it is a try."""

    over: Callable[[Paused], Sentence | None]
    first_s: float = 0.0
    most: int | None = None


def _has_room(paused: Paused) -> Sentence | None:
    if paused.disk.free < needed_bytes(paused.run, paused.disk):
        return None
    return sentence(ROOM, free=filesizeformat(paused.disk.free))


def _can_be_written(paused: Paused) -> Sentence | None:
    return sentence(WRITABLE) if write_refusal(run_dir(paused.run.pk)) is None else None


def _environments_answer(paused: Paused) -> Sentence | None:
    named = environments_of(JobConfig.model_validate(paused.run.config))
    names = {name_in("environment", text) for text in named if kind_in(text) == "environment"}
    rows = Environment.objects.filter(project_id=paused.run.project_id, name__in=names)
    answer = rows.filter(healthy=True, checked_at__gt=paused.since).count()
    return sentence(ANSWERS_AGAIN) if names and answer == len(names) else None


def _may_spend(paused: Paused) -> Sentence | None:
    """Only a day's limit ends by itself; a run's own limit stays."""
    message = (paused.run.error or {}).get("told") or {}
    if message.get("template") not in BY_DAY:
        return None
    name = name_in("endpoint", (paused.run.config.get("endpoint") or {}).get("name", ""))
    return None if day_over(paused.run.project_id, name) is not None else sentence(BUDGET_AGAIN)


def _store_works() -> bool:
    return objects.enabled() and objects.takes_files()


def _store_takes_files(paused: Paused) -> Sentence | None:
    return sentence(TAKES_FILES) if paused.store_takes_files() else None


def _trying_is_all(paused: Paused) -> Sentence | None:
    return sentence(TRIED_AGAIN)


CAUSES = {
    "storage_full": Cause(_has_room),
    "storage_failed": Cause(_can_be_written),
    "files_away": Cause(_trying_is_all, first_s=120, most=12),
    "files_full": Cause(_store_takes_files, first_s=120, most=12),
    "files_refused": Cause(_store_takes_files, first_s=120, most=12),
    "budget_spent": Cause(_may_spend),
    "environment_unreachable": Cause(_environments_answer, most=12),
    "environment_timeout": Cause(_environments_answer, most=12),
    "environment_full": Cause(_environments_answer, first_s=120, most=12),
    "endpoint_away": Cause(_trying_is_all, first_s=120, most=12),
    "endpoint_busy": Cause(_trying_is_all, first_s=120, most=12),
    "cluster_unreachable": Cause(_trying_is_all, first_s=120, most=12),
    "cluster_short": Cause(_trying_is_all, first_s=120, most=12),
    "device_failed": Cause(_trying_is_all, first_s=120, most=3),
    "sampler_died": Cause(_trying_is_all, first_s=120, most=3),
    "too_many_failures": Cause(_environments_answer, first_s=120, most=3),
}


def wait_s(cause: Cause, tries: int) -> float | None:
    """Seconds from the pause until the next try may be made; ``None`` when a person is needed."""
    if cause.most is None:
        return 0.0
    if tries >= cause.most:
        return None
    doubled = cause.first_s * 2**tries if cause.first_s else 60.0 * 2 ** (tries - 1) if tries else 0.0
    return min(doubled, LONGEST_S)


def resume_where_over() -> int:
    """Resume the runs whose cause is over; return how many."""
    if folder_problem():
        return 0
    kept = DoctorRules.objects.filter(resumes=False).values("project")
    waiting = Run.objects.filter(state=RunState.PAUSED, imported=False, error__code__in=list(CAUSES))
    now, takes_files, count = disk(), cache(_store_works), 0  # the store is asked once for all runs
    for run in waiting.exclude(project__in=kept).select_related("project").order_by("created_at"):
        try:
            count += _try_resume(run, now, takes_files)
        except (ConfigError, ValidationError) as exc:  # a thing that it names was deleted or changed
            logger.warning("not resumed", extra={"action": "recover", "run_id": run.pk, "error": repr(exc)[:200]})
    return count


def promise(run: Run) -> str:
    """A sentence on whether a paused run resumes by itself; empty where it waits for a person anyway."""
    cause = CAUSES.get((run.error or {}).get("code", ""))
    if cause is None or run.state != RunState.PAUSED or run.imported:
        return ""
    if DoctorRules.objects.filter(project=run.project_id, resumes=False).exists():
        return ""
    tries = _resumes_within_day(run)
    if wait_s(cause, tries) is None:
        return _("It continued by itself %(n)s times within a day: now it waits for a person.") % {"n": tries}
    return _("It continues by itself once the cause of the pause is over.")


def _try_resume(run: Run, now: Disk, takes_files: Callable[[], bool]) -> bool:
    reason = _reason_to_resume(run, now, takes_files)
    if reason is None or run_resume(run=run, reason=reason).state != RunState.QUEUED:
        return False
    logger.info("resumed by itself", extra={"action": "recover", "run_id": run.pk, "reason": str(reason)})
    return True


def _reason_to_resume(run: Run, now: Disk, takes_files: Callable[[], bool]) -> Sentence | None:
    cause, tries = CAUSES[(run.error or {})["code"]], _resumes_within_day(run)
    paused = RunEvent.objects.filter(run=run, kind="state", payload__to=RunState.PAUSED)
    since = paused.order_by("-seq").values_list("at", flat=True).first() or run.created_at
    wait = wait_s(cause, tries)
    if wait is None or timezone.now() < since + timedelta(seconds=wait):
        return None
    return cause.over(Paused(run, since, tries, now, takes_files))


def _resumes_within_day(run: Run) -> int:
    """How often the run was resumed by itself within the last day."""
    again = RunEvent.objects.filter(run=run, kind="state", at__gt=timezone.now() - DAY, payload__to=RunState.QUEUED)
    return again.filter(payload__reason__template__in=RECOVERED).count()


# --- Reaper ---------------------------------------------------------------------------------------------------------
# The reaper: gives back the runs of workers that stopped answering, and wakes workers for runs whose message was lost.
#
# 1. Lock the one ``ReaperMark`` row; another reaper that holds it means there is nothing to do.
# 2. Look, as a worker's beat would write: under the same lock on the table (``LOOK_LOCK``). If a beat cannot get
# through, the look fails and the mark stays where it was, so that the next look knows for how long no worker could
# beat. 3. If the database has just started, or the last look lies too far back (outage, a locked table) or ahead (clock
# set back), be idle for one time to live: every living worker beats again within it.
# 4. For each expired lease: take it over by compare-and-set, kill a trainer that was left on this machine, project the
#    rest of the journal, and let ``attempt_end`` decide (queued again, cancelled if it was stopping, or as the
# trainer's last event says).
# 5. Nudge queued runs that had no nudge for a while: Redis may have forgotten them.

LOOK_LOCK = "LOCK TABLE runs_run IN ROW EXCLUSIVE MODE"  # what the UPDATE of a beat takes
LOCK_WAIT_S = 2
NUDGE_AGAIN = timedelta(seconds=10)
UNDECIDED = set(RunState) - {RunState.SUCCEEDED, RunState.FAILED}  # what waits for such a run cannot start yet
NUDGED_AT_ONCE = 5  # the oldest of a pool: while workers are busy, messages for the others would only pile up


def reap() -> int:
    """Check all leases once; return how many runs were given back. It reads journals, so it needs the right data
    folder."""
    if folder_problem():
        return 0
    silent = _expired_runs()
    if silent is None:
        return 0
    count = 0
    for run in silent:
        lease = take_over(run)
        if lease is not None:
            count += _end_attempt(lease, run.lease_owner)
    nudge_forgotten()
    return count


def _database_times() -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp(), pg_postmaster_start_time()")
        now, started = cursor.fetchone()
    return now, started


def _expired_runs() -> list[Run] | None:
    """The runs whose lease has expired; ``None`` while leases cannot be judged.

    One transaction: the mark moves only if the check succeeds.
    """
    now, started = _database_times()
    with transaction.atomic():
        ReaperMark.objects.get_or_create(pk=1, defaults={"ran_at": now})
        mark = ReaperMark.objects.select_for_update(skip_locked=True).filter(pk=1).first()
        if mark is None:
            return None
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
            cursor.execute(LOOK_LOCK)
        found = list(expired())
        mark.idle_until = _idle_until(mark, now, started)
        mark.ran_at = now
        mark.save(update_fields=["ran_at", "idle_until"])
    return found if mark.idle_until is None or now >= mark.idle_until else None


def _idle_until(mark: ReaperMark, now: datetime, started: datetime) -> datetime | None:
    """The time until which no lease may be taken over."""
    ttl = timedelta(seconds=settings.LEASE_TTL_S)
    gap, until = now - mark.ran_at, mark.idle_until
    if gap > max(ttl / 2, timedelta(seconds=10)) or gap < timedelta(seconds=-1):
        until = now + ttl
        logger.warning("reaper idle for one time to live", extra={"action": "reap", "gap_s": gap.total_seconds()})
    if now - started < ttl:
        return max(started + ttl, until or started)
    return min(until, now + ttl) if until is not None else None


def _end_attempt(lease: Lease, owner: str) -> int:
    """End the attempt of a worker that does not answer, on its behalf."""
    error = worker_lost(owner)
    log = {"action": "reap", "run_id": lease.run_id, "attempt": lease.attempt}
    logger.warning("worker stopped answering", extra={**log, "owner": owner})
    try:
        event_add(lease.run_id, "warning", error.model_dump(mode="json"), attempt=lease.attempt, lease=lease)
        unsealed = Attempt.objects.filter(run_id=lease.run_id, number__lte=lease.attempt, ended_at=None)
        for number in unsealed.order_by("number").values_list("number", flat=True):
            kill_orphan(attempt_dir(lease.run_id, number))
            _collect_journal(lease, number)
            projector = Projector(lease, number)
            while projector.step():
                beat(lease)
        attempt_end(lease, error)
    except LeaseLost:
        logger.warning("another reaper was faster", extra=log)
        return 0
    return 1


def _collect_journal(lease: Lease, number: int) -> None:
    """Have here what the worker shipped of its journal; where the store does not give it, the run says so."""
    if not objects.enabled():
        return
    try:
        objects.collect(attempt_dir(lease.run_id, number) / JOURNAL_NAME)
    except TiltyardError as exc:
        event_add(lease.run_id, "warning", exc.info.model_dump(mode="json"), attempt=number, lease=lease)


def nudge_forgotten() -> int:
    """Nudge the oldest queued runs of each queue that can start and were not announced lately; return how many."""
    now, _ = _database_times()
    count = 0
    waiting = Run.objects.filter(state=RunState.QUEUED, on_hold_at=None).exclude(after__state__in=UNDECIDED)
    queues = waiting.order_by().values("pool", "needs").distinct()
    oldest = (waiting.filter(**queue).order_by("queued_at")[:NUDGED_AT_ONCE] for queue in queues)
    for run in chain(*oldest):
        if not Outbox.objects.filter(run=run, created_at__gt=now - NUDGE_AGAIN).exists():
            history.add(run)
            count += 1
    return count
