"""kill -9 of every part in turn, with real workers: the run ends right, the database is the journal."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import websockets
from celery import Celery
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from tests.chaos.house import House, gone
from tests.chaos.services import alive, wait_until
from tests.chaos.truth import assert_exact
from tests.webapp.live.conftest import Tab
from webapp.common.workers.models import Worker
from webapp.engine.services import run_stop
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(150)]
SCRIPT = "sleep-25"
SEEN_S = 30  # a lease of 20 s, a look every five


def _succeeded(house: House, run: Run, attempts: int) -> None:
    house.ends(run)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, attempts, run.total_steps), house.tail()
    assert_exact(run)


@pytest.mark.slow
def test_the_trainer(house: House) -> None:
    run = house.launch(SCRIPT, 60, save_every=10)
    os.kill(house.reaches(run, 15), signal.SIGKILL)
    _succeeded(house, run, attempts=2)
    assert Attempt.objects.get(run=run, number=2).first_step >= 10


def test_the_worker(house: House) -> None:
    run = house.launch(SCRIPT, 60, save_every=10)
    trainer = house.reaches(run, 15)
    house.kill9("train", spare={trainer})
    gone(trainer, 5)
    died = time.monotonic()
    house.worker("train")
    wait_until(lambda: Attempt.objects.get(run=run, number=1).ended_at, 45, what="death seen")
    assert time.monotonic() - died <= SEEN_S
    _succeeded(house, run, attempts=2)


def test_real_workers_tell_who_they_are_and_what_they_do(house: House) -> None:
    """No person could see which worker had which run, on what."""
    run = house.launch(SCRIPT, 120)
    house.reaches(run, 3)
    worker = Worker.objects.get(name=Run.objects.get(pk=run.pk).lease_worker, queues=["train"])
    assert worker.name.startswith("train") and (worker.problem, worker.version) == ("", settings.PRODUCT_VERSION)
    wait_until(lambda: Worker.objects.filter(queues__contains=["short", "long"]).exists(), 15, what="its row")
    _succeeded(house, run, attempts=1)
    assert Run.objects.get(pk=run.pk).lease_worker == ""


@pytest.mark.slow
def test_redis(house: House) -> None:
    run = house.launch(SCRIPT, 150)
    house.reaches(run, 10)
    house.redis.kill9()
    second = house.launch(SCRIPT, 5)
    time.sleep(1.5)
    house.redis.start()
    _succeeded(house, run, attempts=1)
    _succeeded(house, second, attempts=1)


@pytest.mark.slow
def test_postgres(house: House) -> None:
    run = house.launch(SCRIPT, 200)
    trainer = house.reaches(run, 10)
    house.cut_postgres()
    time.sleep(2.5)
    assert alive(trainer)
    house.postgres.start()
    _succeeded(house, run, attempts=1)


def _cookie(house: House) -> str:
    session = SessionStore()
    session[SESSION_KEY], session[BACKEND_SESSION_KEY] = str(house.user.pk), "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = house.user.get_session_auth_hash()
    session.create()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


async def _watch(house: House, run: Run, cookie: str, tab: Tab, until: RunState, *, all_of_it: bool = False) -> None:
    """A browser: it connects again with its last seq whenever the line breaks; ``all_of_it`` asks for what the first
    frame leaves out."""
    import json

    origin, path = f"http://127.0.0.1:{house.port}", f"ws://127.0.0.1:{house.port}/ws/runs/{run.pk}/"
    while True:
        after = f"?after={tab.seq}" if tab.seq >= 0 else ""
        try:
            async with websockets.connect(path + after, additional_headers={"Cookie": cookie}, origin=origin) as socket:
                async for text in socket:
                    tab.take(json.loads(text))
                    for request in tab.requests() if all_of_it and len(tab.frames) == 1 else []:
                        await socket.send(json.dumps(request))
                    done = tab.answered() or not all_of_it
                    if done and tab.run.get("state") == until and tab.seq == tab.run["seq"]:
                        return
        except (OSError, websockets.WebSocketException):
            await asyncio.sleep(0.2)


def test_the_web(house: House) -> None:
    house.web()
    cookie, tab, fresh = _cookie(house), Tab(), Tab()
    run = house.launch(SCRIPT, 120)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(
            lambda: asyncio.run(asyncio.wait_for(_watch(house, run, cookie, tab, RunState.SUCCEEDED), 60))
        )
        house.reaches(run, 20)
        house.kill9("web")
        house.reaches(run, 50)
        house.web()
        watching.result()
    _succeeded(house, run, attempts=1)
    assert sum(frame["type"] == "snapshot" for frame in tab.frames) == 1
    asyncio.run(asyncio.wait_for(_watch(house, run, cookie, fresh, RunState.SUCCEEDED, all_of_it=True), 20))
    assert tab.shown() == fresh.shown()


@pytest.mark.slow
def test_a_zombie_worker(house: House) -> None:
    """Stopped for longer than its lease, taken over, and woken: it writes nothing and lets go."""
    run = house.launch(SCRIPT, 10_000, save_every=10)
    trainer = house.reaches(run, 15)
    frozen = house.freeze("train", spare={trainer})
    house.worker("train", name="second")
    try:
        wait_until(lambda: Run.objects.get(pk=run.pk).attempt == 2, 60, what="takeover")
        print([(e.kind, str(e.payload)[:90], str(e.at)[14:23]) for e in run.events.exclude(kind="phase")])
        wait_until(lambda: Attempt.objects.get(run=run, number=2).last_step, 20, what="a step of the second attempt")
        before = Attempt.objects.get(run=run, number=1)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{house.tail()}") from None
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    gone(trainer, 5)
    time.sleep(1)
    after = Attempt.objects.get(run=run, number=1)
    assert (after.journal_offset, after.last_step) == (before.journal_offset, before.last_step)
    run_stop(run=run)
    house.ends(run)
    assert (run.state, run.attempt) == (RunState.CANCELLED, 2)
    assert_exact(run)
    house.kill9("second")
    follow = house.launch(SCRIPT, 3)
    _succeeded(house, follow, attempts=1)


def test_a_worker_that_is_asked_to_end_hands_its_run_back(house: House) -> None:
    """A deploy. The trainer is stopped, the run queued again, and the worker leaves by itself."""
    run = house.launch(SCRIPT, 80, save_every=5)
    trainer = house.reaches(run, 12)
    worker = house.processes.pop("train")
    worker.terminate()
    worker.wait(15)
    assert not alive(trainer)
    assert Attempt.objects.get(run=run, number=1).error["code"] == "worker_closing"
    house.worker("train")
    _succeeded(house, run, attempts=2)


def test_the_same_message_twenty_times_trains_once(house: House) -> None:
    """With real messages and two workers."""
    house.worker("train", name="second")
    run = house.launch(SCRIPT, 60)
    sender = Celery(broker=house.redis.url)
    sender.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    for _ in range(20):
        sender.send_task("runs.supervise", args=[str(run.pk)], queue="train")
    _succeeded(house, run, attempts=1)
    assert Attempt.objects.filter(run=run).count() == 1
    house.kill9("second")
