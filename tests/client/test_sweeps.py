"""``tiltyard sweep``: planned, launched, listed, and read with its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import Tool, answered, refused
from tests.webapp.evaluation.sweeps.conftest import hold_out, make_sweep, runs_of
from tests.webapp.launch.test_sweeps import config
from training.config import JobConfig, config_to_yaml
from webapp.launch.models import Sweep
from webapp.people.teams.models import ApiToken, Membership
from webapp.runs.models import Run

__all__ = ["config", "make_sweep"]
pytestmark = pytest.mark.django_db(transaction=True)
VARY = ("--vary", "optim.learning_rate=1e-5,3e-5", "--vary", "run.seed=1, 2")


@pytest.fixture
def job(home: Path, config: JobConfig) -> Path:
    (home / "rates.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    return home / "rates.yaml"


def test_a_sweep_is_planned_then_launched(tool: Tool, job: Path) -> None:
    plan = tool("sweep", "create", "-f", "rates.yaml", *VARY, "--plan")
    assert plan.stdout.startswith("Learning rate (2) × Seed (2) = 4 runs") and "\nlr-3e-5.seed-2.rates\n" in plan.stdout
    assert not Run.objects.exists()
    made = tool("sweep", "create", "-f", "rates.yaml", *VARY).stdout
    assert "lr-1e-5.seed-1.rates\n" in made and "tiltyard sweep show rates" in made
    assert Sweep.objects.get().runs.count() == 4
    shown = tool("sweep", "list").stdout
    assert "rates" in shown and "optim.learning_rate 1e-5, 3e-5; run.seed 1, 2" in shown
    board = tool("sweep", "show", "rates").stdout
    assert "Still running: 0 of 4 runs have ended." in board and "draft, draft" in board
    alone = answered(
        tool("sweep", "create", "-f", "rates.yaml", "--vary", VARY[1], "--one-at-a-time", "--plan", "--json")
    )
    assert alone["runs"] == 3


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ("optim.learning_rate", "Write option=value,value"),
        ("run.seed=", "Write option=value,value"),
        ("optim.lerning_rate=1,2", "Did you mean optim.learning_rate?"),
        ("optim.learning_rate=x,1", "x is no value of optim.learning_rate"),
        ("run.seed=1", "Give at least two values"),
    ],
)
def test_what_is_no_sweep_is_refused_with_a_sentence(tool: Tool, job: Path, vary: str, sentence: str) -> None:
    refused(tool("sweep", "create", "-f", "rates.yaml", "--vary", vary), sentence)
    assert not Run.objects.exists()


def test_the_answer_is_shown_with_its_settings(tool: Tool, make_sweep: Callable[..., Sweep]) -> None:
    sweep = make_sweep([("optim.learning_rate", [1e-5, 3e-5])])
    for run, count in zip(runs_of(sweep), (4, 18), strict=True):
        hold_out(run, {task: [float(task < count)] for task in range(20)})
    shown = tool("sweep", "show", "rates").stdout
    assert shown.startswith("Learning rate 3e-5 helped: +70.0 points of success over 1e-5 (")
    assert "+70.0" in shown and "helped" in shown and "20%" in shown and "Success on held-out tasks" in shown
    found: Any = answered(tool("sweep", "show", "rates", "--json"))
    assert found["answer"]["kind"] == "helped" and [each["word"] for each in found["settings"]] == ["base", "helped"]
    refused(tool("sweep", "show", "nothing"), "There is no sweep 'nothing' in joust.")


def test_a_sweep_is_deleted_alone_or_with_its_runs(tool: Tool, make_sweep: Callable[..., Sweep]) -> None:
    make_sweep([("optim.learning_rate", [1e-5, 3e-5])])
    refused(tool("sweep", "delete", "rates"), "There is no terminal to ask at: --yes confirms it.", 2)
    assert tool("sweep", "delete", "rates", "--yes").stdout == "rates was deleted; its runs stay.\n"
    assert not Sweep.objects.exists() and Run.objects.count() == 2
    make_sweep([("optim.learning_rate", [1e-5, 3e-5])], name="again")
    refused(tool("sweep", "delete", "again", "--runs", "-y"), "Your role in this team is editor; this needs owner.")
    Membership.objects.filter(user__username="bob").update(role="owner")
    ApiToken.objects.update(role="owner")
    Run.objects.filter(name="again-0").update(state="running")
    refused(tool("sweep", "delete", "again", "--runs", "-y"), "Runs have not ended: again-0. Stop them first")
    Run.objects.filter(name="again-0").update(state="failed")
    assert answered(tool("sweep", "delete", "again", "--runs", "-y", "--json")) == {"deleted": "again"}
    assert not Run.objects.filter(name__startswith="again").exists() and Run.objects.count() == 2
