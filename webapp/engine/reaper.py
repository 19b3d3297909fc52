"""The reaper: gives back the runs of workers that stopped answering, and wakes workers for runs whose message was lost.

1. Lock the one ``ReaperMark`` row; another reaper that holds it means there is nothing to do.
2. Look, as a worker's beat would write: under the same lock on the table (``LOOK_LOCK``). If a beat cannot get through,
   the look fails and the mark stays where it was, so that the next look knows for how long no worker could beat.
3. If the database has just started, or the last look lies too far back (outage, a locked table) or ahead (clock set
   back), be idle for one time to live: every living worker beats again within it.
4. For each expired lease: take it over by compare-and-set, kill a trainer that was left on this machine, project the
   rest of the journal, and let ``attempt_end`` decide (queued again, cancelled if it was stopping, or as the trainer's
   last event says).
5. Nudge queued runs that had no nudge for a while: Redis may have forgotten them.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from itertools import chain

from django.conf import settings
from django.db import connection, transaction

from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.storage import attempt_dir
from webapp.common.workers.identity import folder_problem
from webapp.engine import outbox
from webapp.engine.history import Lease, LeaseLost, event_add
from webapp.engine.lease import beat, expired, take_over
from webapp.engine.outcome import attempt_end, worker_lost
from webapp.engine.projection import Projector
from webapp.engine.trainer import kill_orphan
from webapp.runs.models import Attempt, Outbox, ReaperMark, Run
from webapp.runs.states import RunState

logger = logging.getLogger(__name__)
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
            projector = Projector(lease, number)
            while projector.step():
                beat(lease)
        attempt_end(lease, error)
    except LeaseLost:
        logger.warning("another reaper was faster", extra=log)
        return 0
    return 1


def nudge_forgotten() -> int:
    """Nudge the oldest queued runs that can start and were not announced lately; return how many."""
    now, _ = _database_times()
    count = 0
    waiting = Run.objects.filter(state=RunState.QUEUED).exclude(after__state__in=UNDECIDED)
    oldest = (waiting.filter(pool=pool).order_by("queued_at")[:NUDGED_AT_ONCE] for pool in (TRAIN, ENDPOINT))
    for run in chain(*oldest):
        if not Outbox.objects.filter(run=run, created_at__gt=now - NUDGE_AGAIN).exists():
            outbox.add(run)
            count += 1
    return count
