"""Scripts that read a run's events as a stream, until the run has ended."""

from __future__ import annotations

import json
import time
from unittest.mock import Mock

import pytest
from django.db import OperationalError

from tests.webapp.live.calls import SSE, make, rhythm, say, watched
from tests.webapp.live.conftest import Watched, in_db
from tests.webapp.live.test_documented import documented
from webapp.engine.history import event_add
from webapp.live import feed
from webapp.people.teams.models import ApiToken, User
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import RunState

__all__ = ["rhythm", "watched"]
pytestmark = pytest.mark.django_db(transaction=True)
AWAY = OperationalError("terminating connection")


def _events(text: str) -> list[dict[str, str]]:
    """What a browser's EventSource makes of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append(fields)
    return found


async def test_a_stream_sends_what_happens_until_the_run_has_ended(watched: Watched, rita: User) -> None:
    await say(watched, "before")
    call = await (await make(watched.run, "", rita, accept=SSE)).ask()
    await call.until("before")
    assert (call.status, call.headers["content-type"], call.headers["cache-control"]) == (200, SSE, "no-store")
    await call.until(": waiting\n\n")
    await say(watched, "after\nit")
    await call.until("after")
    await in_db(event_add)(watched.run.pk, "log", {"level": "info", "message": "the last"}, attempt=1)
    await Run.objects.filter(pk=watched.run.pk).aupdate(state=RunState.SUCCEEDED)
    await call.until("event: ended")
    while call.open:
        await call.take()
    await call.wait(5)
    events = _events(call.text)
    rows = [row async for row in RunEvent.objects.filter(run=watched.run).order_by("seq")]
    assert [event["id"] for event in events[:-1]] == [str(row.seq) for row in rows]
    assert [json.loads(event["data"])["payload"] for event in events[:-1]] == [row.payload for row in rows]
    assert set(json.loads(events[0]["data"])) == documented("EventView") and "event" not in events[0]
    assert events[-1]["event"] == "ended" and json.loads(events[-1]["data"])["state"] == "succeeded"


async def test_a_stream_is_as_quiet_whatever_step_is_known(watched: Watched, rita: User) -> None:
    call = await (await make(watched.run, "step=7", rita, accept=SSE)).ask()
    await call.until(": waiting")
    began = time.monotonic()
    await call.until(": waiting\n\n: waiting\n\n: waiting")
    assert time.monotonic() - began > 0.8, "one comment in half a second of silence"
    await call.leave()


async def test_a_client_that_was_cut_off_continues_from_the_last_id(watched: Watched, rita: User) -> None:
    await say(watched, "one", "two", "three")
    rows = [row async for row in RunEvent.objects.filter(run=watched.run).order_by("seq")]
    call = await (await make(watched.run, "after=0", rita, accept=SSE, last_event_id=str(rows[-2].seq))).ask()
    await call.until("three")
    assert [event["id"] for event in _events(call.text)] == [str(rows[-1].seq)]
    await call.leave()
    bad = await (await make(watched.run, "", rita, accept=SSE, last_event_id="x")).ask()
    await bad.answer(5)
    assert bad.status == 422


async def test_a_stream_is_closed_for_whom_may_not_see_the_run_any_more(watched: Watched, rita: User) -> None:
    call = await (await make(watched.run, "", rita, accept=SSE)).ask()
    await call.until("id: ")
    await ApiToken.objects.filter(pk=call.token.pk).aupdate(revoked_at="2026-01-01T00:00Z")
    await call.until("event: closed")
    while call.open:
        await call.take()
    await call.wait(5)
    closed = _events(call.text)[-1]
    assert closed["event"] == "closed" and json.loads(closed["data"])["code"] == "login_required"


async def test_a_stream_ends_while_the_database_is_away(
    watched: Watched, rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader connects again, and learns the state from a status."""
    call = await (await make(watched.run, "", rita, accept=SSE)).ask()
    await call.until("id: ")
    monkeypatch.setattr(feed, "run_read", Mock(side_effect=AWAY))
    while call.open:
        await call.take()
    await call.wait(5)
    assert call.status == 200 and "event: ended" not in call.text
