"""The README's commands, run as they are there. Slow: they install, and train to the end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import port_is_free, wait_for_http
from tests.test_docs import STANDALONE
from training.journal import JOURNAL_NAME, Metrics, RunFinished, read_events
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A copy of what the commands need, where they may write."""
    for name in ("envs", "training", "webapp", "examples", "manage.py", "pyproject.toml"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    yield tmp_path


@pytest.mark.django_db(transaction=True)
def test_training_without_the_web_and_import(
    folder: Path, project: Any, child_env: Callable[..., dict[str, str]]
) -> None:
    servers = []
    try:
        for command in STANDALONE:
            argv = command.replace(".venv/bin/python", sys.executable).replace("my-project", project.slug).split()
            env = child_env(PYTHONPATH=str(folder))
            env.pop("TILTYARD_OUTBOUND_ALLOW", None)  # it is not set at a command line; the suite has its own
            if argv[-1] == "&":
                port = argv[argv.index("--port") + 1]
                assert port_is_free(int(port)), f"another server has the README's port {port}"
                log = folder / "server.log"
                with log.open("wb") as file:
                    servers.append(subprocess.Popen(argv[:-1], cwd=folder, env=env, stdout=file, stderr=file))
                wait_for_http(f"http://127.0.0.1:{port}/health", servers[-1], log)
                continue
            done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (command, done.stdout[-1500:], done.stderr[-1500:])
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)
    events = [event for _, event in read_events(folder / "runs/grpo" / JOURNAL_NAME, 0, 1 << 30)]
    rewards = [event.values["reward"] for event in events if isinstance(event, Metrics) and "reward" in event.values]
    assert isinstance(events[-1], RunFinished) and events[-1].status == "succeeded"
    assert sum(rewards[-10:]) >= 1.4 * sum(rewards[:10])
    run = Run.objects.get(project=project, name="grpo")
    shown = MetricPoint.objects.filter(run=run, name="reward").order_by("step").values_list("value", flat=True)
    assert list(shown) == rewards


def test_a_fresh_clone_makes_the_demo() -> None:
    argv = [sys.executable, "benchmarks/demo.py", "--clone"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["state"] == "succeeded"
    assert result["reward_ratio"] >= 1.4
    assert result["first_reward_on_screen_s"] <= 360
