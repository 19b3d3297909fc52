"""The supervisor: the worker's side of one attempt.

1. Claim the run, or leave. From then on a thread with its own database connection beats, also while the main thread
   waits.
2. Project what earlier attempts left in their journals and seal them. If one of them had already ended the run,
   conclude.
3. Resolve the references again, write config.yaml, start the trainer (from the newest checkpoint, if there is one).
4. Until the trainer has ended: project new journal lines; pass on orders about rollouts in flight (``orders``).
   A stop, a pause, the worker's own shutdown or an endpoint's used-up day limit becomes SIGTERM, and SIGKILL after a
   grace that lets it save once more (``training/sessions.py``). While the database is away, the supervisor waits and
   training continues.
5. Project the rest and decide (``outcome.attempt_end``).
6. When the lease is lost (fenced, or not renewed for PARTITION_LIMIT_S): kill the trainer's group and leave without
   writing anything.
"""

from __future__ import annotations

import logging
import mmap
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from training.config import JobConfig, ReportConfig, config_to_yaml
from training.errors import Boundary, BudgetSpent, ErrorInfo, FilesAway, FilesRefused, TiltyardError
from training.machine import disk_fault
from training.sessions import LAST_WORDS_S, stop_grace
from webapp.common import objects
from webapp.common.database import ahead_s
from webapp.common.errors import DATABASE_AWAY
from webapp.common.logs import about
from webapp.common.pools import TRAIN, device_env
from webapp.common.storage import attempt_dir
from webapp.common.workers.beating import draining, training_problem, worker_here
from webapp.endpoints.services import key_env
from webapp.endpoints.spending import day_over
from webapp.engine import history
from webapp.engine.attempts import (
    WORKER_CLOSING,
    attempt_end,
    beat,
    claim,
    finished_before,
    first_in_line,
    state_of,
)
from webapp.engine.courier import Courier, bring_checkpoint, bring_earlier, site_paths, sweep
from webapp.engine.history import Lease, LeaseLost, event_add
from webapp.engine.projection import Projector, rollouts_close
from webapp.engine.resolve import environments_of, launched_without_rewards, resolve
from webapp.engine.services import earlier_folders, orders_pass, pin_used, resume_from
from webapp.engine.trainer import OUTPUT_NAME, Trainer, kill_orphan, output_tail, tracker_env
from webapp.environments.tokens import trainer_access
from webapp.people.teams.services import hub_env
from webapp.runs.models import Attempt, Run
from webapp.runs.records.order import beat_every_s, trainable
from webapp.runs.states import RunState

# --- Output ---------------------------------------------------------------------------------------------------------
# What a trainer prints goes into ``output.log``, which is kept from growing without a bound.
#
# The trainer appends to the file by itself, so that nothing it prints is lost when its supervisor is killed. The
# supervisor looks at the size as it polls: beyond ``LIMIT_BYTES`` the first ``HEAD_BYTES`` and the last ``TAIL_BYTES``
# stay, with a line between them that says how much was left out. The file is changed in place: the trainer's handle
# appends at the end of the file. A kill at any point leaves a readable file, at worst with some lines twice.

HEAD_BYTES, TAIL_BYTES = 1 << 20, 4 << 20
LIMIT_BYTES = HEAD_BYTES + 2 * TAIL_BYTES


def output_trim(path: Path) -> bool:
    """Shorten the file if it is over the limit. Returns whether it was."""
    try:
        if path.stat().st_size <= LIMIT_BYTES:
            return False
        with open(path, "r+b", buffering=0) as file:
            _cut_middle(file.fileno())
    except OSError:  # it is only what was printed; the next look tries again
        return False
    return True


def _cut_middle(handle: int) -> None:
    size = os.fstat(handle).st_size
    begin = size - TAIL_BYTES
    tail = os.pread(handle, TAIL_BYTES, begin)
    cut = tail.find(b"\n") + 1  # 0 where there is no line's end: then a line is cut
    left_out = begin + cut - HEAD_BYTES
    note = b"\n--- %d bytes left out ---\n" % left_out
    at = HEAD_BYTES + _write_all(handle, note + tail[cut:], HEAD_BYTES)
    # What was printed meanwhile is copied too. Between the last read and the cut a line may be lost.
    while more := os.pread(handle, TAIL_BYTES, size):
        size += len(more)
        at += _write_all(handle, more, at)
    os.ftruncate(handle, at)


def _write_all(handle: int, data: bytes, at: int) -> int:
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], at + written)
    return written


T = TypeVar("T")
logger = logging.getLogger(__name__)
PARTITION_LIMIT_S = 300.0  # without a renewed lease for longer, the run may have another owner
POLL_S, POLL_MAX_S, GATHER_S = 0.02, 0.05, 0.08
LOOK_S = 0.5
PIN_EVERY_S = 5.0
RETRY_S, RETRY_MAX_S = 0.1, 3.0
RETRY_BEAT_S = 0.5
NEXT_RUNS = 4

# One byte that all children of a worker share: set in its main process when it begins to shut down.
_closing = mmap.mmap(-1, 1)


def worker_closing() -> None:
    """Make all supervisors of this worker, in all its processes, hand their runs back."""
    _closing[0] = 1


def closing() -> bool:
    """Whether this worker shuts down."""
    return bool(_closing[0])


def supervise(run_id: UUID, pool: str = TRAIN) -> None:
    """Try to claim the run, or one of its pool that was queued before it, and run one attempt to its end. Safe to
    call any number of times.

    A worker that does not see the installation's data folder would find no dataset, no model and no checkpoint: it
    claims nothing, and says so on the page of workers. Nor does one whose host is draining.
    """
    if problem := training_problem():
        logger.error("this worker claims nothing", extra={"action": "claim", "problem": problem, "run_id": run_id})
        return
    if draining():
        return
    lease = _claim_next(run_id, pool)
    if lease is not None:
        # Another run than the message's may be first in line, which this request did not ask for.
        asked_by = {} if lease.run_id == run_id else {"request_id": ""}
        with about(run_id=lease.run_id, attempt=lease.attempt, **asked_by), objects.in_use():
            Supervisor(lease).run()
        with about(request_id=""):
            nudge_next(pool)


def _claim_next(run_id: UUID, pool: str) -> Lease | None:
    """Claim the first run in line, or ``None``. Where another place was faster, try the next one, whose message may
    have come already."""
    tried: set[UUID] = set()
    while (first := first_in_line(run_id, pool)) is not None and first not in tried:
        tried.add(first)
        if (lease := claim(first)) is not None:
            return lease
    return None


def nudge_next(pool: str) -> None:
    """Nudge the first runs in line: their messages may have expired while this place was busy."""
    try:
        waiting = trainable(Run.objects.filter(state=RunState.QUEUED, pool=pool, on_hold_at=None), worker_here())
        for run in waiting.order_by("queued_at")[:NEXT_RUNS]:
            history.add(run)
    except DATABASE_AWAY:
        connection.close()


class Beater(threading.Thread):
    """Renews the lease from a thread of its own; ``lost`` is set once the lease must be regarded as gone."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(name=f"beat-{lease.run_id}", daemon=True)
        self.lease = lease
        self.lost = threading.Event()
        self._done = threading.Event()

    def run(self) -> None:
        """Beat until ``end`` is called or the lease is gone."""
        renewed, pause = time.monotonic(), beat_every_s()
        while not self._done.wait(pause):
            try:
                if not beat(self.lease):
                    break
                renewed, pause = time.monotonic(), beat_every_s()
            except DATABASE_AWAY:
                connection.close()
                pause = min(RETRY_BEAT_S, beat_every_s())  # soon, so that it is the first when a lock is released
                if time.monotonic() - renewed > PARTITION_LIMIT_S:
                    break
        if not self._done.is_set():
            self.lost.set()
        connection.close()

    def end(self) -> None:
        """Stop beating; call it when the attempt is over."""
        self._done.set()
        self.join(timeout=10)


class Supervisor:
    """One attempt, from claim to outcome."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.folder = attempt_dir(lease.run_id, lease.attempt)
        self.beater = Beater(lease)
        self.projector = Projector(lease)
        self.projector.ahead_s = ahead_s
        self.trainer: Trainer | None = None
        self.courier: Courier | None = None
        self._looked_at = self._pinned_at = 0.0
        self._ordered = 0
        self._endpoint: tuple[UUID, str] = (lease.run_id, "")
        self._over: BudgetSpent | None = None
        self._grace_s = float(settings.STOP_GRACE_S)

    def run(self) -> None:
        """Run the attempt to its end; no trainer is ever left running."""
        self.beater.start()
        logger.info("attempt began", extra={"action": "attempt_begin"})
        try:
            error = self._attempt()
            self._retry_outages(lambda: self._conclude(error))
        except LeaseLost:
            logger.warning("lease lost; leaving", extra={"action": "fenced"})
        except Exception as exc:  # the boundary of the attempt: name it, and let the crash-loop rule decide
            logger.exception("supervisor failed", extra={"action": "supervise"})
            self._end_trainer()
            self._conclude_after_fault(exc)
        finally:
            self._end_trainer()
            if self.courier is not None:
                self.courier.end()
            self.beater.end()

    def _attempt(self) -> ErrorInfo | None:
        try:
            if self._retry_outages(self._catch_up):
                return None
        except (FilesAway, FilesRefused) as exc:
            return self._end_refused(exc)
        if self._retry_outages(lambda: state_of(self.lease)) in {RunState.STOPPING, RunState.PAUSING}:
            return None
        try:
            arguments, access = self._retry_outages(self._prepare)
        except TiltyardError as exc:
            if isinstance(exc, LeaseLost):
                raise
            return self._end_refused(exc)
        except OSError as exc:
            if (fault := disk_fault(exc, self.folder)) is None:
                raise
            return self._end_refused(fault)
        try:
            self.trainer = Trainer(self.folder, arguments, access)
        except OSError as exc:
            if (fault := disk_fault(exc, self.folder)) is not None:
                return self._end_refused(fault)
            message = f"The trainer did not start: {exc}"
            return ErrorInfo(code="trainer_died", boundary=Boundary.TRAINER, message=message)
        if objects.enabled():
            self.courier = courier = Courier(self.lease.run_id, self.lease.attempt, self._report_files)
            courier.start()
            if objects.is_cache():
                self.projector.shipped = lambda: courier.shipped
        code = self._watch(self.trainer)
        try:
            if self.courier is not None:
                self.courier.finish()
        except LeaseLost:
            raise
        except TiltyardError as exc:
            return self._end_refused(exc)
        self._retry_outages(self.projector.drain)
        return self._error_of_death(self.trainer, code)

    def _catch_up(self) -> bool:
        """Project and seal earlier attempts; true if one of them had already ended the run."""
        if objects.enabled():
            if objects.is_cache():
                sweep()
            bring_earlier(self.lease.run_id, self.lease.attempt)
        earlier = Attempt.objects.filter(run_id=self.lease.run_id, number__lt=self.lease.attempt, ended_at=None)
        for number in earlier.order_by("number").values_list("number", flat=True):
            kill_orphan(attempt_dir(self.lease.run_id, number))
            Projector(self.lease, number).drain()
        if finished_before(self.lease):
            return True
        rollouts_close(self.lease, upto=self.lease.attempt - 1)
        return False

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        """Resolve the references and write config.yaml. Returns the trainer's arguments, and its access to servers."""
        run = Run.objects.select_related("project", "resume_checkpoint").filter(pk=self.lease.run_id).first()
        if run is None:
            raise LeaseLost("The run has gone.")
        config = JobConfig.model_validate(run.config)
        found = resolve(run.project, config, launched=launched_without_rewards(run))
        plain = found.config
        if over := day_over(run.project_id, plain.endpoint.name):
            raise over
        self._endpoint = (run.project_id, plain.endpoint.name)
        access = trainer_access(run.project, *environments_of(config)) | key_env(run.project, plain.endpoint)
        access |= tracker_env(plain) | hub_env(run.project, plain) | device_env(run.pool)
        plain.report = named_there(plain, run)
        Run.objects.filter(pk=run.pk, attempt=self.lease.attempt, lease_owner=self.lease.owner).update(
            resolved=site_paths(plain.model_dump(mode="json")) if objects.enabled() else plain.model_dump(mode="json"),
            # A server that had just been started knew no baseline yet when the run was launched.
            baselines=run.baselines or found.baselines,
            environment_version=found.environment_version or run.environment_version,
        )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        config_file = self.folder / "config.yaml"
        config_file.write_text(config_to_yaml(plain), encoding="utf-8")
        arguments = [str(config_file), "--run-dir", str(self.folder), "--attempt", str(self.lease.attempt)]
        if objects.enabled():
            bring_checkpoint(run)
        pin_used(run)
        for folder in earlier_folders(run.pk, self.lease.attempt):
            arguments += ["--earlier", str(folder)]
        source = resume_from(run)
        if plain.report.to:
            arguments += ["--run-id", str(run.pk)]
        return [*arguments, *(["--resume-from", str(source)] if source else [])], access

    def _end_refused(self, error: TiltyardError) -> ErrorInfo:
        """A config that cannot be run now is a typed end, not a death: it is written as the attempt's outcome."""
        info, status = error.info, "paused" if error.pauses else "failed"
        outcome = {"type": "run_finished", "status": status, "step": 0, "error": info.model_dump(mode="json")}
        rows = Attempt.objects.filter(run_id=self.lease.run_id, number=self.lease.attempt)
        self._retry_outages(lambda: rows.update(outcome=outcome))
        return info

    def _watch(self, trainer: Trainer) -> int:
        pause = POLL_S
        while True:
            code = trainer.poll()
            moved = self._retry_outages(self.projector.step)
            if code is not None:
                return code
            if self.beater.lost.is_set():
                raise LeaseLost("The lease was not renewed.")
            self._check_requests(trainer)
            # A batch of few lines costs as much as one of many, so lines are collected for a moment.
            pause = POLL_S if moved else min(pause * 1.5, POLL_MAX_S)
            time.sleep(GATHER_S if moved else pause)

    def _check_requests(self, trainer: Trainer) -> None:
        """Twice a second: was this run asked to stop, or is this worker shutting down?"""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        output_trim(self.folder / OUTPUT_NAME)
        self._pin_here()
        if self.courier is not None:
            self.courier.look()
        if _closing[0]:
            self._ask_to_stop(trainer)
            return
        state = self._retry_outages(lambda: state_of(self.lease))
        if state is None:
            raise LeaseLost("The run has another owner.")
        if state == RunState.RUNNING and self._endpoint[1]:
            self._over = self._over or self._retry_outages(lambda: day_over(*self._endpoint))
        self._ordered = self._retry_outages(lambda: orders_pass(self.lease, self.folder, self._ordered))
        if state in {RunState.STOPPING, RunState.PAUSING} or self._over is not None:
            self._ask_to_stop(trainer)

    def _pin_here(self) -> None:
        """Have retention leave what people chose meanwhile: they pin in the site's folder, which is not this one."""
        run = self.projector.run
        if run is not None and objects.is_cache() and time.monotonic() - self._pinned_at > PIN_EVERY_S:
            self._pinned_at = time.monotonic()
            self._retry_outages(lambda: pin_used(run))

    def _report_files(self, fault: TiltyardError | None) -> None:
        """Show on the run's page, and on that of the workers, that the store does not take what the run writes. The
        site's own host has it anyway."""
        if not objects.is_cache():
            return
        objects.note_problem(
            "" if fault is None else "files_refused" if isinstance(fault, FilesRefused) else "files_away"
        )
        self._retry_outages(lambda: self._write_files_report(fault))

    def _write_files_report(self, fault: TiltyardError | None) -> None:
        with transaction.atomic():
            if fault is not None:
                self._add_event("warning", fault.info.model_dump(mode="json"))
            else:
                self._add_event("log", {"level": "info", "message": "the store of files has the journal again"})
            run = Run.objects.select_for_update(no_key=True).get(pk=self.lease.run_id)
            run.health.pop("files", None)
            if fault is not None:
                run.health["files"] = fault.info.model_dump(mode="json") | {"worker": run.lease_worker}
            Run.objects.filter(pk=run.pk).update(health=run.health)
        if self.projector.run is not None:  # it writes all reports together
            self.projector.run.health = run.health

    def _ask_to_stop(self, trainer: Trainer) -> None:
        """SIGTERM, and later SIGKILL; called again and again. It asks no database, which may be away."""
        if self.projector.run is not None:
            self._grace_s = grace_of(self.projector.run)
        trainer.ask_to_stop(self._grace_s)

    def _error_of_death(self, trainer: Trainer, code: int) -> ErrorInfo | None:
        """The error of a trainer that ended without ``run_finished``; its last lines of output go into the log."""
        rows = Attempt.objects.filter(run_id=self.lease.run_id, number=self.lease.attempt)
        outcome = self._retry_outages(lambda: rows.values_list("outcome", flat=True).first())
        if _closing[0] and (outcome is None or outcome.get("status") == "stopped"):
            return WORKER_CLOSING
        if self._over is not None and (outcome is None or outcome.get("status") == "stopped"):
            return self._over.info
        if outcome is not None or self._retry_outages(lambda: state_of(self.lease)) == RunState.STOPPING:
            return None
        for line in output_tail(self.folder):
            payload = {"level": "error", "message": line, "source": "output"}
            self._retry_outages(lambda payload=payload: self._add_event("log", payload))  # type: ignore[misc]
        return trainer.death(code)

    def _add_event(self, kind: str, payload: dict[str, object]) -> None:
        event_add(self.lease.run_id, kind, payload, attempt=self.lease.attempt, lease=self.lease)

    def _conclude(self, error: ErrorInfo | None) -> None:
        run = attempt_end(self.lease, error)
        logger.info("attempt ended", extra={"action": "attempt_end", "state": run.state})

    def _conclude_after_fault(self, exc: Exception) -> None:
        fault = ErrorInfo(
            code="supervisor_fault",
            boundary=Boundary.LEASE,
            message=f"The supervisor failed: {type(exc).__name__}",
            hint="The worker's log has the details.",
        )
        try:
            self._retry_outages(lambda: self._conclude(fault))
        except LeaseLost:
            logger.warning("lease lost after a fault", extra={"action": "fenced"})

    def _end_trainer(self) -> None:
        if self.trainer is not None:
            self.trainer.kill()

    def _retry_outages(self, action: Callable[[], T]) -> T:
        """Return what ``action`` returns; while the database is away, try again with a growing pause and jitter.

        Raises ``LeaseLost`` once the lease can no longer be ours.
        """
        pause = RETRY_S
        while True:
            try:
                return action()
            except DATABASE_AWAY as exc:
                connection.close()
                if pause == RETRY_S:
                    what = {"action": "wait", "error": repr(exc)[:200]}
                    logger.warning("database away; training continues", extra=what)
            if self.beater.lost.wait(pause * random.uniform(0.5, 1)):  # noqa: S311 (jitter)
                raise LeaseLost("The lease was not renewed.")
            if self.trainer is not None:
                self.trainer.poll()
            pause = min(pause * 2, RETRY_MAX_S)


def named_there(config: JobConfig, run: Run) -> ReportConfig:
    """The names that other trackers get: the run's own and its project's, where the config gives no others."""
    report = config.report
    if not report.to:
        return report
    return report.model_copy(update={"name": report.name or run.name, "project": report.project or run.project.slug})


def grace_of(run: Run) -> float:
    """Seconds from SIGTERM to SIGKILL: what the trainer's own watchdog allows, and some to write its result."""
    save_s, update_s = (float(run.health.get(name) or 0.0) for name in ("save_seconds", "update_seconds"))
    if JobConfig.model_validate(run.config).by_verl:  # it ends between two steps, not within one
        update_s = run.step_seconds or update_s
    grace_s = stop_grace(save_s, update_s, settings.STOP_GRACE_S - LAST_WORDS_S)
    return min(grace_s + LAST_WORDS_S, float(settings.STOP_GRACE_MAX_S))
