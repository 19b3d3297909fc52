"""A claim, a beat and a take-over, column by column."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from webapp.engine import attempts as leases
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.records.order import beat_every_s

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)


def _events(run: Run) -> list[tuple[str, int, dict[str, Any]]]:
    rows = RunEvent.objects.filter(run=run).order_by("seq")
    return [(row.kind, row.attempt, row.payload) for row in rows]


def test_a_claim_writes_the_lease_the_attempt_and_the_history(queued: Any) -> None:
    run = queued(fields={"step_seconds": 3.0, "last_step_at": timezone.now(), "attempt": 4})
    before = timezone.now() - SECOND
    lease = leases.claim(run.pk)
    assert lease is not None
    run.refresh_from_db()
    assert (lease.run_id, lease.attempt, lease.owner) == (run.pk, 5, run.lease_owner)
    assert (run.state, run.attempt, run.phase) == ("preparing", 5, "preparing")
    assert (run.step_seconds, run.last_step_at) == (None, None)
    assert min(run.lease_started_at, run.lease_beat_at, run.started_at) > before
    attempt = Attempt.objects.get(run=run)
    assert (attempt.number, attempt.owner, attempt.ended_at) == (5, lease.owner, None) and attempt.started_at > before
    state, event = _events(run)
    assert state[:2] == ("state", 5) and (state[2]["from"], state[2]["to"]) == ("queued", "preparing")
    assert event == ("attempt", 5, {"number": 5, "owner": lease.owner})


@pytest.mark.parametrize("ahead_s", [0.0, 3600.5, -120.0])
def test_an_attempt_keeps_how_wrong_its_hosts_clock_is(
    queued: Any, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setattr(leases, "ahead_s", lambda: ahead_s)
    run = queued()
    assert leases.claim(run.pk) is not None
    assert Attempt.objects.get(run=run).clock_s == ahead_s


def test_a_second_attempt_keeps_the_time_of_the_first(queued: Any) -> None:
    first = timezone.now() - timedelta(hours=1)
    run = queued(fields={"started_at": first})
    leases.claim(run.pk)
    run.refresh_from_db()
    assert run.started_at == first and run.lease_started_at > first + SECOND


@pytest.mark.parametrize("state", ["draft", "preparing", "running", "paused", "succeeded", "failed", "cancelled"])
def test_only_a_queued_run_is_claimed(queued: Any, state: str) -> None:
    run = queued()
    Run.objects.filter(pk=run.pk).update(state=state)
    assert leases.claim(run.pk) is None and not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("before", "expected", "claimed"),
    [
        ("succeeded", "preparing", True),
        ("running", "queued", False),
        ("paused", "queued", False),
        ("failed", "failed", False),
        ("cancelled", "queued", False),
    ],
)
def test_a_run_waits_for_its_predecessor_and_fails_with_it(
    queued: Any, before: str, expected: str, claimed: bool
) -> None:
    first = queued()
    run = queued(fields={"after": first})
    Run.objects.filter(pk=first.pk).update(state=before)
    assert (leases.claim(run.pk) is not None) is claimed
    run.refresh_from_db()
    assert run.state == expected
    if expected == "failed":
        assert run.error["code"] == "dependency_failed"
        assert [payload["error"]["code"] for kind, _attempt, payload in _events(run)] == ["dependency_failed"]


def test_of_two_runs_the_one_that_was_named_is_claimed(queued: Any) -> None:
    first, second = queued(), queued()
    for run in (first, second):  # the newest row is the first that a query finds
        lease = leases.claim(run.pk)
        assert lease is not None and lease.run_id == run.pk
    assert set(Attempt.objects.values_list("run", "number")) == {(first.pk, 1), (second.pk, 1)}


def test_names_of_owners_never_repeat() -> None:
    names = {leases.new_owner("reaper:") for _ in range(50)}
    assert len(names) == 50
    start = f"reaper:{socket.gethostname()}:{os.getpid()}:"
    assert all(name.startswith(start) and len(name) == len(start) + 12 for name in names)
    assert leases.new_owner().startswith(socket.gethostname())


@pytest.mark.parametrize(("beat_s", "ttl_s", "expected"), [(5, 60, 5.0), (5, 8, 2.0), (20, 60, 15.0)])
def test_four_beats_fit_into_the_time_to_live(settings: Any, beat_s: float, ttl_s: float, expected: float) -> None:
    settings.LEASE_BEAT_S, settings.LEASE_TTL_S = beat_s, ttl_s
    assert beat_every_s() == expected


def test_a_beat_renews_its_own_lease_only(queued: Any) -> None:
    run, other = queued(), queued()
    lease = leases.claim(run.pk)
    leases.claim(other.pk)
    assert lease is not None
    Run.objects.update(lease_beat_at=F("lease_beat_at") - timedelta(minutes=5))
    assert leases.beat(lease)
    old = timezone.now() - timedelta(minutes=1)
    assert Run.objects.get(pk=run.pk).lease_beat_at > old > Run.objects.get(pk=other.pk).lease_beat_at
    for of_run, attempt, owner in ((run, 2, lease.owner), (run, 1, "x"), (other, 1, lease.owner)):
        stale = leases.Lease(of_run.pk, attempt, owner)
        assert not leases.beat(stale) and leases.state_of(stale) is None


def test_a_run_that_is_not_at_work_is_not_held(queued: Any) -> None:
    run = queued()
    lease = leases.claim(run.pk)
    assert lease is not None and leases.state_of(lease) == "preparing"
    Run.objects.update(state="paused")
    assert not leases.beat(lease) and leases.state_of(lease) is None


@pytest.mark.parametrize(
    ("age_s", "late"), [(-3, False), (-7, True), (0, False), (8, False), (12, True)]
)  # beyond now: before the clock was set back
def test_a_lease_expires_after_its_time_to_live(queued: Any, settings: Any, age_s: int, late: bool) -> None:
    settings.LEASE_TTL_S = 10
    run = queued()
    leases.claim(run.pk)
    Run.objects.update(lease_beat_at=F("lease_beat_at") - timedelta(seconds=age_s))
    assert list(leases.expired()) == ([run] if late else [])


@pytest.mark.parametrize("column", ["lease_started_at", "queued_at", "created_at"])
def test_a_beat_that_never_came_counts_from_the_newest_time_there_is(queued: Any, column: str) -> None:
    run = queued()
    leases.claim(run.pk)
    names = ["lease_beat_at", "lease_started_at", "queued_at", "created_at"]
    earlier = dict.fromkeys(names[: names.index(column)])
    Run.objects.update(**earlier, **{column: timezone.now()})
    assert not leases.expired().exists()
    Run.objects.update(**{column: timezone.now() - timedelta(hours=1)})
    assert leases.expired().get() == run


def test_a_take_over_keeps_the_attempt_and_fences_the_old_owner(queued: Any) -> None:
    run = queued()
    lease = leases.claim(run.pk)
    assert lease is not None
    run.refresh_from_db()
    assert leases.take_over(run) is None and leases.beat(lease)  # it is alive
    Run.objects.update(lease_beat_at=F("lease_beat_at") - timedelta(minutes=5))
    taken = leases.take_over(run)
    assert taken is not None and (taken.run_id, taken.attempt) == (run.pk, 1) and taken.owner.startswith("reaper:")
    row = Run.objects.get(pk=run.pk)
    assert row.lease_owner == taken.owner and row.lease_beat_at > timezone.now() - timedelta(seconds=30)
    assert leases.beat(taken) and not leases.beat(lease)


def test_of_two_leases_that_expired_the_one_that_was_named_is_taken(queued: Any) -> None:
    dead, other = queued(), queued()
    for run in (dead, other):
        leases.claim(run.pk)
    Run.objects.update(lease_owner="the same worker", lease_beat_at=F("lease_beat_at") - timedelta(minutes=5))
    dead.refresh_from_db()
    assert leases.take_over(dead) is not None
    assert Run.objects.get(pk=other.pk).lease_owner == "the same worker"
    assert list(leases.expired()) == [other]


@pytest.mark.parametrize("change", [{"attempt": 2}, {"lease_owner": "another"}])
def test_a_lease_that_changed_since_it_was_read_is_not_taken(queued: Any, change: dict[str, Any]) -> None:
    run = queued()
    leases.claim(run.pk)
    run.refresh_from_db()
    Run.objects.update(lease_beat_at=F("lease_beat_at") - timedelta(minutes=5), **change)
    assert leases.take_over(run) is None
