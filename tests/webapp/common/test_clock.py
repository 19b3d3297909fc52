"""What a host with a wrong clock writes and takes, by the clock of the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.state import revoked
from django.db import OperationalError

from webapp.celery import app
from webapp.common import database as clock
from webapp.common.workers.requests import SharedClockRequest

pytestmark = pytest.mark.django_db
HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def unmeasured() -> Iterator[None]:
    """Nothing was measured in this process, and nothing will have been."""
    clock._found = None
    yield
    clock._found = None


def set_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    """This host's clock is ahead; its monotonic clock is not concerned."""
    turned = SimpleNamespace(time=lambda: time.time() + ahead_s, monotonic=time.monotonic)
    monkeypatch.setattr(clock, "time", turned)
    moved = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(seconds=ahead_s))
    monkeypatch.setattr(clock, "datetime", moved)


def expired(expires: datetime) -> bool:
    """Whether a worker would drop a message, as it decides with Celery's own class."""
    headers = {"id": "m-1", "task": "work.do", "expires": expires.isoformat(), "root_id": "m-1"}
    message: Any = SimpleNamespace(
        headers=headers, body=b"", content_type="application/json", content_encoding="utf-8", delivery_info={},
        properties={},
    )  # fmt: skip
    request = SharedClockRequest(
        message, app=app, decoded=True, headers=headers, body=([], {}, {}), on_reject=lambda *_: None
    )
    found = request.maybe_expire()
    assert request.expires == expires, "the message itself is unchanged"
    revoked.discard("m-1")
    return found


@pytest.mark.parametrize(("ahead_s", "found"), [(HOUR_S, HOUR_S), (-HOUR_S, -HOUR_S), (4.5, 0.0), (-4.5, 0.0)])
def test_the_difference_is_measured(monkeypatch: pytest.MonkeyPatch, ahead_s: float, found: float) -> None:
    set_clock(monkeypatch, ahead_s)
    assert clock.last_ahead_s() == 0.0, "nothing is claimed before the first question"
    assert clock.measure() == pytest.approx(found, abs=0.4)
    assert clock.last_ahead_s() == clock.measure.__globals__["_found"][0]
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5


def test_what_is_smaller_than_the_question_may_take_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 5.6)
    assert clock.measure() == pytest.approx(5.6, abs=0.4)
    set_clock(monkeypatch, 4.4)
    assert clock.measure() == 0.0


def test_it_is_measured_once_a_minute(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert clock.ahead_s() == clock.ahead_s() == 0.0
    at = time.monotonic()
    clock._found = (7.0, at - clock.MEASURED_FOR_S + 5, clock._apart_s())
    assert clock.ahead_s() == 7.0
    clock._found = (7.0, at - clock.MEASURED_FOR_S, clock._apart_s())
    with django_assert_num_queries(1):
        assert clock.ahead_s() == 0.0


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_it_is_measured_again_once_the_clock_was_set(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    set_clock(monkeypatch, by_s)
    assert clock.ahead_s() == clock.ahead_s() == pytest.approx(by_s, abs=0.4)
    set_clock(monkeypatch, 0.0)
    assert clock.ahead_s() == 0.0 and abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5


def test_what_ntp_puts_right_is_no_reason_to_ask(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    clock.measure()
    set_clock(monkeypatch, 4.0)
    with django_assert_num_queries(0):
        assert clock.ahead_s() == 0.0


def test_while_the_database_is_away_the_last_figure_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> float:
        raise OperationalError("gone")

    monkeypatch.setattr(clock, "measure", away)
    assert clock.ahead_s() == 0.0
    clock._found = (HOUR_S, time.monotonic() - 1000, clock._apart_s())
    assert clock.ahead_s() == HOUR_S


@pytest.mark.parametrize("sender_s", [0.0, HOUR_S, -HOUR_S])
def test_a_message_expires_by_the_databases_clock(monkeypatch: pytest.MonkeyPatch, sender_s: float) -> None:
    set_clock(monkeypatch, sender_s)
    expires = clock.expiry(20)
    assert abs((expires - datetime.now(UTC)).total_seconds() - 20) < 1.5


def test_a_worker_whose_clock_is_wrong_takes_messages_as_others_do() -> None:
    soon, before = datetime.now(UTC) + timedelta(seconds=20), datetime.now(UTC) - timedelta(seconds=20)
    assert not expired(soon) and expired(before)
    for ahead_s in (HOUR_S, -HOUR_S):  # of a host that is wrong: this process has the right time, so it is the message
        clock._found = (ahead_s, time.monotonic(), clock._apart_s())
        turned = timedelta(seconds=ahead_s)
        assert not expired(soon - turned) and expired(before - turned)


def test_every_task_decides_so() -> None:
    assert app.Task.Request == f"{SharedClockRequest.__module__}:{SharedClockRequest.__qualname__}"
    app.loader.import_default_modules()
    ours = [task for name, task in app.tasks.items() if not name.startswith("celery.")]
    assert len(ours) >= 4 and {task.Request for task in ours} == {app.Task.Request}
