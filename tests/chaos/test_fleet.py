"""Twenty runs on three training hosts with disks of their own and an S3 server: hosts are lost, and the web host is."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.db.models.functions import Now

from tests.chaos.hosts import SITE, Host, made_hosts
from tests.chaos.house import House
from tests.chaos.s3_proxy import Fault, Proxy, proxy_to
from tests.chaos.services import alive, wait_until
from tests.chaos.truth import assert_exact
from tests.s3 import keep_files_there, s3_server
from training.algorithms.checkpoints import verify
from training.config import JobConfig
from webapp.common.storage import attempt_dir
from webapp.common.words import failure
from webapp.common.workers.models import GONE_AFTER, Worker
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.courier import publish_all
from webapp.engine.services import run_create, run_resume, run_stop
from webapp.environments.models import Environment
from webapp.ops.management.commands.prepare_site import site_prepare
from webapp.people.teams.models import Project
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import TERMINAL, RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1500)]
RUNS, STEPS, SAVE_EVERY, PLACES, KILL_EVERY_S, AWAY_S = 20, 120, 10, 2, 20.0, 6.0


class Fleet:
    """A site, and training hosts of it."""

    def __init__(self, house: House, hosts: list[Host], disks: Path, store: Proxy) -> None:
        self.house, self.hosts, self.disks, self.store = house, hosts, disks, store
        self.started = Counter[int]()
        other = Project.objects.create(team=house.project.team, name="Q", slug="q")
        dataset = Dataset.objects.create(project=other, name="d", state=DatasetState.READY, file_name="d")
        dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
        dataset.rows_path.write_text("{}\n")
        Environment.objects.create(project=other, name="e", url="http://127.0.0.1:1", server_name="e")
        assert sorted(publish_all()) == ["d@1", "d@1"]
        self.projects = [house.project, other]

    def disk(self, number: int) -> Path:
        """The folder that a host has since its last start: each start finds an empty one."""
        return self.disks / f"{number}-{self.started[number]}"

    def start(self, number: int, places: int = PLACES) -> None:
        """Start the worker of a host."""
        self.started[number] += 1
        within = self.hosts[number].within
        more = ("-c", str(places))
        self.house.worker(
            "train", *more, name=f"train@h{number}", within=within, TILTYARD_DATA_DIR=str(self.disk(number))
        )

    def lose(self, number: int) -> None:
        """Kill all that runs on a host, and lose its disk."""
        self.house.kill9(f"train@h{number}")
        shutil.rmtree(self.disk(number), ignore_errors=True)

    def launch(self, project: Project, steps: int = STEPS, step_ms: int = 200) -> Run:
        """Launch a run of the stub trainer."""
        config = JobConfig.model_validate(
            {
                "model": {"revision": f"sleep-{step_ms}"},
                "data": {"train": "dataset:d@1"},
                "environment": {"name": "environment:e"},
                "run": {"max_steps": steps, "save_every": SAVE_EVERY},
            }
        )
        name = f"run {next(self.house.numbers)}"
        return run_create(project=project, user=self.house.user, name=name, config=config)

    def reaches(self, run: Run, step: int, timeout_s: float) -> None:
        """Wait until the database knows that the run has made this step."""
        wait_until(lambda: Run.objects.get(pk=run.pk).step >= step, timeout_s, what=f"step {step}: {self.house.tail()}")

    def trainer(self, run: Run) -> int:
        """The process of its present attempt, by the number that the site's host knows it by."""
        config = str(attempt_dir(run.pk, Run.objects.get(pk=run.pk).attempt).relative_to(settings.DATA_DIR))
        found = psutil.process_iter(["pid", "cmdline"])
        pids = [each.info["pid"] for each in found if any(config in word for word in each.info["cmdline"] or ())]
        assert len(pids) == 1, f"{run} has the trainers {pids}"
        return int(pids[0])

    def end(self) -> None:
        """Lose all hosts that are still there."""
        self.store.fault = ""
        for name in [name for name in self.house.processes if name.startswith("train@h")]:
            self.lose(int(name.removeprefix("train@h")))

    def open(self, runs: list[Run]) -> list[Run]:
        """Those of them that have not ended."""
        return list(Run.objects.filter(pk__in=[run.pk for run in runs]).exclude(state__in=TERMINAL))

    def assert_whole(self, run: Run) -> None:
        """It trained every step to its end, once, and all of it is in the site's folder and in the database."""
        run.refresh_from_db()
        steps = run.total_steps
        assert (run.state, run.step) == (RunState.SUCCEEDED, steps), (run.state, run.error, self.house.tail())
        attempts = list(Attempt.objects.filter(run=run).order_by("number"))
        assert [each.number for each in attempts] == list(range(1, run.attempt + 1))
        for before, after in pairwise(attempts):
            assert before.ended_at is not None and before.ended_at <= after.started_at, "two writers at a time"
            assert before.error is not None and before.error["code"] == "worker_lost", before.error
            assert after.first_step % SAVE_EVERY == 0
            assert after.first_step >= before.last_step - 2 * SAVE_EVERY, "more was lost than was on its way"
        trained = {each.number: range(each.first_step + 1, each.last_step + 1) for each in attempts}
        assert set(range(1, steps + 1)) == {step for each in trained.values() for step in each}
        points = MetricPoint.objects.filter(run=run, name="reward")
        assert {(p.attempt, p.step) for p in points} == {(a, s) for a, each in trained.items() for s in each}
        final = Checkpoint.objects.get(run=run, path=f"{run.attempt}/model")

        def copied() -> bool:
            journals = [attempt_dir(run.pk, each.number) / "journal.jsonl" for each in attempts]
            sizes = [path.stat().st_size if path.exists() else 0 for path in journals]
            offsets = [Attempt.objects.get(pk=each.pk).journal_offset for each in attempts]
            return sizes == offsets and verify(final.folder) is not None

        wait_until(copied, 60, what=f"the files of {run} at home")
        assert_exact(run)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any) -> Iterator[Fleet]:
    """The site's own host with its services and an S3 server, no trainer; and three hosts that run nothing yet."""
    with (
        made_hosts(3) as hosts,
        s3_server() as s3,
        proxy_to(s3, SITE) as store,
        django_db_blocker.unblock(),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        keep_files_there(patch, store.url)
        house = House(tmp_path_factory.mktemp("site"), host=SITE)
        try:
            house.open(workers=False)
            site_prepare()
            built = Fleet(house, hosts, tmp_path_factory.mktemp("disks"), store)
            house.start("clock", "django", "run_clockwork")
            house.worker("short")
            yield built
        finally:
            house.close()


@pytest.fixture(autouse=True)
def no_hosts(fleet: Fleet) -> Iterator[None]:
    """Each test starts hosts of its own, and ends runs that a failure left."""
    yield
    fleet.end()
    for run in Run.objects.exclude(state__in=TERMINAL):
        run_stop(run=run, user=fleet.house.user)


def assert_fair(runs: list[Run]) -> None:
    """No run was taken for a project that had two more than the other, while a run of the other waited.

    Two workers that claim at one instant see the same state, hence two and not one.
    """
    attempts = list(Attempt.objects.filter(run__in=runs).select_related("run").order_by("started_at"))
    for each in attempts:
        at = each.started_at
        held = Counter(
            one.run.project_id for one in attempts if one.started_at < at and not (one.ended_at and one.ended_at <= at)
        )
        begun = {one.run_id for one in attempts if one.started_at <= at}
        waiting = Counter(run.project_id for run in runs if run.pk not in begun)
        for other in set(waiting) - {each.run.project_id}:
            assert held[each.run.project_id] <= held[other] + 1, f"{each} while {held} were taken and {waiting} waited"


def test_twenty_runs_succeed_while_a_host_is_lost_every_20_seconds(fleet: Fleet) -> None:
    runs = [fleet.launch(project) for project in fleet.projects for _ in range(RUNS // 2)]
    for number in range(3):
        fleet.start(number)
    lost, began, at = 0, time.monotonic(), time.monotonic()
    while fleet.open(runs):
        if time.monotonic() - at >= KILL_EVERY_S:
            at = time.monotonic()
            fleet.lose(lost % 3)
            time.sleep(AWAY_S)
            fleet.start(lost % 3)
            lost += 1
        assert time.monotonic() - began < 900, [(run.state, run.step, run.error) for run in fleet.open(runs)]
        time.sleep(0.5)
    took = time.monotonic() - began
    for run in runs:
        fleet.assert_whole(run)
    attempts = Attempt.objects.filter(run__in=runs).count()
    print(f"{RUNS} runs, {lost} hosts lost, {attempts} attempts, {took:.0f} s")
    assert lost >= 5 and attempts >= RUNS + 5, "nothing was lost"
    assert_fair(runs)


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        ("away", "The store of files does not answer."),
        ("silent", "The store of files does not answer."),
        ("full", "The store of files is full."),
        ("refusing", "The store of files refuses our access."),
        ("slow", ""),
    ],
)
def test_runs_outlive_a_store_that_fails_under_them(fleet: Fleet, fault: Fault, title: str) -> None:
    """Four runs train on two hosts, one ends meanwhile. Nothing is lost, no attempt ends, and their pages say why they
    show nothing new within 30 s; a store that is only slow is none of that."""
    _short, *long = runs = [fleet.launch(fleet.projects[0], steps) for steps in (60, 160, 160, 160)]
    for number in (0, 1):
        fleet.start(number)
    for run in runs:
        fleet.reaches(run, 20, 90)
    fleet.store.fault, began = fault, time.monotonic()

    def named() -> bool:
        shown = [failure(Run.objects.get(pk=run.pk).health.get("files")) for run in long]
        return all(each is not None and each.title == title for each in shown)

    try:
        if title:
            wait_until(named, 30, what=f"the fault on the pages: {fleet.house.tail()}")
            problem = "files_refused" if fault == "refusing" else "files_away"
            wait_until(lambda: {row.problem for row in _workers()} == {problem}, 15, what="the fault of the workers")
        noticed = time.monotonic() - began
        time.sleep(max(0.0, 40 - noticed))
        assert fleet.store.done[fault] > 0
        steps = {run.pk: _journalled(fleet, run) for run in long}
        assert all(steps[run.pk] > Run.objects.get(pk=run.pk).step or not title for run in long), "they train on"
    finally:
        fleet.store.fault = ""
    for run in runs:
        fleet.house.ends(run, 240)
        fleet.assert_whole(run)
        run.refresh_from_db()
        assert run.attempt == 1 and "files" not in run.health
    wait_until(lambda: {row.problem for row in _workers()} == {""}, 15, what="workers without a problem")
    print(
        f"store {fault}: on the pages after {noticed:.0f} s, all ended {time.monotonic() - began:.0f} s after it began"
    )


def test_a_run_that_a_lying_store_pauses_is_trained_once_the_store_is_right(fleet: Fleet) -> None:
    """A host with an empty disk gets damaged rows: it trains on none of them."""
    fleet.store.fault = "lying"
    try:
        run = fleet.launch(fleet.projects[0], 40)
        fleet.start(0)

        def paused() -> bool:
            run.refresh_from_db()
            return run.state == RunState.PAUSED

        wait_until(paused, 60, what=f"the pause: {run.state} {fleet.house.tail()}")
        assert run.error is not None and run.error["code"] == "files_torn" and run.step == 0
    finally:
        fleet.store.fault = ""
    run_resume(run=run, user=fleet.house.user)
    fleet.house.ends(run, 90)
    assert (run.state, run.step) == (RunState.SUCCEEDED, 40), fleet.house.tail()


def test_the_web_host_is_restarted_while_twenty_runs_train(fleet: Fleet) -> None:
    """Its database, Redis, clock, worker of short work and web server die at once, and are away for 15 s."""
    house = fleet.house
    for number in range(3):
        fleet.start(number, 7)
    house.web()
    runs = [fleet.launch(project, 200, 1000) for project in fleet.projects for _ in range(RUNS // 2)]
    for run in runs:
        fleet.reaches(run, 5, 180)
    pids = [fleet.trainer(run) for run in runs]
    for name in ("web", "clock", "short"):
        house.kill9(name)
    house.redis.kill9()
    house.cut_postgres()
    time.sleep(15)
    assert all(alive(pid) for pid in pids), "training needs no site"
    house.postgres.start()
    house.redis.start()
    back = time.monotonic()
    house.start("clock", "django", "run_clockwork")
    house.worker("short")
    house.web()
    reached = {run.pk: Run.objects.get(pk=run.pk).step for run in runs}
    wait_until(lambda: all(Run.objects.get(pk=r.pk).step > reached[r.pk] + 3 for r in runs), 60, what="new steps")
    print(
        f"web host restarted under {len(runs)} runs: new steps of all {time.monotonic() - back:.0f} s after it was back"
    )
    for run in runs:
        house.ends(run, 360)
        fleet.assert_whole(run)
        run.refresh_from_db()
        assert run.attempt == 1


def _workers() -> list[Worker]:
    return list(Worker.objects.filter(name__startswith="train@h", beat_at__gt=Now() - GONE_AFTER))


def _journalled(fleet: Fleet, run: Run) -> int:
    """The step that its trainer has reached, by the journal on its host's own disk."""
    run.refresh_from_db()
    place = attempt_dir(run.pk, run.attempt).relative_to(settings.DATA_DIR) / "journal.jsonl"
    found = [fleet.disk(number) / place for number in range(3) if (fleet.disk(number) / place).exists()]
    return found[0].read_text().count('"type": "metrics"')
