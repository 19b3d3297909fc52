"""Random kills and outages over real runs of ``manage.py up`` with its default settings, and what became of each run.

A storm needs Django to be set up with the data folder of the site (a small disk, so that it can be filled):
``benchmarks/chaos.py`` does it. Nothing is started again by the storm: that is for the site to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections

from tests.chaos.services import alive, descendants, signal_tree, wait_until
from tests.chaos.truth import assert_exact
from tests.webapp.ops.test_up import ROOT, Upped
from training.presets import presets
from webapp.common.env import database_from_url
from webapp.common.storage import attempt_dir, run_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.services import run_create
from webapp.environments.models import Replica, ReplicaState
from webapp.environments.services import environment_launch
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import TERMINAL, RunState

T = TypeVar("T")
SHARES = {"trainer": 25, "worker": 20, "environment": 20, "postgres": 12, "redis": 12, "disk": 6, "lock": 5}
LOCK_S, AWAY_MAX_S, CALM_S = 60.0, 12.0, (2.0, 8.0)
DEVICES = "0,1"  # as with two devices: a training worker for each
TRAIN_WORKERS, OTHERS = ("train-0@", "train-1@"), ("short@", "run_clockwork", "keep_environments", "-m uvicorn")
RUNNING_LIMIT_S, END_LIMIT_S, ANSWER_LIMIT_S = 300.0, 900.0, 30.0


def deal(count: int, dice: random.Random) -> list[str]:
    """That many faults in the shares above, in random order; the rarest first to be given one each."""
    whole = sum(SHARES.values())
    dealt = [kind for kind, share in SHARES.items() for _ in range(max(1, round(count * share / whole)))]
    while len(dealt) < count:
        dealt.append(dice.choice(list(SHARES)))
    dice.shuffle(dealt)
    return dealt[:count]


class Storm:
    """A site under faults. ``log`` takes a line for each thing that happens."""

    def __init__(self, site: Upped, seed: int, steps: int, log: Callable[[str], None]) -> None:
        self.site, self.dice, self.steps, self.log = site, random.Random(seed), steps, log
        self.runs: list[Run] = []
        self.done: Counter[str] = Counter()
        self.answered: Counter[int] = Counter()
        self.began = time.monotonic()

    # --- The site -----------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Wait until the site is there, and give it an environment and tasks."""
        self.site.wait_ready()
        self.url = json.loads((self.site.data / "services.json").read_text())["database_url"]
        connections.databases["default"].update(database_from_url(self.url))
        self.user, self.project = User.objects.get(), Project.objects.get()
        dataset = Dataset.objects.create(project=self.project, name="d", state=DatasetState.READY, file_name="d")
        dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
        tasks = [sys.executable, "-m", "envs.tools", "tasks", "--difficulty", "starter", "--count", "512"]
        subprocess.run([*tasks, "--output", str(dataset.rows_path)], cwd=ROOT, check=True)
        self.environment = environment_launch(
            project=self.project, user=self.user, name="ground", kind="process", program="tools", slots=128, wanted=1
        )
        wait_until(self._healthy, 90, what=f"the environment: {self.site.output}")

    def _healthy(self) -> list[Replica]:
        return list(self.environment.replicas.filter(state=ReplicaState.HEALTHY))

    def pid(self, words: str) -> int:
        """The program whose command line has these words, as supervisord's own child; waited for if it is away."""

        def found() -> int | None:
            assert self.site.process.poll() is None, self.site.output
            head = psutil.Process(int((self.site.data / "supervisord.pid").read_text()))
            return next((one.pid for one in head.children() if words in " ".join(one.cmdline())), None)

        return int(str(wait_until(found, ANSWER_LIMIT_S, what=f"a process “{words}”")))

    def kill9(self, words: str, spare: Set[int] = frozenset()) -> None:
        """End a program and all under it at once, but for those to be spared."""
        signal_tree(self.pid(words), signal.SIGKILL, spare)

    def hang_and_kill9(self, words: str) -> None:
        """A service does not answer for a while, and is gone then."""
        pid = self.pid(words)
        signal_tree(pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(1, AWAY_MAX_S))
        signal_tree(pid, signal.SIGKILL)

    def look(self) -> None:
        """Ask for a page: it comes, or a page says that the site is busy or its database away."""
        with contextlib.suppress(httpx.TransportError):  # the web server itself may have been killed
            answer = httpx.get(f"http://127.0.0.1:{self.site.port}/login/", timeout=ANSWER_LIMIT_S)
            self.answered[answer.status_code] += 1

    def say(self, what: str) -> None:
        """A line with the time since the start."""
        self.log(f"{time.monotonic() - self.began:7.1f} s  {what}")

    def ask(self, action: Callable[[], T], timeout_s: float = 120) -> T:
        """Ask the database, which may be away."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return action()
            except (DatabaseError, InterfaceError):
                connections["default"].close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    # --- The runs -----------------------------------------------------------------------------------------------
    def launch(self) -> Run:
        """The demo's GRPO run from the starter: its preset unchanged but for the number of steps."""
        config = presets()["tools-demo-grpo"].config_for("full")
        components = presets()["tools-demo-grpo"].needs_for("full").reward
        config.model.source, config.data.train = "starter", "dataset:d@1"
        config.environment.name, config.run.max_steps = self.environment.reference, self.steps
        config.rewards.components = list(components.components) if components else []
        name = f"run {len(self.runs) + 1}"
        run = self.ask(lambda: run_create(project=self.project, user=self.user, name=name, config=config))
        self.runs.append(run)
        return run

    def active(self) -> list[Run]:
        """Runs that have not ended; a paused one is expected to go on by itself."""
        mine = [run.pk for run in self.runs]
        return self.ask(lambda: list(Run.objects.filter(pk__in=mine).exclude(state__in=TERMINAL)))

    def _running(self) -> list[Run]:
        """Runs that train now, once there are any; new ones are launched for those that ended."""
        deadline = time.monotonic() + RUNNING_LIMIT_S
        while time.monotonic() < deadline:
            self.look()
            active = self.active()
            for _ in range(len(TRAIN_WORKERS) - len(active)):
                self.launch()
            running = [run for run in active if run.state == RunState.RUNNING and alive(_trainer(run))]
            if running:
                return running
            time.sleep(0.5)
        raise AssertionError(f"No run is running: {[(run.name, run.state, run.error) for run in self.active()]}")

    def blow(self, count: int, minutes: float) -> None:
        """The faults one after another, each while a run trains, for at most so long; then wait for the ends."""
        plan = deal(count, self.dice)
        for number, kind in enumerate(plan, start=1):
            self._running()
            time.sleep(self.dice.uniform(*CALM_S))
            if time.monotonic() - self.began > minutes * 60:
                break
            running = self._running()
            where = ", ".join(f"{run.name} attempt {run.attempt} step {run.step}" for run in running)
            self.say(f"fault {number} of {count}: {kind} ({where})")
            getattr(self, f"_fault_{kind}")(self.dice.choice(running))
            self.done[kind] += 1
        self.say(f"{sum(self.done.values())} faults done; waiting for the runs")
        deadline = time.monotonic() + END_LIMIT_S
        while self.active() and time.monotonic() < deadline:
            self.look()
            time.sleep(1)

    # --- The faults ---------------------------------------------------------------------------------------------
    def _trainers(self) -> set[int]:
        found = set()
        for name in TRAIN_WORKERS:
            for pid in descendants(self.pid(name)):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if alive(pid) else []
                found |= {pid} if b"training" in words else set()
        return found

    def _fault_trainer(self, run: Run) -> None:
        pid = _trainer(run)
        if alive(pid):
            os.kill(pid, signal.SIGKILL)

    def _fault_worker(self, run: Run) -> None:
        """A training worker, sometimes another program of ours. The trainer learns of it by itself."""
        words = self.dice.choice(OTHERS if self.dice.random() < 0.4 else TRAIN_WORKERS)
        self.say(f"  {words}")
        self.kill9(words, spare=self._trainers())

    def _fault_environment(self, run: Run) -> None:
        pids = [row.handle.get("pid") for row in self.ask(lambda: list(self.environment.replicas.all()))]
        for pid in pids:
            if pid and alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)

    def _fault_postgres(self, run: Run) -> None:
        connections["default"].close()
        self.hang_and_kill9("/postgres ")

    def _fault_redis(self, run: Run) -> None:
        self.hang_and_kill9("redis-server")

    def _fault_disk(self, run: Run) -> None:
        """The data folder's disk is full, or all but: nothing left, a page, or half of the reserve."""
        folder = Path(settings.DATA_DIR)
        leave = self.dice.choice([0, 4096, int(shutil.disk_usage(folder).total * 0.025)])
        filler = folder / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):  # others write too
            while (room := shutil.disk_usage(folder).free - leave) > 0:
                file.write(bytes(min(room, 1 << 20)))
        time.sleep(self.dice.uniform(8, 25))
        self.say(f"  {shutil.disk_usage(folder).free >> 10} KiB free of it; room again")
        filler.unlink()

    def _fault_lock(self, run: Run) -> None:
        """What any ALTER TABLE does while it waits or works."""
        with psycopg.connect(self.url) as line:
            line.execute("LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE")
            time.sleep(LOCK_S)

    # --- What became of them ------------------------------------------------------------------------------------
    def report(self) -> dict[str, Any]:
        """Figures of all runs; a run whose tables are not its journal is named."""
        wrong, lost, failed = {}, [], {}
        for run in self.runs:
            run.refresh_from_db()
            if run.state != RunState.SUCCEEDED:
                failed[run.name] = {"state": run.state, "error": (run.error or {}).get("code"), "id": str(run.pk)}
            lost += losses(run)
            try:
                assert_exact(run)
            except AssertionError as exc:
                wrong[run.name] = str(exc)[:200]
        rollouts = Rollout.objects.filter(run__in=self.runs)
        return {
            "faults": sum(self.done.values()),
            "by_kind": dict(self.done),
            "runs": len(self.runs),
            "steps_each": self.steps,
            "succeeded": len(self.runs) - len(failed),
            "not_succeeded": failed,
            "attempts": sum(run.attempt for run in self.runs),
            "database_is_journal": not wrong,
            "differences": wrong,
            "most_steps_lost": max((steps for steps, _seconds in lost), default=0),
            "most_seconds_lost": round(max((seconds for _steps, seconds in lost), default=0.0), 1),
            "deaths_that_lost_steps": sum(steps > 0 for steps, _seconds in lost),
            "rollouts": rollouts.count(),
            "excluded": dict(Counter(rollouts.filter(status="excluded").values_list("error__code", flat=True))),
            "started_again": self.site.output.count("had ended and was started again"),
            "pages": dict(self.answered),
            "seconds": round(time.monotonic() - self.began),
        }


def _trainer(run: Run) -> int:
    """The process of its present attempt; 0 where there is none yet."""
    try:
        return int(json.loads((attempt_dir(run.pk, run.attempt) / "trainer.json").read_text())["pid"])
    except (OSError, ValueError):
        return 0


def losses(run: Run) -> list[tuple[int, float]]:
    """For each attempt after the first: steps that are trained again, and the seconds that they had taken."""
    found: list[tuple[int, float]] = []
    reached: dict[int, float] = {}  # step → when the journal of the attempt before had it
    for folder in sorted(run_dir(run.pk).iterdir(), key=lambda path: int(path.name)):
        path = folder / "journal.jsonl"
        data = path.read_bytes() if path.exists() else b""
        events = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        started = next((event for event in events if event["type"] == "run_started"), None)
        if started is None:
            continue
        if reached:
            again = [step for step in reached if step > started["from_step"]]
            since = max([at for step, at in reached.items() if step <= started["from_step"]], default=0.0)
            found.append((len(again), max(reached.values()) - since if again else 0.0))
            reached = {step: at for step, at in reached.items() if step <= started["from_step"]}
        reached |= {started["from_step"]: started["t"]}
        reached |= {event["step"]: event["t"] for event in events if event["type"] == "metrics"}
    return found
