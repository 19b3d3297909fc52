"""Scripts that wait for a run's events over HTTP: one answer."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client

from tests.webapp.api.answers import complaints
from tests.webapp.live.calls import SSE, all_wait, make, rhythm, say, watched
from tests.webapp.live.conftest import Watched, in_db
from tests.webapp.live.test_documented import documented
from webapp.common import serving
from webapp.engine.history import event_add
from webapp.live import feed, waiting
from webapp.people.teams.models import Membership, User
from webapp.people.teams.tokens import token_revoke
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import RunState

__all__ = ["rhythm", "watched"]
pytestmark = pytest.mark.django_db(transaction=True)


async def test_it_answers_as_soon_as_something_happens(
    watched: Watched, rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_S", 30.0)  # a nudge wakes it
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(call)
    await say(watched, "first", "second")
    began = time.monotonic()
    found = await call.answer()
    assert call.status == 200 and time.monotonic() - began < 10
    assert [item["payload"]["message"] for item in found["items"]][:1] == ["first"]
    assert set(found["items"][0]) == documented("EventView") and set(found["run"]) == documented("RunView")
    assert (found["ended"], found["run"]["state"], found["after"]) == (False, "preparing", found["items"][-1]["seq"])
    assert complaints("GET", call.path, 200, found) == []
    assert call.headers["content-type"] == "application/json; charset=utf-8"
    assert call.headers["cache-control"] == "private, no-store"
    assert {"x-request-id", "content-security-policy"} <= set(call.headers)
    assert int(call.headers["content-length"]) == len(call.text.encode())


async def test_it_answers_with_nothing_after_its_time(watched: Watched, rita: User) -> None:
    began = time.monotonic()
    call = await (await make(watched.run, f"wait=1&after={watched.run.seq}", rita)).ask()
    found = await call.answer()
    assert time.monotonic() - began > 0.9 and (found["items"], found["ended"], found["more"]) == ([], False, False)
    assert found["after"] == found["seq"] == watched.run.seq


@pytest.mark.parametrize(("language", "words"), [("en", "step 3 continues"), ("zh-hans", "第 3 步继续")])
async def test_words_are_in_the_language_of_the_request(
    watched: Watched, rita: User, language: str, words: str
) -> None:
    there = await make(watched.run, f"wait=30&after={watched.run.seq}", rita, **{"accept_language": language})
    await all_wait(there)
    await in_db(event_add)(watched.run.pk, "held", {"step": 3, "error": None}, attempt=1)
    assert [item["words"] for item in (await there.answer())["items"]] == [words]
    at_once = await make(watched.run, f"after={watched.run.seq}", rita, **{"accept_language": language})
    assert [item["words"] for item in (await (await at_once.ask()).answer())["items"]] == [words]


async def test_what_is_there_is_answered_at_once_in_order_and_in_parts(watched: Watched, rita: User) -> None:
    await say(watched, *(str(number) for number in range(5)))
    seen, after, more = [], 0, True
    while more:
        found = await (await (await make(watched.run, f"wait=30&limit=2&after={after}", rita)).ask()).answer(5)
        assert len(found["items"]) <= 2 and all(item["seq"] > after for item in found["items"])
        seen += [item["seq"] for item in found["items"]]
        after, more = found["after"], found["more"]
    assert seen == [row.seq async for row in RunEvent.objects.filter(run=watched.run).order_by("seq")]


async def test_an_ended_run_says_so_at_once(make_run: Any, rita: User) -> None:
    run = await in_db(make_run)(state=RunState.SUCCEEDED)
    for number in range(3):
        await in_db(event_add)(run.pk, "log", {"level": "info", "message": str(number)}, attempt=1)
    found = await (await (await make(run, "wait=30&limit=2", rita)).ask()).answer(5)
    assert (len(found["items"]), found["more"], found["ended"]) == (2, True, False), "there is more to read"
    found = await (await (await make(run, f"wait=30&limit=2&after={found['after']}", rita)).ask()).answer(5)
    assert (len(found["items"]), found["more"], found["ended"]) == (1, False, True)
    found = await (await (await make(run, f"wait=30&after={found['after']}", rita)).ask()).answer(5)
    assert (found["items"], found["ended"], found["run"]["state"]) == ([], True, "succeeded")


async def test_the_end_ends_the_wait_and_a_resumed_run_is_waited_for_again(watched: Watched, rita: User) -> None:
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(call)
    await Run.objects.filter(pk=watched.run.pk).aupdate(state=RunState.FAILED)
    assert (await call.answer(5))["ended"] is True
    await Run.objects.filter(pk=watched.run.pk).aupdate(state=RunState.QUEUED)
    again = await (await make(watched.run, f"wait=1&after={watched.run.seq}", rita)).ask()
    assert (await again.answer())["ended"] is False


async def test_another_step_than_the_known_one_ends_the_wait(watched: Watched, rita: User) -> None:
    await Run.objects.filter(pk=watched.run.pk).aupdate(step=3)
    at_once = await (await make(watched.run, f"wait=30&step=2&after={watched.run.seq}", rita)).ask()
    found = await at_once.answer(5)
    assert (found["items"], found["run"]["step"]) == ([], 3)
    call = await make(watched.run, f"wait=30&step=3&after={watched.run.seq}", rita)
    await all_wait(call)
    await Run.objects.filter(pk=watched.run.pk).aupdate(step=4)
    assert (await call.answer(5))["run"]["step"] == 4


async def test_a_number_that_the_run_has_not_reached_is_no_place_to_wait(watched: Watched, rita: User) -> None:
    for after in (watched.run.seq + 1, 10**30):
        call = await make(watched.run, f"wait=30&after={after}", rita)
        await all_wait(call)
        await say(watched, "more")
        assert (await call.answer(5))["items"]


@pytest.mark.parametrize("query", ["wait=31", "wait=-1", "wait=x", "wait=1.5", "wait=1&step=-1", "wait=1&after=x"])
async def test_what_cannot_be_waited_for(query: str, watched: Watched, rita: User) -> None:
    call = await (await make(watched.run, query, rita)).ask()
    assert (await call.answer())["code"] == "invalid" and call.status == 422


async def test_who_may_not_see_the_run_does_not_wait(watched: Watched, charlie: User) -> None:
    for accept in ("*/*", SSE):
        for user, status in ((charlie, 404), (None, 401)):
            call = await (await make(watched.run, "wait=30", user, accept=accept)).ask()
            await call.answer(5)
            assert call.status == status


# --- Who waits ------------------------------------------------------------------------------------------------------
async def test_a_revoked_token_ends_the_wait(watched: Watched, rita: User) -> None:
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(call)
    await in_db(token_revoke)(call.token)
    found = await call.answer(5)
    assert (call.status, found["code"]) == (401, "login_required")
    assert found["message"].startswith("This API token has ended:") and found["request_id"]


async def test_nothing_is_sent_to_people_who_lost_the_project_meanwhile(
    watched: Watched, rita: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "RECHECK_S", 60.0)
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita, **{"accept_language": "zh-hans"})
    await all_wait(call)
    await asyncio.sleep(0.1)
    await Membership.objects.filter(user=rita).adelete()
    await say(watched, "secret")
    found = await call.answer(5)
    assert (call.status, found["code"]) == (404, "not_found") and "secret" not in call.text
    assert found["message"] != "There is nothing here, or you may not see it."


async def test_a_deleted_run_ends_the_wait(watched: Watched, rita: User) -> None:
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(call)
    await in_db(Run.objects.filter(pk=watched.run.pk).delete)()
    await call.answer(5)
    assert call.status == 404


async def test_a_browser_may_wait_until_it_is_logged_out(watched: Watched, rita: User) -> None:
    client = Client()
    await in_db(client.force_login)(rita)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", cookie=cookie)
    await all_wait(call)
    await in_db(client.logout)()
    await call.answer(5)
    assert call.status == 401


async def test_one_person_waits_a_bounded_number_of_times(watched: Watched, rita: User, bob: User) -> None:
    assert waiting.WAITING_MAX == 20, "docs/api.md says so"
    query = f"wait=30&after={watched.run.seq}"
    calls = [await make(watched.run, query, rita) for _each in range(20)]
    await all_wait(*calls)
    for accept in ("*/*", SSE):
        more = await (await make(watched.run, query, rita, accept=accept)).ask()
        assert (await more.answer(5))["code"] == "rate_limited"
        assert (more.status, more.headers["retry-after"]) == (429, "5")
    other = await make(watched.run, query, bob)
    await all_wait(other)
    await calls[0].leave()
    again = await make(watched.run, query, rita)
    await all_wait(again)
    await say(watched, "now")
    for call in (*calls[1:], other, again):
        assert (await call.answer())["items"] and call.status == 200


async def test_all_together_wait_a_bounded_number_of_times(
    watched: Watched, rita: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAITING_ALL", 1)
    first = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(first)
    second = await (await make(watched.run, f"wait=30&after={watched.run.seq}", bob)).ask()
    await second.answer(5)
    assert second.status == 429
    await first.leave()


async def test_a_client_that_hangs_up_ends_its_listener(watched: Watched, rita: User) -> None:
    calls = [await make(watched.run, "wait=30", rita, accept=accept) for accept in (SSE, SSE)]
    await all_wait(*calls)
    assert watched.run.pk in feed.feed()._ears
    for call in calls:
        await call.leave()
    assert not waiting._waiting and watched.run.pk not in feed.feed()._ears


def _connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


async def test_waiting_takes_no_thread_and_no_connection(watched: Watched, rita: User) -> None:
    query = f"wait=30&after={watched.run.seq}"
    warm = await make(watched.run, query, rita)
    await all_wait(warm)
    before = (threading.active_count(), await in_db(_connections)())
    calls = [await make(watched.run, query, rita) for _each in range(19)]
    await all_wait(*calls)
    await asyncio.sleep(0.2)
    during = (threading.active_count(), await in_db(_connections)())
    grown = [now - then for now, then in zip(during, before, strict=True)]
    assert max(grown) <= serving.THREADS, (before, during)
    for call in (warm, *calls):
        await call.leave()


AWAY, FAULT = OperationalError("terminating connection"), RuntimeError("a fault of ours")


@pytest.mark.parametrize(
    ("error", "status", "code", "after"), [(AWAY, 503, "unavailable", "5"), (FAULT, 500, "internal", None)]
)
async def test_what_goes_wrong_while_a_client_waits_is_reported(
    watched: Watched,
    rita: User,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
    after: str | None,
) -> None:
    call = await make(watched.run, f"wait=30&after={watched.run.seq}", rita)
    await all_wait(call)
    monkeypatch.setattr(feed, "run_read", Mock(side_effect=error))
    found = await call.answer(5)
    assert (call.status, found["code"], call.headers.get("retry-after")) == (status, code, after)
    assert found["request_id"] == call.headers["x-request-id"]
