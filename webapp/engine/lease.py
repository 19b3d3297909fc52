"""The lease: which worker may run, and write about, a run. All times are those of the database's clock.

1. *Claim*: a queued run whose predecessor (``after``) has succeeded, and whose pool the place is of, gets
   ``attempt + 1``, an owner and a beat in one compare-and-set. Of any number of workers that try at once, one gets it.
2. *Beat*: the owner renews ``lease_beat_at`` every ``LEASE_BEAT_S`` where attempt and owner are still its own. A
   refused beat means that it has been fenced: it kills its trainer and leaves.
3. *Fence*: every write names (attempt, owner) in the same statement that takes its ``seq`` (``history.seq_take``).
4. *Take over*: the reaper replaces the owner of a lease that is older than ``LEASE_TTL_S``; from then on the old
   owner's writes fail, so it may end the attempt in its place.
"""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Now

from webapp.common.workers.beating import worker_name
from webapp.engine.history import Lease, dependency_error, event_add, run_transition
from webapp.runs.models import Attempt, Run
from webapp.runs.states import LEASED, TERMINAL, RunState

CLOCK_SLACK_S = 5  # a beat further in the future was written before the clock was set back
MISSED_BEATS = 2.5  # a worker that is silent for longer may be lost: its run, queued earlier, would go first


def beat_every_s() -> float:
    """Seconds between beats: four fit into the time to live."""
    return float(min(settings.LEASE_BEAT_S, settings.LEASE_TTL_S / 4))


def new_owner(role: str = "") -> str:
    """A name for this process that no other will ever have."""
    return f"{role}{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def can_start(*pools: str) -> QuerySet[Run]:
    """Queued runs that only wait for a place of these pools, in the order in which they were queued."""
    free = Q(after=None) | Q(after__state=RunState.SUCCEEDED)
    return Run.objects.filter(free, state=RunState.QUEUED, pool__in=pools).order_by("queued_at", "created_at")


def first_in_line(run_id: UUID, pool: str) -> UUID | None:
    """The run to claim on a message about ``run_id``: of all of this pool that can start, the one queued first.

    A run keeps its place when it loses its worker. While one of the pool that was queued before has a worker that
    misses its beats, nothing is claimed (``None``): within a time to live it either beats again or waits here too, and
    goes first.
    """
    first = can_start(pool).values_list("pk", "queued_at").first()
    if first is None:  # ``claim`` fails this run if its predecessor failed
        return Run.objects.filter(pk=run_id, pool=pool).values_list("pk", flat=True).first()
    old = Now() - Value(timedelta(seconds=MISSED_BEATS * beat_every_s()))
    older = Run.objects.filter(state__in=LEASED, pool=pool, imported=False, queued_at__lt=first[1])
    lost = older.annotate(heard_at=Coalesce("lease_beat_at", "lease_started_at")).filter(heard_at__lt=old)
    return None if lost.exists() else first[0]


def claim(run_id: UUID) -> Lease | None:
    """Try to get the run; ``None`` if another worker has it or it cannot start. Fails a run whose predecessor
    failed."""
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).filter(pk=run_id, state=RunState.QUEUED).first()
        if run is None or not _predecessor_ready(run):
            return None
        lease = Lease(run.pk, run.attempt + 1, new_owner())
        run_transition(
            run.pk,
            RunState.PREPARING,
            attempt=lease.attempt,
            lease_owner=lease.owner,
            lease_worker=worker_name(),
            lease_started_at=Now(),
            lease_beat_at=Now(),
            started_at=Coalesce(F("started_at"), Now()),
            step_seconds=None,
            last_step_at=None,
            phase="preparing",
        )
        Attempt.objects.create(run_id=run.pk, number=lease.attempt, owner=lease.owner, started_at=Now())
        event_add(run.pk, "attempt", {"number": lease.attempt, "owner": lease.owner}, attempt=lease.attempt)
    return lease


def _predecessor_ready(run: Run) -> bool:
    before = run.after
    if before is None or before.state == RunState.SUCCEEDED:
        return True
    if before.state in TERMINAL and before.state != RunState.CANCELLED:  # one that was stopped may be resumed
        run_transition(run.pk, RunState.FAILED, error=dependency_error(before))
    return False


def beat(lease: Lease) -> bool:
    """Renew the lease; ``False`` when it is no longer ours."""
    return bool(_leased_run(lease).update(lease_beat_at=Now()))


def state_of(lease: Lease) -> RunState | None:
    """State of the run while the lease is valid, else ``None``."""
    state = _leased_run(lease).values_list("state", flat=True).first()
    return RunState(state) if state else None


def expired() -> QuerySet[Run]:
    """Leased runs whose worker has not answered for a whole time to live.

    A beat that never came counts from the claim. One from the future was written before the clock was set back, and a
    living worker has beaten since.
    """
    at = Coalesce("lease_beat_at", "lease_started_at", "queued_at", "created_at")
    old = Now() - Value(timedelta(seconds=settings.LEASE_TTL_S))
    ahead = Now() + Value(timedelta(seconds=CLOCK_SLACK_S))
    rows = Run.objects.filter(state__in=LEASED).annotate(answered_at=at)
    return rows.filter(
        Q(answered_at__lt=ExpressionWrapper(old, output_field=DateTimeField()))
        | Q(answered_at__gt=ExpressionWrapper(ahead, output_field=DateTimeField()))
    )


def take_over(run: Run) -> Lease | None:
    """Become the owner of an expired lease under the same attempt, if it still is as it was read."""
    lease = Lease(run.pk, run.attempt, new_owner("reaper:"))
    same = expired().filter(pk=run.pk, attempt=run.attempt, lease_owner=run.lease_owner).order_by()
    with transaction.atomic():
        # A locked row is left alone: its worker's beat may be waiting behind that lock.
        if not same.select_for_update(skip_locked=True, no_key=True).exists():
            return None
        changed = same.update(lease_owner=lease.owner, lease_beat_at=Now())
    return lease if changed else None


def _leased_run(lease: Lease) -> QuerySet[Run]:
    return Run.objects.filter(
        pk=lease.run_id, attempt=lease.attempt, lease_owner=lease.owner, state__in=LEASED
    ).order_by()
