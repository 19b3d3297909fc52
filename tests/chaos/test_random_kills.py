"""Random kills at random moments of 500-step runs, exact equality; deaths seen in time."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from tests.chaos.house import House
from tests.chaos.services import alive, descendants, wait_until
from tests.chaos.truth import assert_exact
from webapp.datasets.models import Dataset
from webapp.datasets.services import dataset_create
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("TILTYARD_CHAOS_KILLS", "60"))


def _trainers(house: House) -> set[int]:
    pids = [pid for pid in descendants(house.processes["train"].pid) if alive(pid)]
    return {pid for pid in pids if "stub_trainer" in Path(f"/proc/{pid}/cmdline").read_text()}


def _kill(house: House, part: str) -> None:
    if part == "trainer":
        for pid in _trainers(house):
            os.kill(pid, signal.SIGKILL)
    elif part == "worker":
        house.kill9("train", spare=_trainers(house))
        house.worker("train")
    elif part == "redis":
        house.redis.kill9()
        time.sleep(random.random())
        house.redis.start()
    else:
        house.cut_postgres()
        time.sleep(random.random() * 2)
        house.postgres.start()


def test_random_kills_lose_and_double_nothing(house: House) -> None:
    dice, killed, runs = random.Random(7), 0, []
    while killed < KILLS:
        run = house.launch("sleep-30", 500, save_every=5)
        runs.append(run)
        while killed < KILLS:
            time.sleep(dice.uniform(0.5, 5))
            run = wait_until(lambda run=run: Run.objects.get(pk=run.pk), 20)
            if run.state in {RunState.SUCCEEDED, RunState.FAILED}:
                break
            _kill(house, dice.choice(["trainer", "worker", "redis", "postgres"]))
            killed += 1
    for run in runs:
        house.ends(run, 300)
        assert run.state == RunState.SUCCEEDED, run.error
        assert_exact(run)


def test_deaths_of_workers_are_seen_in_time(house: House) -> None:
    """The 95th percentile of the time from kill -9 to the database."""
    took = []
    for _ in range(20):
        run = house.launch("sleep-30", 500)
        house.reaches(run, 2)
        house.kill9("train")
        began = time.monotonic()
        wait_until(lambda run=run: Attempt.objects.get(run=run, number=1).ended_at, 60)
        took.append(time.monotonic() - began)
        house.worker("train")
        Run.objects.filter(pk=run.pk).update(state=RunState.CANCELLED)
    took.sort()
    print(f"death seen: median {took[10]:.1f} s, p95 {took[18]:.1f} s")
    assert took[18] <= 30


def test_a_death_is_seen_while_ten_long_jobs_wait(house: House) -> None:
    """Two uploads took both places of the one worker that also reaped; a death was noticed after 191 s."""
    line = json.dumps({"messages": [{"role": "user", "content": "x" * 60}, {"role": "assistant", "content": "y"}]})
    text = f"{line}\n".encode() * 150_000
    jobs = [
        dataset_create(
            project=house.project, user=house.user, name=f"large-{n}", file=ContentFile(text), file_name="r.jsonl"
        )
        for n in range(10)
    ]
    busy = Dataset.objects.filter(pk__in=[job.pk for job in jobs]).exclude(token="")
    wait_until(busy.exists, 60, what="a long job at work")
    run = house.launch("sleep-30", 5000)
    house.reaches(run, 2)
    house.kill9("train")
    began = time.monotonic()
    wait_until(lambda: Attempt.objects.get(run=run, number=1).ended_at, 60)
    took = time.monotonic() - began
    waiting = Dataset.objects.filter(pk__in=[job.pk for job in jobs], state="checking", token="").count()
    house.worker("train")  # for the tests that share the house
    Run.objects.filter(pk=run.pk).update(state=RunState.CANCELLED)
    print(f"death seen after {took:.1f} s, while {waiting} of 10 long jobs waited for a place")
    assert took <= 30 and waiting, "no place was ever free"
