"""What happens to a run, in order: events by ``seq``, changes of state, and the nudges to workers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from celery import current_app
from celery.utils.nodenames import worker_direct
from django.db import connection, transaction
from django.db.models.functions import Now

from training.errors import Boundary, ErrorInfo, TiltyardError
from training.words import Sentence
from webapp.common.database import expiry
from webapp.common.text import clean_json
from webapp.common.workers.beating import reporting
from webapp.common.workers.models import Needs
from webapp.engine.models import Outbox
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.runs.models import Run, RunEvent
from webapp.runs.nudge import nudge
from webapp.runs.states import LEASED, TERMINAL, RunState, sources_of

# The outbox: a nudge to the workers is a row first and a message second, so a dead broker loses nothing.
#
# 1. The code that queues a run adds a row in the same transaction.
# 2. After the commit the message is sent; if that fails the row stays unsent.
# 3. A periodic task sends what is unsent and drops old rows. Sending twice is harmless: the lease decides.

logger = logging.getLogger(__name__)
SEND_AT_ONCE = 100
KEEP = timedelta(hours=1)
MESSAGE_EXPIRES_S = 300  # the reaper nudges again, so a message that no worker took may expire


def add(run: Run) -> None:
    """Add a row so that workers are notified of this run, and send their message once the transaction is committed."""
    row = Outbox.objects.create(run=run)
    transaction.on_commit(lambda: _send_message(row), robust=True)


def send_unsent() -> int:
    """Send every waiting nudge, oldest first, until the broker fails; return how many went out. Drop old rows."""
    sent = 0
    for row in Outbox.objects.filter(sent_at=None).select_related("run").order_by("id")[:SEND_AT_ONCE]:
        if not _send_message(row):
            break
        sent += 1
    Outbox.objects.filter(sent_at__lt=Now() - KEEP).delete()
    return sent


def _send_message(row: Outbox) -> bool:
    try:
        for queue in _queues_of(row.run):
            options = {"queue": queue, "retry": False, "expires": expiry(MESSAGE_EXPIRES_S)}
            current_app.send_task("runs.supervise", args=[str(row.run_id), row.run.pool], **options)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("broker away, nudge kept", extra={"action": "outbox", "run_id": row.run_id, "error": repr(exc)})
        return False
    Outbox.objects.filter(pk=row.pk, sent_at=None).update(sent_at=Now())
    return True


def _queues_of(run: Run) -> list[Any]:
    """The queue of its pool; those of each worker that has what it asks for, where it asks for something: a message
    that another worker took would reach none of these. One that may not claim gets it too: it asks again whether it
    may, and nothing else would have it ask."""
    if not run.needs:
        return [run.pool]
    needs = Needs.parse(run.needs)
    return [worker_direct(worker.name) for worker in reporting(run.pool) if needs.met_by(worker)]


# What happens to a run, in order: ``seq`` numbers, events, and the one function that changes a state.
#
# The order is safe for readers because the number is taken by ``UPDATE runs_run SET seq = seq + n`` in the transaction
# that writes the rows: the row lock makes writers follow one another, so no reader sees a higher ``seq`` before a lower
# one.

# Notifications of a run: it succeeded, failed or paused, or an evaluation has its figures.
#
# They are written in the transaction of the transition, once for each: the key is the run with the number of that
# event.

KINDS = {
    RunState.SUCCEEDED: Kind.RUN_SUCCEEDED,
    RunState.FAILED: Kind.RUN_FAILED,
    RunState.PAUSED: Kind.RUN_PAUSED,
}
HEADLINES = ("success", "reward")


def announce(run: Run, error: ErrorInfo | None) -> None:
    """Notify of the run's new state, if it is one that people wait for. Imports are not announced."""
    kind = KINDS.get(RunState(run.state))
    if kind is None or run.imported:
        return
    facts: dict[str, Any] = {"step": run.step, "total_steps": run.total_steps}
    if error is not None:
        facts["error"] = error.model_dump(mode="json")
    if kind == Kind.RUN_SUCCEEDED and run.measures:
        kind, facts = Kind.EVALUATION_READY, _headline_and_left_out(run.evaluation)
    notify(kind, run, key=f"run:{run.pk}:{run.seq}", person_id=run.created_by_id, facts=facts)


def _headline_and_left_out(report: dict[str, Any] | None) -> dict[str, Any]:
    """The headline of a report (``training.evaluation.figures.Report``) and what it leaves out; empty without one."""
    if report is None:
        return {}
    figures = report.get("figures") or {}
    name = next((name for name in HEADLINES if (figures.get(name) or {}).get("value") is not None), None)
    left_out = {key: report.get(key) or 0 for key in ("missing_tasks", "excluded")}
    return left_out | ({"figure": {"name": name, **figures[name]}} if name else {})


KEEPS_PLACE = LEASED | {RunState.PAUSED}  # in the queue, when it comes back there
UNLEASED: dict[str, Any] = {
    "lease_owner": "",
    "lease_worker": "",
    "lease_started_at": None,
    "lease_beat_at": None,
    "held": None,
}


@dataclass(frozen=True)
class Lease:
    """The right to write about a run: it belongs to the present (attempt, owner)."""

    run_id: UUID
    attempt: int
    owner: str


class LeaseLost(TiltyardError):
    """Another worker has the run now; nothing this one says about it counts any more."""

    code, boundary = "lease_lost", Boundary.LEASE


def seq_take(run_id: UUID, count: int, *, lease: Lease | None = None) -> int:
    """Take ``count`` numbers and return the first; the run's row stays locked until the transaction ends.

    With a lease, ``LeaseLost`` is raised unless the lease is still valid: this is the fence of every write.
    """
    sql = "UPDATE runs_run SET seq = seq + %s WHERE id = %s"
    values: list[Any] = [count, run_id]
    if lease is not None:
        sql, values = f"{sql} AND attempt = %s AND lease_owner = %s", [*values, lease.attempt, lease.owner]
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING seq", values)
        row = cursor.fetchone()
    if row is None:
        raise LeaseLost("The run has gone, or another worker has it.")
    return int(row[0]) - count + 1


def event_add(run_id: UUID, kind: str, payload: dict[str, Any], *, attempt: int, lease: Lease | None = None) -> None:
    """Write one event and wake the viewers once it is committed."""
    with transaction.atomic():
        seq = seq_take(run_id, 1, lease=lease)
        RunEvent.objects.create(
            run_id=run_id, seq=seq, attempt=attempt, kind=kind, payload=clean_json(payload), at=Now()
        )
        transaction.on_commit(lambda: nudge(run_id, seq))


def run_transition(
    run_id: UUID,
    target: RunState,
    *,
    sources: frozenset[RunState] | None = None,
    lease: Lease | None = None,
    reason: Sentence | None = None,
    error: ErrorInfo | None = None,
    why: ErrorInfo | None = None,
    **changes: Any,
) -> Run | None:
    """Move a run to ``target``, or return ``None`` if its present state does not allow that.

    1. Lock the row, if its state is a source of ``target`` (and one of ``sources``) and the lease is valid.
    2. Write the state, its times and ``changes``; queued, paused and terminal runs hold no lease.
    3. Write the event with the next ``seq`` in the same transaction, and its notifications (``announce``).
    4. A terminal state wakes the runs that waited for this one, or fails them.

    The event says ``reason``, a sentence, and ``error``, which the run keeps; or ``why``, which only the attempt keeps.
    An ended run continues only where ``sources`` names its state: only a person's request does that, no task by itself.
    """
    legal = set(sources_of(target)) & (set(sources) if sources is not None else set(RunState) - TERMINAL)
    with transaction.atomic():
        rows = Run.objects.select_for_update(no_key=True).filter(pk=run_id, state__in=legal)
        if lease is not None:
            rows = rows.filter(attempt=lease.attempt, lease_owner=lease.owner)
        run = rows.first()
        if run is None:
            return None
        before = run.state
        fields = {"state": target, "seq": run.seq + 1, **_state_times(run, target), **changes}
        if error is not None:
            fields["error"] = clean_json(error.model_dump(mode="json"))
        for name, value in fields.items():
            setattr(run, name, value)
        run.save(update_fields=list(fields))
        run.refresh_from_db()
        shown = error or why
        payload = {
            "from": before,
            "to": target,
            "reason": reason.data if reason else None,
            "error": shown.model_dump(mode="json") if shown else None,
        }
        RunEvent.objects.create(
            run_id=run_id, seq=run.seq, attempt=run.attempt, kind="state", payload=clean_json(payload), at=Now()
        )
        seq = run.seq
        transaction.on_commit(lambda: nudge(run_id, seq))
        announce(run, shown)
        if target == RunState.QUEUED:
            add(run)
        if target in TERMINAL:
            _followers_wake(run)
    return run


def _state_times(run: Run, target: RunState) -> dict[str, Any]:
    if target == RunState.QUEUED:
        kept = run.queued_at if run.state in KEEPS_PLACE else None
        return {"queued_at": kept or Now(), "finished_at": None, "error": None, "phase": "", **UNLEASED}
    if target == RunState.PAUSED:
        return {"phase": "", **UNLEASED}
    if target in TERMINAL:
        return {"finished_at": Now(), "phase": "", "first_at": None, "on_hold_at": None, **UNLEASED}
    return {}


def _followers_wake(run: Run) -> None:
    for follower in Run.objects.filter(after_id=run.pk, state=RunState.QUEUED).order_by("created_at"):
        if run.state == RunState.SUCCEEDED:
            add(follower)
        elif run.state == RunState.FAILED:  # one that was stopped may be resumed: they wait
            run_transition(follower.pk, RunState.FAILED, error=dependency_error(run))


def dependency_error(run: Run) -> ErrorInfo:
    """Why a run that waited for ``run`` cannot start."""
    return ErrorInfo(
        code="dependency_failed",
        boundary=Boundary.MODEL,
        message=f"It was to start from the model of “{run.name}”, but that run ended as {run.state}.",
        hint="Once that run has succeeded, resume this one.",
    )
