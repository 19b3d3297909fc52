"""One writer for a run: claims race, zombies are fenced, silent workers lose their runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import F
from django.utils import timezone

from tests.chaos.services import wait_until
from tests.webapp.engine.conftest import in_thread
from training import journal
from webapp.engine import attempts as leases
from webapp.engine import recovery
from webapp.engine.attempts import attempt_end
from webapp.engine.history import LeaseLost
from webapp.engine.models import Outbox, ReaperMark
from webapp.engine.services import run_stop
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

OLD = timedelta(minutes=5)


@pytest.fixture
def awake(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reaper that looked a moment ago, on a database that has been up for long."""
    ReaperMark.objects.create(pk=1, ran_at=timezone.now())
    clock = recovery._database_times
    monkeypatch.setattr(recovery, "_database_times", lambda: (clock()[0], clock()[0] - timedelta(days=1)))


def _silent(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_beat_at=F("lease_beat_at") - OLD)


@pytest.mark.django_db(transaction=True)
def test_twenty_claims_at_once_make_one_attempt(queued: Any) -> None:
    run, got, gate = queued(), [], threading.Barrier(20)

    def work() -> None:
        gate.wait()
        got.append(leases.claim(run.pk))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([lease for lease in got if lease]) == 1
    run.refresh_from_db()
    assert (run.attempt, run.state, Attempt.objects.count()) == (1, RunState.PREPARING, 1)


@pytest.mark.django_db
def test_a_beat_of_a_stale_lease_is_refused(queued: Any) -> None:
    run = queued()
    lease = leases.claim(run.pk)
    assert leases.beat(lease) and leases.state_of(lease) == RunState.PREPARING
    attempt_end(lease)
    assert not leases.beat(lease) and leases.state_of(lease) is None
    with pytest.raises(LeaseLost):
        attempt_end(lease)


@pytest.mark.django_db
def test_a_silent_workers_run_goes_back_with_its_tail_projected(written: Any, awake: None) -> None:
    w = written()
    w.write(
        journal.Metrics(step=1, values={"reward": 1.0}), journal.RolloutStarted(rollout="r", step=2, group=0, index=0)
    )
    assert recovery.reap() == 0
    _silent(w.run)
    assert recovery.reap() == 1
    w.run.refresh_from_db()
    assert (w.run.state, w.run.step, w.run.lease_owner) == (RunState.QUEUED, 1, "")
    assert Rollout.objects.get(run=w.run).error["code"] == "attempt_ended"
    assert "stopped answering" in RunEvent.objects.get(run=w.run, kind="warning").payload["message"]
    assert Attempt.objects.get(run=w.run).error["code"] == "worker_lost"
    assert Outbox.objects.filter(run=w.run).exists()
    w.write(journal.Metrics(step=2, values={"reward": 1.0}))
    with pytest.raises(LeaseLost):
        w.project()


@pytest.mark.django_db
def test_a_worker_that_never_beat_is_reaped(queued: Any, awake: None) -> None:
    run = queued()
    leases.claim(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_beat_at=None, lease_started_at=F("lease_started_at") - OLD)
    assert recovery.reap() == 1
    run.refresh_from_db()
    assert run.state == RunState.QUEUED


@pytest.mark.django_db
def test_a_stopping_run_of_a_silent_worker_is_cancelled(written: Any, awake: None) -> None:
    w = written()
    w.write(journal.Metrics(step=4, values={"reward": 1.0}))
    Run.objects.filter(pk=w.run.pk).update(state=RunState.STOPPING)
    _silent(w.run)
    recovery.reap()
    w.run.refresh_from_db()
    assert (w.run.state, w.run.step) == (RunState.CANCELLED, 4)


@pytest.mark.django_db
def test_a_run_that_had_finished_is_not_trained_again(written: Any, awake: None) -> None:
    w = written()
    w.write(journal.Metrics(step=1, values={"reward": 1.0}), journal.RunFinished(status="succeeded", step=1))
    _silent(w.run)
    recovery.reap()
    w.run.refresh_from_db()
    assert w.run.state == RunState.SUCCEEDED


@pytest.mark.django_db
@pytest.mark.parametrize("gap", [timedelta(hours=1), timedelta(hours=-1)])
def test_the_reaper_waits_after_an_outage_or_a_clock_jump(written: Any, awake: None, gap: timedelta) -> None:
    w = written()
    _silent(w.run)
    ReaperMark.objects.update(ran_at=timezone.now() - gap)
    assert recovery.reap() == 0
    assert ReaperMark.objects.get().idle_until > timezone.now()
    ReaperMark.objects.update(idle_until=timezone.now() - timedelta(seconds=1))
    assert recovery.reap() == 1


@pytest.mark.django_db
def test_the_reaper_waits_for_a_database_that_has_just_started(written: Any, awake: None, monkeypatch: Any) -> None:
    w = written()
    _silent(w.run)
    now = timezone.now()
    monkeypatch.setattr(recovery, "_database_times", lambda: (now, now - timedelta(seconds=1)))
    assert recovery.reap() == 0


@pytest.fixture
def locked() -> Iterator[Callable[..., Any]]:
    """``locked("runs_run")``: a transaction elsewhere holds the table (or what the SQL locks); call the result to end
    it."""
    opened: list[Any] = []

    def lock(sql: str) -> Callable[[], None]:
        other = connection.copy()
        opened.append(other)
        other.cursor().execute("SET idle_in_transaction_session_timeout = 0")  # ours would end it after 30 s
        other.set_autocommit(False)
        other.cursor().execute(sql)
        return other.rollback  # answered when the lock is gone; a closed connection leaves that to its server process

    yield lock
    for other in opened:
        other.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", ["ACCESS EXCLUSIVE", "SHARE"])  # ALTER TABLE; CREATE INDEX
def test_a_look_that_cannot_come_through_leaves_no_mark(queued: Any, awake: None, locked: Any, mode: str) -> None:
    """The mark was renewed although the look failed, so a table locked for longer than a lease looked like silence
    of every worker, and a healthy trainer was killed."""
    run = queued()
    leases.claim(run.pk)
    before = ReaperMark.objects.get().ran_at
    unlock = locked(f"LOCK TABLE runs_run IN {mode} MODE")
    with pytest.raises(OperationalError):
        recovery.reap()
    assert ReaperMark.objects.get().ran_at == before
    unlock()
    _silent(run)
    ReaperMark.objects.update(ran_at=timezone.now() - timedelta(seconds=11))
    assert recovery.reap() == 0
    run.refresh_from_db()
    assert run.state == RunState.PREPARING


@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_locked_is_left_alone(queued: Any, awake: None, locked: Any) -> None:
    """Its worker's beat may be waiting behind the same lock."""
    run = queued()
    leases.claim(run.pk)
    _silent(run)
    unlock = locked(f"SELECT 1 FROM runs_run WHERE id = '{run.pk}' FOR NO KEY UPDATE")  # noqa: S608
    assert recovery.reap() == 0
    unlock()
    assert recovery.reap() == 1


@pytest.mark.django_db
def test_a_beat_from_the_future_counts_as_none(written: Any, awake: None) -> None:
    w = written()
    Run.objects.filter(pk=w.run.pk).update(lease_beat_at=F("lease_beat_at") + timedelta(hours=1))
    assert recovery.reap() == 1


@pytest.mark.django_db
def test_forgotten_runs_are_nudged_again(queued: Any, awake: None) -> None:
    run = queued()
    assert recovery.nudge_forgotten() == 1 and recovery.nudge_forgotten() == 0
    Outbox.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    assert recovery.nudge_forgotten() == 1
    waiting = queued(fields={"after": run})
    assert recovery.nudge_forgotten() == 0 and not Outbox.objects.filter(run=waiting).exists()


@pytest.mark.django_db
def test_attempts_without_progress_end(queued: Any, settings: Any) -> None:
    run = queued()
    for _ in range(settings.MAX_ATTEMPTS_WITHOUT_PROGRESS):
        attempt_end(leases.claim(run.pk))
    run.refresh_from_db()
    assert (run.state, run.error["code"], run.attempt) == (RunState.FAILED, "crash_loop", 3)


@pytest.mark.django_db
def test_progress_starts_the_count_again(queued: Any) -> None:
    run = queued()
    for number in range(1, 8):
        lease = leases.claim(run.pk)
        Attempt.objects.filter(run=run, number=number).update(last_step=number // 2)
        attempt_end(lease)
    run.refresh_from_db()
    assert run.state == RunState.QUEUED


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.django_db(transaction=True)
def test_a_trainer_survives_a_table_locked_for_45_seconds(queued: Any, settings: Any, locked: Any) -> None:
    """With the default lease, beats and reaper the run continues in its first attempt, and nothing is lost."""
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S, settings.STOP_GRACE_S = 20, 5, 8
    run, over = queued("sleep-200", steps=100_000), threading.Event()

    def reap_on() -> None:
        while not over.wait(5):
            with contextlib.suppress(OperationalError):
                recovery.reap()
        connection.close()

    beat, trainer = threading.Thread(target=reap_on), in_thread(run)
    beat.start()
    wait_until(lambda: Run.objects.get(pk=run.pk).state == RunState.RUNNING, 30)
    unlock = locked("LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE")
    time.sleep(45)
    unlock()
    step = Run.objects.get(pk=run.pk).step
    wait_until(lambda: Run.objects.get(pk=run.pk).step > step, 30)
    time.sleep(45)
    run.refresh_from_db()
    over.set()
    beat.join(20)
    assert (run.state, run.attempt, Attempt.objects.get(run=run).ended_at) == (RunState.RUNNING, 1, None)
    run_stop(run=run)
    trainer.join(30)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
