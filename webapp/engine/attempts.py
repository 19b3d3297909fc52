"""An attempt at a run: which worker holds its lease, and the run's next state when it ends."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Now
from pydantic import ValidationError

from training.errors import Boundary, BudgetSpent, ErrorInfo
from training.evaluation import REPORT_NAME, Report
from webapp.common.database import ahead_s
from webapp.common.storage import attempt_dir
from webapp.common.workers.beating import worker_here, worker_name
from webapp.common.workers.models import Needs
from webapp.engine.courier import model_lost
from webapp.engine.history import Lease, LeaseLost, dependency_error, event_add, run_transition
from webapp.engine.projection import rollouts_close
from webapp.runs.models import Attempt, Run
from webapp.runs.records.order import first_of, no_room
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.states import LEASED, TERMINAL, RunState

# The lease: which worker may run, and write about, a run. All times are those of the database's clock.
#
# 1. *Claim*: a queued run whose predecessor (``after``) has succeeded, whose pool the place is of, whose needs its
#    worker meets, whose project may have its devices, and whose environments have its sessions, gets ``attempt + 1``,
#    an owner and a beat in one compare-and-set. Of any number of workers that try at once, one gets it.
# 2. *Beat*: the owner renews ``lease_beat_at`` every ``LEASE_BEAT_S`` where attempt and owner are still its own. A
#    refused beat means that it has been fenced: it kills its trainer and leaves.
# 3. *Fence*: every write names (attempt, owner) in the same statement that takes its ``seq`` (``history.seq_take``).
# 4. *Take over*: the reaper replaces the owner of a lease that is older than ``LEASE_TTL_S``; from then on the old
#    owner's writes fail, so it may end the attempt in its place.

CLOCK_SLACK_S = 5  # a beat further in the future was written before the clock was set back


def new_owner(role: str = "") -> str:
    """A name for this process that no other will ever have."""
    return f"{role}{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def first_in_line(run_id: UUID, pool: str) -> UUID | None:
    """The run to claim on a message about ``run_id``: the first of all of this pool that can start.

    A run keeps its place when it loses its worker. While the first one has a worker that misses its beats, nothing is
    claimed (``None``): within a time to live it either beats again or waits here too, and goes first.
    """
    first = first_of(pool, worker_here())
    if first is None:  # ``claim`` fails this run if its predecessor failed
        return Run.objects.filter(pk=run_id, pool=pool).values_list("pk", flat=True).first()
    return None if first.silent else first.pk


def claim(run_id: UUID) -> Lease | None:
    """Try to get the run; ``None`` if another worker has it, or it cannot start or be trained here.

    Fails a run whose predecessor failed.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).filter(pk=run_id, state=RunState.QUEUED).first()
        if run is None or not _predecessor_ready(run) or run.on_hold_at is not None:
            return None
        if not Needs.parse(run.needs).met_by(worker_here()) or no_room(run):
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
        row = {"number": lease.attempt, "owner": lease.owner, "started_at": Now(), "clock_s": ahead_s()}
        Attempt.objects.create(run_id=run.pk, **row)
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


# How an attempt ends, and its run's next state: decided in one place for the supervisor, the reaper and the import.
#
# 1. Lock the run under the lease; a stale lease changes nothing (``LeaseLost``).
# 2. Seal the attempt: ``ended_at`` is set, so no later reader projects more of its journal.
# 3. Its ``run_finished`` event, if there is one, is the truth: succeeded → succeeded; failed → failed and paused →
#    paused, with its typed error. A run that was asked to stop or pause is cancelled or paused. Without the event the
#    trainer died.
# 4. A run whose trainer or worker died is queued again, unless ``MAX_ATTEMPTS_WITHOUT_PROGRESS`` trainers in a row died
#    at the step that the run never passed, or at their start: then it fails with ``crash_loop``. The death of a worker,
#    a kill from outside, or the death of a trainer on its way back to that step says nothing about the run, so that
#    takes ``MAX_OTHER_DEATHS`` of them. A person who resumes the run starts the count again.
# 5. Rollouts in flight are excluded. On success the final model is registered. Runs that waited are woken or failed.

CRASHES = frozenset({"trainer_died", "supervisor_fault"})
OTHERS = frozenset({"worker_lost", "trainer_killed"})
MAX_REPORT_BYTES = 4 << 20
MAX_OTHER_DEATHS = 20  # a run that takes whole machines down must end some time, too
WORKER_CLOSING = ErrorInfo(
    code="worker_closing",
    boundary=Boundary.LEASE,
    message="The worker was shut down; the run continues with the next free one.",
)


def worker_lost(owner: str) -> ErrorInfo:
    """The error of an attempt whose worker stopped beating."""
    return ErrorInfo(
        code="worker_lost",
        boundary=Boundary.LEASE,
        message=f"Worker {owner} stopped answering.",
        hint="Check whether its machine is up and can reach the database.",
    )


def attempt_end(lease: Lease, error: ErrorInfo | None = None) -> Run:
    """End the lease's attempt and decide its run's state; ``error`` says why the trainer reported no result."""
    lost = model_lost(lease.run_id)
    with transaction.atomic():
        rows = Run.objects.select_for_update(no_key=True).filter(pk=lease.run_id, state__in=LEASED)
        run = rows.filter(attempt=lease.attempt, lease_owner=lease.owner).first()
        attempt = _final_attempt(run) if run is not None else None
        if run is None or attempt is None:
            raise LeaseLost("Another worker has the run.")
        target, verdict = _state_after(run, attempt, error, model_lost=lost)
        Attempt.objects.filter(run=run, ended_at=None).update(ended_at=Now())
        stored = verdict or error
        if stored is not None:
            Attempt.objects.filter(run=run, number=run.attempt).update(error=stored.model_dump(mode="json"))
        rollouts_close(lease, upto=run.attempt)
        if target == RunState.SUCCEEDED and not run.imported_from:
            _model_register(run)
        final = verdict if target in {RunState.FAILED, RunState.PAUSED} else None
        changes: dict[str, Any] = {"health": _health_with_end(run, attempt, stored)}
        if target == RunState.SUCCEEDED and run.measures:
            changes["evaluation"] = _read_evaluation_report(run, attempt.number)
        ended = run_transition(run.pk, target, lease=lease, error=final, why=stored, **changes)
        if ended is None:
            raise LeaseLost("Another worker has the run.")
    return ended


def _read_evaluation_report(run: Run, attempt: int) -> dict[str, Any] | None:
    """The report of an evaluation that its trainer wrote; ``None`` where it cannot be read. The rollouts are kept
    anyway."""
    try:
        with (attempt_dir(run.pk, attempt) / REPORT_NAME).open("rb") as file:
            return Report.model_validate_json(file.read(MAX_REPORT_BYTES)).model_dump(mode="json")
    except (OSError, ValidationError) as exc:
        message = f"The figures of the evaluation cannot be read: {type(exc).__name__}."
        event_add(run.pk, "warning", {"code": "no_figures", "message": message}, attempt=attempt)
        return None


def _health_with_end(run: Run, attempt: Attempt, why: ErrorInfo | None) -> dict[str, Any]:
    """The run's reports, with why the attempt ended: the page shows it while the next one begins and trains. Whether
    its files were sent no longer matters."""
    kept = {name: value for name, value in run.health.items() if name not in {"ended", "files"}}
    if why is None:
        return kept
    return kept | {"ended": {"attempt": attempt.number, "code": why.code, "message": why.message}}


def _final_attempt(run: Run) -> Attempt | None:
    """The attempt that has ``run_finished``, or the present one: a worker may have died between the two."""
    attempts = Attempt.objects.filter(run=run, number__lte=run.attempt).order_by("-number")
    present = attempts.first()
    if present is not None and present.outcome is None:
        before = attempts.filter(outcome__isnull=False, ended_at=None).first()
        return before or present
    return present


def finished_before(lease: Lease) -> bool:
    """Whether an earlier attempt, not sealed yet, had already ended the run when its worker died."""
    rows = Attempt.objects.filter(run_id=lease.run_id, number__lt=lease.attempt, ended_at=None, outcome__isnull=False)
    return any((outcome or {}).get("status") != "stopped" for outcome in rows.values_list("outcome", flat=True))


def _state_after(
    run: Run, attempt: Attempt, error: ErrorInfo | None, *, model_lost: bool
) -> tuple[RunState, ErrorInfo | None]:
    outcome = attempt.outcome or {}
    status = outcome.get("status")
    typed = ErrorInfo.model_validate(outcome["error"]) if outcome.get("error") else None
    if status == "succeeded" and not model_lost:
        return RunState.SUCCEEDED, None
    if run.state == RunState.STOPPING or (run.imported and status == "stopped"):
        return RunState.CANCELLED, None
    if status == "failed":
        return RunState.FAILED, typed or _no_result_error()
    if status == "paused" and not run.imported:
        return RunState.PAUSED, typed or _no_result_error()
    if run.state == RunState.PAUSING:
        return RunState.PAUSED, None
    if error is not None and error.code == BudgetSpent.code:
        return RunState.PAUSED, error
    if error is not None and error.code == WORKER_CLOSING.code:
        return RunState.QUEUED, None
    lost = error or typed or _no_result_error()
    if run.imported:
        return RunState.FAILED, lost
    stuck, other = _deaths_without_progress(run, lost)
    if stuck >= settings.MAX_ATTEMPTS_WITHOUT_PROGRESS or other >= MAX_OTHER_DEATHS:
        return RunState.FAILED, crash_loop(stuck + other, lost)
    return RunState.QUEUED, lost


def crash_loop(attempts: int, last: ErrorInfo) -> ErrorInfo:
    """The error of a run that dies again and again."""
    return ErrorInfo(
        code="crash_loop",
        boundary=Boundary.TRAINER,
        message=f"{attempts} attempts in a row ended without a new step. The last one: {last.message}",
        hint=last.hint or "The last lines of its output are in the log.",
    )


def _no_result_error() -> ErrorInfo:
    return ErrorInfo(
        code="trainer_died",
        boundary=Boundary.TRAINER,
        message="The trainer ended without reporting a result.",
        hint="The last lines of its output are in the log.",
    )


def _deaths_without_progress(run: Run, lost: ErrorInfo) -> tuple[int, int]:
    """Deaths since the last new step: those of trainers that may be the run's own fault, and all others.

    A resumed run is bitwise the same, so what it does wrong itself kills it where it died before, or at its start. A
    trainer that died on its way back there, or that was killed from outside, says as little of the run as the death of
    a worker. ``lost`` ended the present attempt.
    """
    best, stuck, other = 0, 0, 0
    for row in Attempt.objects.filter(run=run, number__gt=run.attempts_forgiven).order_by("number"):
        code = lost.code if row.number == run.attempt else (row.error or {}).get("code")
        if row.last_step > max(best, row.first_step):
            stuck, other = 0, 0
        elif code in OTHERS or (code in CRASHES and row.first_step < row.last_step < best):
            other += 1
        elif code in CRASHES:
            stuck += 1
        best = max(best, row.last_step)
    return stuck, other


def _model_register(run: Run) -> None:
    """Make the final model one that jobs can start from, under the run's name or the next free one."""
    final = Checkpoint.objects.filter(run=run, final=True).order_by("-attempt", "-step").first()
    if final is None and not run.method.trains:
        return  # it trained nothing
    if final is None:
        payload = {"code": "no_final_model", "message": "The run succeeded but left no final model."}
        event_add(run.pk, "warning", payload, attempt=run.attempt)
        return
    taken = set(RegisteredModel.objects.filter(project_id=run.project_id).values_list("name", flat=True))
    name, number = run.name, 1
    while name in taken:
        number += 1
        name = f"{run.name[:70]} ({number})"
    RegisteredModel.objects.get_or_create(
        project_id=run.project_id,
        checkpoint=final,
        defaults={"name": name, "kind": ModelKind.RUN, "created_by_id": run.created_by_id},
    )
