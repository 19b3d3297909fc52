"""Faults under a real GRPO run: the real trainer, TRL and the tools server; stop in every phase as the page does it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.chaos.house import ROOT, House, gone
from tests.chaos.services import alive, wait_until
from tests.chaos.truth import assert_exact
from tests.processes import wait_for_http
from training.config import JobConfig
from webapp.common.host import free_port
from webapp.common.storage import attempt_dir
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def real_house(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[House]:
    """A house whose worker starts the real trainer, with a tools server and tasks for it."""
    folder = tmp_path_factory.mktemp("real-house")
    port = free_port()
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        patch.setenv("TILTYARD_OUTBOUND_ALLOW", f"127.0.0.1:{port}")  # the trainer reaches nothing else that is private
        house = House(folder, "webapp.settings")
        try:
            house.open()
            tools_start(house, port)
            _fill(house, port, folder)
            yield house
        finally:
            house.close()


def tools_start(house: House, port: int) -> None:
    """The environment's server, which a test may kill as ``tools``, and start again."""
    house.start("tools", "envs.tools", "--port", str(port), "--delay-ms", "300")
    wait_for_http(f"http://127.0.0.1:{port}/health", house.processes["tools"], house.folder / "tools.log")


def _fill(house: House, port: int, folder: Path) -> None:
    tasks = folder / "tasks.jsonl"
    command = [sys.executable, "-m", "envs.tools", "tasks", "--difficulty", "starter", "--count", "64"]
    subprocess.run([*command, "--output", str(tasks)], cwd=ROOT, check=True)
    house.dataset.rows_path.write_bytes(tasks.read_bytes())
    Environment.objects.filter(project=house.project).update(url=f"http://127.0.0.1:{port}", server_name="tools")


def _launch(house: House, steps: int, save_every: int) -> Run:
    config = JobConfig.model_validate(
        {
            "model": {"source": "starter"},
            "data": {"train": "dataset:d@1"},
            "environment": {"name": "environment:e"},
            "rollout": {
                "prompts_per_step": 2,
                "num_generations": 4,
                "max_turn_tokens": 24,
                "max_completion_tokens": 64,
            },
            "run": {"max_steps": steps, "save_every": save_every, "threads": 1},
        }
    )
    return run_create(project=house.project, user=house.user, name=f"real {next(house.numbers)}", config=config)


def test_redis_and_postgres_restart_under_a_run(real_house: House) -> None:
    run = _launch(real_house, steps=14, save_every=4)
    trainer = real_house.reaches(run, 3, 120)
    real_house.redis.kill9()
    time.sleep(2)
    real_house.redis.start()
    real_house.reaches(run, 6, 60)
    real_house.cut_postgres()
    time.sleep(3)
    assert alive(trainer), "training waits for no database"
    real_house.postgres.start()
    real_house.ends(run, 180)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 1, 14), real_house.tail()
    assert_exact(run)


def test_a_trainer_killed_mid_run_continues_from_its_checkpoint(real_house: House) -> None:
    import os
    import signal

    run = _launch(real_house, steps=10, save_every=3)
    os.kill(real_house.reaches(run, 5, 120), signal.SIGKILL)
    real_house.ends(run, 240)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 10), real_house.tail()
    assert Attempt.objects.get(run=run, number=2).first_step in (3, 4)
    assert_exact(run)


@pytest.mark.parametrize("phase", ["queued", "preparing", "generating", "scoring", "training", "saving"])
def test_stop_pressed_in_a_phase(real_house: House, phase: str) -> None:
    blocker = _launch(real_house, steps=500, save_every=0) if phase == "queued" else None
    if blocker is not None:
        real_house.reaches(blocker, 1, 120)
    run = _launch(real_house, steps=500, save_every=1)
    _wait_for_phase(run, phase)
    client = Client()
    client.force_login(real_house.user)
    pressed = time.monotonic()
    answer = client.post(f"/p/{real_house.project.slug}/runs/{run.pk}/stop/")
    assert answer.status_code in (200, 302), answer.content[:300]
    real_house.ends(run, 60)
    assert run.state == RunState.CANCELLED and run.error in (None, {}), (run.error, real_house.tail())
    assert time.monotonic() - pressed < 20
    if blocker is not None:
        client.post(f"/p/{real_house.project.slug}/runs/{blocker.pk}/stop/")
        real_house.ends(blocker, 60)
        assert run.attempt == 0
        return
    assert_exact(run)
    gone(json.loads((attempt_dir(run.pk, 1) / "trainer.json").read_text())["pid"], 5)
    last = json.loads((attempt_dir(run.pk, 1) / "journal.jsonl").read_text().splitlines()[-1])
    assert (last["type"], last["status"]) == ("run_finished", "stopped")


def _wait_for_phase(run: Run, phase: str) -> None:
    def there() -> bool:
        if phase == "queued":
            return Run.objects.get(pk=run.pk).state == RunState.QUEUED
        return RunEvent.objects.filter(run=run, kind="phase", payload__phase=phase).exists()

    wait_until(there, 120, what=f"phase {phase}")
