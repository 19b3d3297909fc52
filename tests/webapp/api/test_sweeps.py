"""Sweeps over the API: planned, launched once, listed, and read with their answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.webapp.evaluation.sweeps.conftest import hold_out, make_sweep, runs_of
from tests.webapp.launch.test_sweeps import config
from training.config import JobConfig
from webapp.launch.models import Sweep
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

__all__ = ["config", "make_sweep"]
pytestmark = pytest.mark.django_db
V1, RATE, SEED = "/api/v1", "optim.learning_rate", "run.seed"
AXES = [{"option": RATE, "values": ["1e-5", 3e-5]}, {"option": SEED, "values": [1, 2]}]


def post(client: Client, path: str, body: Any, key: str = "") -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(V1 + path, json.dumps(body), content_type="application/json", headers=headers)


def test_a_sweep_is_planned_then_launched_once(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client]
) -> None:
    client, body = client_for(bob), {"config": config.model_dump(mode="json"), "axes": AXES}
    plan = post(client, "/projects/joust/sweeps/plan", body).json()
    assert (
        plan["runs"] == 4 and plan["values"][3] == {RATE: 3e-5, SEED: 2} and plan["names"][0] == "lr-1e-5.seed-1.NAME"
    )
    assert plan["words"].startswith("Learning rate (2) × Seed (2) = 4 runs") and not Run.objects.exists()
    made = post(client, "/projects/joust/sweeps", body | {"name": "rates"}, "k")
    assert made.status_code == 201 and [run["state"] for run in made.json()["runs"]] == ["draft"] * 4
    assert made.json()["base"] == {RATE: 1e-5} and made.json()["axes"][0]["values"] == [1e-5, 3e-5]
    again = post(client, "/projects/joust/sweeps", body | {"name": "rates"}, "k")
    assert again.json()["id"] == made.json()["id"] and Run.objects.count() == 4
    listed = client.get(f"{V1}/projects/joust/sweeps").json()
    assert [item["name"] for item in listed["items"]] == ["rates"]
    of_sweep = client.get(f"{V1}/projects/joust/runs", {"sweep": made.json()["id"]}).json()
    assert of_sweep["total"] == 4
    assert client.get(f"{V1}/projects/joust/runs", {"sweep": "x"}).json()["total"] == 0


@pytest.mark.parametrize(
    ("axes", "path"),
    [
        ([], "axes"),
        ([{"option": "optim.lerning_rate", "values": [1]}], "axes.0.option"),
        ([AXES[1], {"option": RATE, "values": ["x", 1]}], "axes.1.values"),
        ([{"option": "rewards.spec", "values": ["", "reward:gone@1"]}], "axes.0.values"),
    ],
)
def test_a_refusal_names_the_axis(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client], axes: Any, path: str
) -> None:
    body = {"config": config.model_dump(mode="json"), "axes": axes}
    for address, more in (("/projects/joust/sweeps/plan", {}), ("/projects/joust/sweeps", {"name": "s"})):
        answer = post(client_for(bob), address, body | more)
        assert answer.status_code == 422 and answer.json()["detail"][0]["path"] == path
    assert not Sweep.objects.exists() and not Run.objects.exists()


def test_a_sweep_is_read_with_its_answer(
    project: Project, rita: User, make_sweep: Callable[..., Sweep], client_for: Callable[..., Client]
) -> None:
    sweep = make_sweep([(RATE, [1e-5, 3e-5]), (SEED, [1, 2])])
    for run, count in zip(runs_of(sweep), (4, 5, 18, 19), strict=True):
        hold_out(run, {task: [float(task < count)] for task in range(20)})
    runs_of(sweep)[3].delete()
    found = client_for(rita).get(f"{V1}/sweeps/{sweep.pk}").json()
    assert found["answer"]["kind"] == "helped" and found["evidence"] == "held_out"
    assert found["answer"]["text"].startswith("Learning rate 3e-5 helped: +67.5 points of success over 1e-5 (")
    base, better = found["settings"]
    assert (base["word"], base["gain"], base["p_value"]) == ("base", None, None)
    assert better["values"] == {RATE: 3e-5} and better["success"]["tasks"] == 20 and better["by_seed"] == [0.9]
    assert better["gain"]["value"] == pytest.approx(0.675) and better["p_value"] < 0.001
    assert [place["state"] for place in better["runs"]] == ["succeeded", None]
    assert base["spread"] == pytest.approx(0.05) and better["spread"] is None
