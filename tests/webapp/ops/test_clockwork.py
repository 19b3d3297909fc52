"""The clockwork: each job ticks whatever the others do, and nothing that people start can delay it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import InternalError, OperationalError
from django.utils import timezone

from tests.processes import running
from tests.servers import make_child_env
from webapp.engine import attempts as leases
from webapp.engine.models import Outbox
from webapp.ops.management.commands import run_clockwork
from webapp.ops.management.commands.run_clockwork import JOBS, Clockwork, Job
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState


def wait_until(true: Callable[[], object], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def ticking() -> Iterator[Callable[..., Clockwork]]:
    """``ticking(job, …)``: a clockwork whose jobs run in threads until the test ends."""
    begun: list[tuple[Clockwork, threading.Thread]] = []

    def start(*jobs: Job) -> Clockwork:
        clock = Clockwork(jobs)
        for job in jobs:
            thread = threading.Thread(target=clock.keep, args=(job,), daemon=True)
            begun.append((clock, thread))
            thread.start()
        return clock

    yield start
    for clock, thread in begun:
        clock._on_signal(signal.SIGTERM, None)
        thread.join(5)
        assert not thread.is_alive()


def test_what_is_looked_at_and_how_often() -> None:
    assert {job.name: job.every_s for job in JOBS} == {
        "reap": 5,
        "outbox": 2,
        "work": 5,
        "chat": 5,
        "recover": 15,
        "doctor": 10,
        "index": 60,
        "retention": 300,
        "files": 10,
        "tidy": 3600,
    }


class Waits(threading.Event):
    """A stop that writes down how long a job would rest, and ends it after three ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout or 0.0)
        if len(self.asked) == 3:
            self.set()
        return self.is_set()


def test_a_tick_takes_its_own_time_off_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at every ten seconds, in a look of four, rests for six; one that takes longer rests for none."""
    now, took = [100.0], iter([0.0, 4.0, 25.0])
    monkeypatch.setattr(run_clockwork.time, "monotonic", lambda: now[0])
    clock = Clockwork()
    clock._stop = rests = Waits()
    clock.keep(Job("slow", lambda: now.__setitem__(0, now[0] + next(took)), every_s=10.0))
    monkeypatch.undo()
    assert rests.asked == [10.0, 6.0, 0.0]


def test_a_job_that_does_not_end_delays_no_other(ticking: Callable[..., Clockwork]) -> None:
    end, ticks = threading.Event(), []
    clock = ticking(Job("slow", lambda: end.wait(20), every_s=0), Job("quick", lambda: ticks.append(1), every_s=0.01))
    wait_until(lambda: len(ticks) >= 5)
    assert clock.hung() is None
    end.set()


@pytest.mark.parametrize("error", [OperationalError("away"), InternalError("25P03"), ValueError("a fault of ours")])
def test_after_any_error_of_a_job_it_ticks_again(ticking: Callable[..., Clockwork], error: Exception) -> None:
    ticks: list[int] = []

    def fail() -> None:
        ticks.append(1)
        raise error

    ticking(Job("broken", fail, every_s=0.01))
    wait_until(lambda: len(ticks) >= 3)


@pytest.mark.parametrize(("limit_s", "hangs"), [(0.05, True), (20.0, False)])
def test_a_tick_beyond_its_limit_hangs(ticking: Callable[..., Clockwork], limit_s: float, hangs: bool) -> None:
    end, begun = threading.Event(), threading.Event()

    def tick() -> None:
        begun.set()
        end.wait(20)

    job = Job("slow", tick, every_s=0, limit_s=limit_s)
    clock = ticking(job)
    assert begun.wait(5)
    time.sleep(0.1)
    assert clock.hung() == (job if hangs else None)
    end.set()


def test_a_pause_between_ticks_is_no_hang(ticking: Callable[..., Clockwork]) -> None:
    ticks: list[int] = []
    clock = ticking(Job("rare", lambda: ticks.append(1), every_s=20, limit_s=0.01))
    wait_until(lambda: ticks)
    time.sleep(0.1)
    assert clock.hung() is None


def test_a_job_that_hangs_ends_the_process(tmp_path: Path) -> None:
    """So that its supervisor starts another one."""
    script = tmp_path / "hang.py"
    script.write_text(
        "import django, time; django.setup()\n"
        "from webapp.ops.management.commands import run_clockwork\n"
        "run_clockwork.CHECK_EVERY_S = 0.05\n"
        "run_clockwork.Clockwork([run_clockwork.Job('stuck', lambda: time.sleep(60), every_s=1, limit_s=0.2)]).run()\n"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    with running([sys.executable, str(script)], tmp_path / "log", env) as child:
        assert child.wait(60) == 1
    assert "action=stuck" in (tmp_path / "log").read_text()


@pytest.mark.django_db(transaction=True)
def test_a_lost_worker_is_noticed_without_a_broker_and_without_workers(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    """Two uploads took both places of the worker that gave runs back, and 191 s passed until a death was seen."""
    run = make_run(state=RunState.QUEUED, queued_at=timezone.now())
    assert leases.claim(run.pk) is not None
    Run.objects.filter(pk=run.pk).update(lease_beat_at=timezone.now() - timedelta(minutes=5))
    ready = tmp_path / "ready"
    env = make_child_env(REDIS_URL="redis://127.0.0.1:1/0", TILTYARD_READY_FILE=str(ready), TILTYARD_LEASE_TTL_S="2")
    with running([sys.executable, "manage.py", "run_clockwork"], tmp_path / "log", env) as child:
        wait_until(lambda: Run.objects.get(pk=run.pk).state == RunState.QUEUED, 60)
        assert int(ready.read_text()) == child.pid
        touched = ready.stat().st_mtime_ns
        wait_until(lambda: ready.stat().st_mtime_ns > touched)
        child.send_signal(signal.SIGTERM)
        assert child.wait(run_clockwork.END_S + 10) == 0
    assert Attempt.objects.get(run=run).error["code"] == "worker_lost"
    assert Outbox.objects.filter(run=run, sent_at=None).exists(), "the nudge waits for a broker"
