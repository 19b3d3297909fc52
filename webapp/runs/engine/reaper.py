"""The reaper: gives back the runs of workers that stopped answering, and wakes workers for runs that nobody was told
of.

1. Lock the one ``ReaperMark`` row; another reaper that holds it means there is nothing to do.
2. If the database has just started, or the last look lies too far back (outage) or ahead (clock set back), be idle for
   one time to live: every living worker beats again within it.
3. For each expired lease: take it over by compare-and-set, kill a trainer that was left on this machine, project the
   rest of the journal, and let ``attempt_end`` decide (queued again, cancelled if it was stopping, or whatever the
   trainer last said).
4. Nudge queued runs that had no nudge for a while: Redis may have forgotten them.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from webapp.runs.engine import outbox
from webapp.runs.engine.history import Lease, LeaseLost, event_add
from webapp.runs.engine.lease import beat, expired, take_over
from webapp.runs.engine.outcome import attempt_end, worker_lost
from webapp.runs.engine.projection import Projector
from webapp.runs.engine.trainer import kill_orphan
from webapp.runs.models import Attempt, Outbox, ReaperMark, Run
from webapp.runs.states import RunState
from webapp.storage import attempt_dir

logger = logging.getLogger(__name__)
NUDGE_AGAIN = timedelta(seconds=10)
NUDGED_AT_ONCE = 5  # the oldest: while workers are busy, messages for the others would only pile up


def reap() -> int:
    """Look once; return how many runs were given back."""
    if not _awake():
        return 0
    count = 0
    for run in list(expired()):
        lease = take_over(run)
        if lease is not None:
            count += _give_back(lease, run.lease_owner)
    nudge_forgotten()
    return count


def _clock() -> tuple[datetime, datetime]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp(), pg_postmaster_start_time()")
        now, started = cursor.fetchone()
    return now, started


def _awake() -> bool:
    """Whether leases can be judged now."""
    now, started = _clock()
    ttl = timedelta(seconds=settings.LEASE_TTL_S)
    with transaction.atomic():
        ReaperMark.objects.get_or_create(pk=1, defaults={"ran_at": now})
        locked = ReaperMark.objects.select_for_update(skip_locked=True).filter(pk=1).first()
        if locked is None:
            return False
        gap = now - locked.ran_at
        if gap > max(ttl / 2, timedelta(seconds=10)) or gap < timedelta(seconds=-1):
            locked.idle_until = now + ttl
            logger.warning("reaper idle for one time to live", extra={"action": "reap", "gap_s": gap.total_seconds()})
        if now - started < ttl:
            locked.idle_until = max(started + ttl, locked.idle_until or started)
        elif locked.idle_until is not None and locked.idle_until > now + ttl:
            locked.idle_until = now + ttl
        locked.ran_at = now
        locked.save(update_fields=["ran_at", "idle_until"])
    return locked.idle_until is None or now >= locked.idle_until


def _give_back(lease: Lease, owner: str) -> int:
    """End the attempt of a worker that does not answer, in its place."""
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
    now, _ = _clock()
    count = 0
    waiting = Run.objects.filter(state=RunState.QUEUED).exclude(after__state__in=_unfinished())
    for run in waiting.order_by("queued_at")[:NUDGED_AT_ONCE]:
        if not Outbox.objects.filter(run=run, created_at__gt=now - NUDGE_AGAIN).exists():
            outbox.add(run.pk)
            count += 1
    return count


def _unfinished() -> list[RunState]:
    return [
        RunState.DRAFT,
        RunState.QUEUED,
        RunState.PREPARING,
        RunState.RUNNING,
        RunState.PAUSING,
        RunState.PAUSED,
        RunState.STOPPING,
    ]
