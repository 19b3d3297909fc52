"""A run that loses its worker keeps its place in the queue, and goes before those that were queued later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from webapp.common.pools import TRAIN
from webapp.engine import attempts as leases
from webapp.engine.attempts import WORKER_CLOSING, attempt_end, worker_lost
from webapp.engine.history import run_transition
from webapp.engine.services import run_resume
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def queued_ago(run: Run, minutes: float) -> Run:
    Run.objects.filter(pk=run.pk).update(queued_at=timezone.now() - timedelta(minutes=minutes))
    run.refresh_from_db()
    return run


@pytest.mark.parametrize("error", [worker_lost("gone:1:x"), WORKER_CLOSING], ids=["lost", "closing"])
def test_a_run_keeps_its_place_when_it_loses_its_worker(queued: Any, error: Any) -> None:
    interrupted, later = queued_ago(queued(), 60), queued_ago(queued(), 30)
    place = interrupted.queued_at
    lease = leases.claim(interrupted.pk)
    assert lease is not None
    assert attempt_end(lease, error).state == RunState.QUEUED
    interrupted.refresh_from_db()
    assert interrupted.queued_at == place
    assert leases.first_in_line(later.pk, TRAIN) == interrupted.pk, "whichever run the message was about"


def test_a_pause_keeps_the_place_and_a_new_start_does_not(queued: Any, alice: User) -> None:
    run = queued_ago(queued(), 60)
    place = run.queued_at
    Run.objects.filter(pk=run.pk).update(state=RunState.PAUSED)
    run.refresh_from_db()
    assert run_resume(run=run, user=alice).queued_at == place
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, attempt=0)
    run.refresh_from_db()
    again = run_resume(run=run, user=alice)
    assert again.state == RunState.QUEUED and again.queued_at > place + timedelta(minutes=59)


def test_of_those_that_can_start_the_one_that_was_queued_first(queued: Any) -> None:
    first, second = queued_ago(queued(), 20), queued_ago(queued(), 10)
    blocked = queued_ago(queued(fields={"after": queued()}), 30)
    paused = queued_ago(queued(), 40)
    Run.objects.filter(pk=paused.pk).update(state=RunState.PAUSED)
    assert leases.first_in_line(second.pk, TRAIN) == first.pk == leases.first_in_line(blocked.pk, TRAIN)
    Run.objects.filter(pk=blocked.after_id).update(state=RunState.SUCCEEDED)
    assert leases.first_in_line(second.pk, TRAIN) == blocked.pk
    Run.objects.filter(state=RunState.QUEUED).update(state=RunState.PAUSED)
    assert leases.first_in_line(second.pk, TRAIN) == second.pk, "it may have to be failed with its predecessor"


@pytest.mark.parametrize(("silent_s", "waits"), [(11, False), (14, True), (300, True)])
def test_nothing_is_claimed_while_an_older_run_may_have_lost_its_worker(
    queued: Any, settings: Any, silent_s: float, waits: bool
) -> None:
    """A worker that was started again took the next run, 20 to 40 s before the interrupted one was given back."""
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S = 20, 5
    interrupted, later = queued_ago(queued(), 60), queued_ago(queued(), 30)
    assert leases.claim(interrupted.pk) is not None
    Run.objects.filter(pk=interrupted.pk).update(lease_beat_at=Now() - timedelta(seconds=silent_s))
    assert leases.first_in_line(later.pk, TRAIN) == (None if waits else later.pk)


@pytest.mark.parametrize("change", [{"imported": True}, {"queued_at": None}, {"state": RunState.SUCCEEDED}])
def test_silent_runs_that_are_passed_over(queued: Any, change: dict[str, Any]) -> None:
    """An import has no trainer, and a run that was queued later has no right to go first."""
    silent, later = queued_ago(queued(), 60), queued_ago(queued(), 30)
    assert leases.claim(silent.pk) is not None
    Run.objects.filter(pk=silent.pk).update(lease_beat_at=Now() - timedelta(minutes=5), **change)
    assert leases.first_in_line(later.pk, TRAIN) == later.pk


def test_a_younger_run_that_is_silent_delays_no_other(queued: Any) -> None:
    silent, older = queued_ago(queued(), 10), queued_ago(queued(), 30)
    run_transition(older.pk, RunState.PAUSED)
    assert leases.claim(silent.pk) is not None
    Run.objects.filter(pk=silent.pk).update(lease_beat_at=Now() - timedelta(minutes=5))
    run_transition(older.pk, RunState.QUEUED)
    assert leases.first_in_line(older.pk, TRAIN) == older.pk
