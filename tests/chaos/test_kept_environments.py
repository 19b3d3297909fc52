"""Servers that the keeper started, under a real GRPO run: one of two killed, the only one killed, PostgreSQL away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.house import ROOT, House
from tests.chaos.services import alive, wait_until
from tests.chaos.truth import assert_exact
from training.config import JobConfig
from webapp.engine.services import run_create
from webapp.environments.models import Environment, Replica, ReplicaState
from webapp.environments.services import environment_launch
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kept_house(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[House]:
    """A house with a keeper, whose worker starts the real trainer."""
    folder = tmp_path_factory.mktemp("kept-house")
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        house = House(folder, "webapp.settings")
        try:
            house.open()
            house.start("keeper", "django", "keep_environments")
            argv = [sys.executable, "-m", "envs.tools", "tasks", "--difficulty", "starter", "--count", "64"]
            subprocess.run([*argv, "--output", str(house.dataset.rows_path)], cwd=ROOT, check=True)
            yield house
        finally:
            house.close()


def _launch(house: House, name: str, replicas: int) -> Environment:
    made = environment_launch(
        project=house.project, user=house.user, name=name, kind="process", program="tools", slots=64, wanted=replicas
    )
    wait_until(lambda: len(_healthy(made)) == replicas, 60, what=f"{replicas} healthy replicas: {house.tail()}")
    return made


def _healthy(environment: Environment) -> list[Replica]:
    return list(environment.replicas.filter(state=ReplicaState.HEALTHY).order_by("number"))


def _train(house: House, environment: Environment, steps: int) -> Run:
    config = JobConfig.model_validate(
        {
            "model": {"source": "starter"},
            "data": {"train": "dataset:d@1"},
            "environment": {"name": f"environment:{environment.name}"},
            "rollout": {
                "prompts_per_step": 4,
                "num_generations": 4,
                "max_turn_tokens": 24,
                "max_completion_tokens": 64,
            },
            "run": {"max_steps": steps, "threads": 1},
        }
    )
    return run_create(project=house.project, user=house.user, name=f"on {environment.name}", config=config)


def _kill(replica: Replica) -> None:
    os.kill(int(replica.handle["pid"]), signal.SIGKILL)


def test_one_of_two_servers_killed_costs_the_run_nothing(kept_house: House) -> None:
    environment = _launch(kept_house, "two", 2)
    run = _train(kept_house, environment, 30)
    kept_house.reaches(run, 5, 120)
    killed = _healthy(environment)[0]
    _kill(killed)
    kept_house.ends(run, 240)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 1, 30), kept_house.tail()
    assert Rollout.objects.filter(run=run).count() == 30 * 16
    assert not Rollout.objects.filter(run=run, status="excluded").exists()
    wait_until(lambda: len(_healthy(environment)) == 2, 60, what="the killed server is back")
    back = environment.replicas.get(number=killed.number)
    assert (back.url, back.restarts) == (killed.url, killed.restarts + 1)
    assert_exact(run)


def test_the_only_server_killed_holds_the_step_and_costs_the_run_nothing(kept_house: House) -> None:
    """With default settings, three steps that no server answered had ended the run for good in 5 s."""
    environment = _launch(kept_house, "one", 1)
    run = _train(kept_house, environment, 80)
    kept_house.reaches(run, 5, 120)
    _kill(_healthy(environment)[0])
    kept_house.ends(run, 240)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 1, 80), kept_house.tail()
    assert Rollout.objects.filter(run=run).count() == 80 * 16
    assert not Rollout.objects.filter(run=run, status="excluded").exists()
    held = [event.payload for event in RunEvent.objects.filter(run=run, kind="held").order_by("seq")]
    assert held and held[0]["error"]["code"] == "environment_unreachable" and held[-1]["error"] is None
    assert_exact(run)


def test_servers_live_through_an_outage_of_the_database(kept_house: House) -> None:
    environment = _launch(kept_house, "calm", 1)
    before = _healthy(environment)[0]
    kept_house.cut_postgres()
    time.sleep(6)
    assert alive(int(before.handle["pid"])), "a server needs no database"
    kept_house.postgres.start()

    def asked_again() -> bool:
        now = environment.replicas.get()
        return now.checked_at is not None and before.checked_at is not None and now.checked_at > before.checked_at

    wait_until(asked_again, 60, what=f"the keeper is back: {kept_house.tail()}")
    after = environment.replicas.get()
    assert (after.handle, after.restarts, after.state) == (before.handle, 0, ReplicaState.HEALTHY)
    _kill(after)
    wait_until(lambda: [row.restarts for row in _healthy(environment)] == [1], 60, what="it still restarts servers")
