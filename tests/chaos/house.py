"""A whole Tiltyard of real processes that a test may kill: PostgreSQL, Redis, workers, the web.

Django's default connection of the test process is pointed at the house's PostgreSQL while it runs, so that tests use
services and models as ever; nothing of the usual test database is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from tests.chaos.services import Postgres, Redis, alive, descendants, free_port, signal_tree, wait_until
from training.config import JobConfig
from webapp.common.env import database_from_url
from webapp.common.host import die_with_parent
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.people.teams.models import Membership, Project, Role, Team, User
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

ROOT = Path(__file__).resolve().parents[2]


class House:
    """Everything that runs, by name."""

    def __init__(self, folder: Path, settings_module: str = "tests.chaos.settings", host: str = "127.0.0.1") -> None:
        """``host`` is the address that its services listen on."""
        self.folder, self.settings_module = folder, settings_module
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.postgres, self.redis, self.port = Postgres(folder, host), Redis(folder, host), free_port()
        self.numbers = iter(range(1, 10_000))

    def open(self, *, workers: bool = True) -> None:
        """Start the services and, if asked to, one worker of each queue; fill in a project."""
        self.postgres.start()
        self.redis.start()
        self.usual = dict(connections.databases["default"])
        connections["default"].close()
        connections.databases["default"].update(database_from_url(self.postgres.url))
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=self.env(), check=True)
        if workers:
            self.start("clock", "django", "run_clockwork")
            self.worker("short")
            self.worker("train")
        self._fill()

    def close(self) -> None:
        """End everything and give the connection back."""
        for name in list(self.processes):
            self.kill9(name)
        connections["default"].close()
        connections.databases["default"].update(self.usual)
        self.redis.kill9()
        self.postgres.kill9()

    def env(self) -> dict[str, str]:
        """The environment of the children."""
        return {
            **os.environ,
            "DATABASE_URL": self.postgres.url,
            "REDIS_URL": self.redis.url,
            "TILTYARD_SECRET_KEY": settings.SECRET_KEY,
            "DJANGO_SETTINGS_MODULE": self.settings_module,
            "TILTYARD_DATA_DIR": str(settings.DATA_DIR),
            "TILTYARD_PORT": str(self.port),
            "TILTYARD_DATABASE_POOL": "20",
        }

    def start(self, name: str, *command: str, within: Sequence[str] = (), **over: str) -> subprocess.Popen[bytes]:
        """Start a child, with some variables of its own; its output goes to a file of its name. ``within`` is a
        command that runs it somewhere else."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*within, sys.executable, "-m", *command],
                cwd=ROOT,
                env=self.env() | over,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return self.processes[name]

    def worker(self, queue: str, *more: str, name: str = "", within: Sequence[str] = (), **over: str) -> None:
        """Start a Celery worker for a queue, as ``start`` does."""
        name = name or queue
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
        node = name if "@" in name else f"{name}@chaos"
        known = ["-Q", "short,long" if queue == "short" else queue, "-c", "1", "-n", node]
        self.start(name, "celery", "-A", "webapp", "worker", *known, *quiet, *more, within=within, **over)

    def web(self) -> None:
        """Start the web server and wait until it answers."""
        self.start("web", "uvicorn", "webapp.asgi:application", "--host", "127.0.0.1", "--port", str(self.port))

        def answers() -> bool:
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=2)
            return True

        wait_until(answers, 30, what="web up")

    def kill9(self, name: str, spare: Set[int] = frozenset()) -> None:
        """Kill a child and all under it, but for those to be spared."""
        process = self.processes.pop(name)
        signal_tree(process.pid, signal.SIGKILL, spare)
        process.wait(10)

    def cut_postgres(self) -> None:
        """Kill PostgreSQL, and forget our own connection to it."""
        self.postgres.kill9()
        connections["default"].close()

    def freeze(self, name: str, spare: set[int]) -> list[int]:
        """Stop a child and all under it in their tracks, but for those spared; returns the frozen."""
        pids = [pid for pid in [self.processes[name].pid, *descendants(self.processes[name].pid)] if pid not in spare]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def _fill(self) -> None:
        self.user = User.objects.create_user("alice", password="x")
        team = Team.objects.create(name="T")
        Membership.objects.create(team=team, user=self.user, role=Role.OWNER)
        self.project = Project.objects.create(team=team, name="P", slug="p")
        self.dataset = Dataset.objects.create(project=self.project, name="d", state=DatasetState.READY, file_name="d")
        self.dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
        self.dataset.rows_path.write_text("{}\n")
        Environment.objects.create(project=self.project, name="e", url="http://127.0.0.1:1", server_name="e")

    def launch(self, script: str, steps: int, save_every: int = 0, **groups: Any) -> Run:
        """A queued run that the workers hear of by the outbox. ``groups`` are more of its config."""
        config = JobConfig.model_validate(
            {
                "model": {"revision": script},
                "data": {"train": "dataset:d@1"},
                "environment": {"name": "environment:e"},
                "run": {"max_steps": steps, "save_every": save_every} | groups.pop("run", {}),
                **groups,
            }
        )
        return run_create(project=self.project, user=self.user, name=f"run {next(self.numbers)}", config=config)

    def reaches(self, run: Run, step: int, timeout_s: float = 30) -> int:
        """Wait until the run has made this step; returns the trainer's pid."""

        def there() -> bool:
            run.refresh_from_db()
            return run.step >= step

        wait_until(there, timeout_s, what=f"step {step} of {run}: {self.tail()}")
        return int(json.loads((attempt_dir(run.pk, run.attempt) / "trainer.json").read_text())["pid"])

    def ends(self, run: Run, timeout_s: float = 60) -> Run:
        """Wait until the run has ended."""

        def ended() -> bool:
            try:
                run.refresh_from_db()
            except Exception:
                connections["default"].close()
                raise
            return run.state in TERMINAL

        try:
            wait_until(ended, timeout_s, what="end of run")
        except AssertionError as exc:
            raise AssertionError(f"{exc} state {run.state} attempt {run.attempt}\n{self.tail()}") from None
        return run

    def tail(self) -> str:
        """The end of every log."""
        logs = [f"== {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log")]
        return "\n".join(logs)


def gone(pid: int, within_s: float) -> float:
    """Wait until a process is gone; returns how long it took."""
    began = time.monotonic()
    wait_until(lambda: not alive(pid), within_s, what=f"process {pid} gone")
    return time.monotonic() - began


__all__ = ["House", "gone"]
