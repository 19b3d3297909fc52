"""Random kills and outages over real runs with the product's own settings: what is done, and what became of each run.

A storm needs Django to be set up with a data folder of its own (a small disk, so that it can be filled):
``benchmarks/chaos.py`` does it. The house's processes are those of ``manage.py up``, and what ends by itself is started
again, as its process manager does.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections

from tests.chaos.house import ROOT, House
from tests.chaos.services import alive, descendants, wait_until
from tests.chaos.truth import assert_exact
from training.presets import presets
from webapp.engine.services import run_create
from webapp.environments.models import Replica, ReplicaState
from webapp.environments.services import environment_launch
from webapp.rollouts.models import Rollout
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL, RunState
from webapp.storage import attempt_dir, run_dir

T = TypeVar("T")
SHARES = {"trainer": 25, "worker": 20, "environment": 20, "postgres": 12, "redis": 12, "disk": 6, "lock": 5}
LOCK_S, AWAY_MAX_S, CALM_S = 60.0, 12.0, (2.0, 8.0)
TRAIN_WORKERS = ("train", "train-2")
RUNNING_LIMIT_S, END_LIMIT_S = 300.0, 900.0


def deal(count: int, dice: random.Random) -> list[str]:
    """That many faults in the shares above, in random order; the rarest first to be given one each."""
    whole = sum(SHARES.values())
    dealt = [kind for kind, share in SHARES.items() for _ in range(max(1, round(count * share / whole)))]
    while len(dealt) < count:
        dealt.append(dice.choice(list(SHARES)))
    dice.shuffle(dealt)
    return dealt[:count]


class Storm:
    """A house under faults. ``log`` takes a line for each thing that happens."""

    def __init__(self, house: House, seed: int, steps: int, log: Callable[[str], None]) -> None:
        self.house, self.dice, self.steps, self.log = house, random.Random(seed), steps, log
        self.runs: list[Run] = []
        self.done: Counter[str] = Counter()
        self.restarted: Counter[str] = Counter()
        self.began = time.monotonic()

    # --- The house ----------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Everything that `up` runs but for the web, with two training workers; an environment and its tasks."""
        house = self.house
        house.open(workers=False)
        for name in (*TRAIN_WORKERS, "short", "clock", "keeper"):
            self._start(name)
        tasks = [sys.executable, "-m", "envs.tools", "tasks", "--difficulty", "starter", "--count", "512"]
        subprocess.run([*tasks, "--output", str(house.dataset.rows_path)], cwd=ROOT, check=True)
        self.environment = environment_launch(
            project=house.project, user=house.user, name="ground", kind="process", program="tools", slots=128, wanted=1
        )
        wait_until(lambda: self._healthy(), 90, what=f"the environment: {house.tail()}")

    def _healthy(self) -> list[Replica]:
        return list(self.environment.replicas.filter(state=ReplicaState.HEALTHY))

    def _start(self, name: str) -> None:
        if name == "keeper":
            self.house.start(name, "django", "keep_environments")
        elif name == "clock":
            self.house.start(name, "django", "run_clockwork")
        elif name == "short":
            self.house.worker(name)
        else:
            self.house.worker("train", name=name)

    def tend(self) -> None:
        """Start again what ended by itself."""
        for name, process in list(self.house.processes.items()):
            if process.poll() is not None:
                self.restarted[name] += 1
                self.say(f"{name} ended by itself with code {process.returncode} and is started again")
                del self.house.processes[name]
                self._start(name)

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
        """The demo's GRPO run from the starter: its preset as it stands, but for the number of steps."""
        config = presets()["tools-demo-grpo"].config_for("full")
        components = presets()["tools-demo-grpo"].needs_for("full").reward
        config.model.source, config.data.train = "starter", "dataset:d@1"
        config.environment.name, config.run.max_steps = self.environment.reference, self.steps
        config.rewards.components = list(components.components) if components else []
        name = f"run {next(self.house.numbers)}"
        run = self.ask(lambda: run_create(project=self.house.project, user=self.house.user, name=name, config=config))
        self.runs.append(run)
        return run

    def active(self) -> list[Run]:
        """Runs that may still go on by themselves."""
        rows = self.ask(
            lambda: list(Run.objects.filter(pk__in=[run.pk for run in self.runs]).exclude(state__in=TERMINAL))
        )
        return [run for run in rows if run.state != RunState.PAUSED or (run.error or {}).get("code") == "storage_full"]

    def _running(self) -> list[Run]:
        """Runs that train now, once there are any; new ones are launched for those that ended."""
        deadline = time.monotonic() + RUNNING_LIMIT_S
        while time.monotonic() < deadline:
            self.tend()
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
            self.tend()
            time.sleep(1)

    # --- The faults ---------------------------------------------------------------------------------------------
    def _trainers(self) -> set[int]:
        found = set()
        for name in TRAIN_WORKERS:
            for pid in descendants(self.house.processes[name].pid):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if alive(pid) else []
                found |= {pid} if b"training" in words else set()
        return found

    def _fault_trainer(self, run: Run) -> None:
        pid = _trainer(run)
        if alive(pid):
            os.kill(pid, signal.SIGKILL)

    def _fault_worker(self, run: Run) -> None:
        """A training worker, sometimes the short one or the clockwork. The trainer learns of it by itself."""
        name = self.dice.choice(("short", "clock")) if self.dice.random() < 0.4 else self.dice.choice(TRAIN_WORKERS)
        self.say(f"  worker {name}")
        self.house.kill9(name, spare=self._trainers())
        time.sleep(self.dice.uniform(0, 5))
        self._start(name)

    def _fault_environment(self, run: Run) -> None:
        pids = [row.handle.get("pid") for row in self.ask(lambda: list(self.environment.replicas.all()))]
        for pid in pids:
            if pid and alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)

    def _fault_postgres(self, run: Run) -> None:
        self.house.cut_postgres()
        time.sleep(self.dice.uniform(1, AWAY_MAX_S))
        self.house.postgres.start()

    def _fault_redis(self, run: Run) -> None:
        self.house.redis.kill9()
        time.sleep(self.dice.uniform(1, AWAY_MAX_S))
        self.house.redis.start()

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
        with psycopg.connect(self.house.postgres.url) as line:
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
            "ended_by_themselves": dict(self.restarted),
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
