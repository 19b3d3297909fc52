"""One writer for a run: claims race, zombies are fenced, silent workers lose their runs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from training import journal as j
from webapp.rollouts.models import Rollout
from webapp.runs.engine import lease as leases
from webapp.runs.engine import reaper
from webapp.runs.engine.history import LeaseLost
from webapp.runs.engine.outcome import attempt_end
from webapp.runs.models import Attempt, Outbox, ReaperMark, Run, RunEvent
from webapp.runs.states import RunState

OLD = timedelta(minutes=5)


@pytest.fixture
def awake(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reaper that looked a moment ago, on a database that has been up for long."""
    ReaperMark.objects.create(pk=1, ran_at=timezone.now())
    clock = reaper._clock
    monkeypatch.setattr(reaper, "_clock", lambda: (clock()[0], clock()[0] - timedelta(days=1)))


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
    w.write(j.Metrics(step=1, values={"reward": 1.0}), j.RolloutStarted(rollout="r", step=2, group=0, index=0))
    assert reaper.reap() == 0
    _silent(w.run)
    assert reaper.reap() == 1
    w.run.refresh_from_db()
    assert (w.run.state, w.run.step, w.run.lease_owner) == (RunState.QUEUED, 1, "")
    assert Rollout.objects.get(run=w.run).error["code"] == "attempt_ended"
    assert "stopped answering" in RunEvent.objects.get(run=w.run, kind="warning").payload["message"]
    assert Attempt.objects.get(run=w.run).error["code"] == "worker_lost"
    assert Outbox.objects.filter(run=w.run).exists()
    w.write(j.Metrics(step=2, values={"reward": 1.0}))
    with pytest.raises(LeaseLost):
        w.project()


@pytest.mark.django_db
def test_a_worker_that_never_beat_is_reaped(queued: Any, awake: None) -> None:
    run = queued()
    leases.claim(run.pk)
    Run.objects.filter(pk=run.pk).update(lease_beat_at=None, lease_started_at=F("lease_started_at") - OLD)
    assert reaper.reap() == 1
    run.refresh_from_db()
    assert run.state == RunState.QUEUED


@pytest.mark.django_db
def test_a_stopping_run_of_a_silent_worker_is_cancelled(written: Any, awake: None) -> None:
    w = written()
    w.write(j.Metrics(step=4, values={"reward": 1.0}))
    Run.objects.filter(pk=w.run.pk).update(state=RunState.STOPPING)
    _silent(w.run)
    reaper.reap()
    w.run.refresh_from_db()
    assert (w.run.state, w.run.step) == (RunState.CANCELLED, 4)


@pytest.mark.django_db
def test_a_run_that_had_finished_is_not_trained_again(written: Any, awake: None) -> None:
    w = written()
    w.write(j.Metrics(step=1, values={"reward": 1.0}), j.RunFinished(status="succeeded", step=1))
    _silent(w.run)
    reaper.reap()
    w.run.refresh_from_db()
    assert w.run.state == RunState.SUCCEEDED


@pytest.mark.django_db
@pytest.mark.parametrize("gap", [timedelta(hours=1), timedelta(hours=-1)])
def test_the_reaper_waits_after_an_outage_or_a_clock_jump(written: Any, awake: None, gap: timedelta) -> None:
    w = written()
    _silent(w.run)
    ReaperMark.objects.update(ran_at=timezone.now() - gap)
    assert reaper.reap() == 0
    assert ReaperMark.objects.get().idle_until > timezone.now()
    ReaperMark.objects.update(idle_until=timezone.now() - timedelta(seconds=1))
    assert reaper.reap() == 1


@pytest.mark.django_db
def test_the_reaper_waits_for_a_database_that_has_just_started(written: Any, awake: None, monkeypatch: Any) -> None:
    w = written()
    _silent(w.run)
    now = timezone.now()
    monkeypatch.setattr(reaper, "_clock", lambda: (now, now - timedelta(seconds=1)))
    assert reaper.reap() == 0


@pytest.mark.django_db
def test_a_beat_from_the_future_counts_as_none(written: Any, awake: None) -> None:
    w = written()
    Run.objects.filter(pk=w.run.pk).update(lease_beat_at=F("lease_beat_at") + timedelta(hours=1))
    assert reaper.reap() == 1


@pytest.mark.django_db
def test_forgotten_runs_are_nudged_again(queued: Any, awake: None) -> None:
    run = queued()
    assert reaper.nudge_forgotten() == 1 and reaper.nudge_forgotten() == 0
    Outbox.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    assert reaper.nudge_forgotten() == 1
    waiting = queued(fields={"after": run})
    assert reaper.nudge_forgotten() == 0 and not Outbox.objects.filter(run=waiting).exists()


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
