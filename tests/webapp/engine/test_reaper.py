"""When the reaper may judge leases, and what it and the outbox send, keep and pass over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from webapp.engine import history, recovery
from webapp.engine.models import Outbox, ReaperMark
from webapp.runs.models import Run

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JUST = timedelta(microseconds=1)
S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("ttl_s", "gap", "idle"),
    [
        (30, 15 * S, None),
        (30, 15 * S + JUST, 30 * S),
        (2, 10 * S, None),  # half of a short lease would be less than the time between two looks
        (2, 10 * S + JUST, 2 * S),
        (30, -S, None),
        (30, -S - JUST, 30 * S),
    ],
)
def test_a_gap_in_the_looks_is_followed_by_one_time_to_live(
    settings: Any, ttl_s: int, gap: timedelta, idle: timedelta | None
) -> None:
    settings.LEASE_TTL_S = ttl_s
    until = recovery._idle_until(ReaperMark(ran_at=NOW - gap), NOW, NOW - timedelta(days=1))
    assert until == (None if idle is None else NOW + idle)


@pytest.mark.parametrize(
    ("up", "before", "until"),
    [
        (30 * S, None, None),
        (30 * S - JUST, None, JUST),
        (10 * S, None, 20 * S),
        (10 * S, 19 * S, 20 * S),
        (10 * S, 21 * S, 21 * S),
        (90 * S, 29 * S, 29 * S),
        (90 * S, 31 * S, 30 * S),  # it was written before the clock was set back
    ],
)
def test_the_reaper_is_idle_after_a_start_and_never_longer_than_one_time_to_live(
    settings: Any, up: timedelta, before: timedelta | None, until: timedelta | None
) -> None:
    settings.LEASE_TTL_S = 30
    mark = ReaperMark(ran_at=NOW, idle_until=None if before is None else NOW + before)
    assert recovery._idle_until(mark, NOW, NOW - up) == (None if until is None else NOW + until)


@pytest.mark.django_db
@pytest.mark.parametrize(("left", "judges"), [(timedelta(0), True), (JUST, False)])
def test_leases_are_judged_from_the_end_of_the_wait_on(monkeypatch: Any, left: timedelta, judges: bool) -> None:
    monkeypatch.setattr(recovery, "_database_times", lambda: (NOW, NOW - timedelta(days=1)))
    ReaperMark.objects.create(pk=1, ran_at=NOW - 5 * S, idle_until=NOW + left)
    assert recovery._expired_runs() == ([] if judges else None)
    mark = ReaperMark.objects.get()
    assert (mark.ran_at, mark.idle_until) == (NOW, NOW + left)


@pytest.mark.django_db
def test_waiting_nudges_go_out_oldest_first_until_the_broker_fails(
    queued: Callable[..., Run], monkeypatch: Any
) -> None:
    rows = [Outbox.objects.create(run=queued()) for _number in range(3)]
    asked: list[int] = []

    def send(row: Outbox) -> bool:
        asked.append(row.pk)
        return len(asked) < 2

    monkeypatch.setattr(history, "_send_message", send)
    assert history.send_unsent() == 1
    assert asked == [rows[0].pk, rows[1].pk]


@pytest.mark.django_db
def test_nudges_are_kept_for_an_hour_after_they_were_sent_and_unsent_ones_until_then(
    queued: Callable[..., Run],
) -> None:
    run, now = queued(), timezone.now()
    ages = {"old": timedelta(minutes=61), "new": timedelta(minutes=59)}
    kept = {name: Outbox.objects.create(run=run, sent_at=now - age) for name, age in ages.items()}
    unsent = Outbox.objects.create(run=run)
    Outbox.objects.filter(pk=unsent.pk).update(created_at=now - timedelta(days=2))
    assert history.send_unsent() == 0
    assert set(Outbox.objects.values_list("pk", flat=True)) == {kept["new"].pk, unsent.pk}


@pytest.mark.django_db
def test_a_nudge_is_repeated_only_after_ten_seconds_and_for_the_run_itself(
    queued: Callable[..., Run], monkeypatch: Any
) -> None:
    first, second = queued(), queued()
    monkeypatch.setattr(recovery, "_database_times", lambda: (NOW, NOW))
    Outbox.objects.create(run=first)
    Outbox.objects.create(run=second)
    Outbox.objects.filter(run=first).update(created_at=NOW - 10 * S)
    Outbox.objects.filter(run=second).update(created_at=NOW - 10 * S + JUST)
    assert recovery.nudge_forgotten() == 1
    assert (Outbox.objects.filter(run=first).count(), Outbox.objects.filter(run=second).count()) == (2, 1)


@pytest.mark.parametrize(
    ("report", "facts"),
    [
        (None, {}),
        ({}, {"missing_tasks": 0, "excluded": 0}),
        (
            {"figures": {"reward": {"value": 0.0}}, "missing_tasks": 2, "excluded": None},
            {"missing_tasks": 2, "excluded": 0, "figure": {"name": "reward", "value": 0.0}},
        ),
        (
            {"figures": {"reward": {"value": 1.0}, "success": {"value": 0.5}}, "excluded": 3},
            {"missing_tasks": 0, "excluded": 3, "figure": {"name": "success", "value": 0.5}},
        ),
        (
            {"figures": {"reward": {"value": 1.0}, "success": {"value": None}}},
            {"missing_tasks": 0, "excluded": 0, "figure": {"name": "reward", "value": 1.0}},
        ),
    ],
)
def test_the_headline_of_an_evaluation_is_its_success_or_else_its_reward(report: Any, facts: dict[str, Any]) -> None:
    assert history._headline_and_left_out(report) == facts
