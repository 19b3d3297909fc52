"""``tiltyard suite``: a file becomes a suite, a contestant plays it, and its leaderboard is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiltyard_client.suites import suite_of

from tests.client.conftest import Tool, answered, refused
from tests.processes import ROOT
from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun, SuiteVersion
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)
FILE = """
name: exam
note: What we measure by.
parts:
  - title: easy
    config: &config
      data: {{train: "{data}"}}
      environment: {{name: "{environment}"}}
      rollout: {{num_generations: 2}}
  - {{title: hard, weight: 3, config: *config}}
"""


@pytest.fixture
def exam(home: Path, tasks: Dataset, make_environment: Callable[..., Environment]) -> Path:
    """A suite as a file, of two parts that differ in their weight."""
    text = FILE.format(data=tasks.reference, environment=make_environment().reference)
    (home / "suite.yaml").write_text(text)
    return home / "suite.yaml"


def test_a_file_becomes_a_suite_and_another_one_its_next_version(tool: Tool, exam: Path) -> None:
    assert "nothing yet" in tool("suite", "list").stdout
    made = answered(tool("suite", "save", "-f", "suite.yaml", "--json"))
    assert (made["name"], made["version"], made["note"]) == ("exam", 1, "What we measure by.")
    parts = SuiteVersion.objects.get().parts
    assert [(part["title"], part["weight"]) for part in parts] == [("easy", 1.0), ("hard", 3.0)]
    assert [part["config"]["rollout"]["num_generations"] for part in parts] == [2, 2]
    assert tool("suite", "save", "-f", "suite.yaml").stdout == "exam: version 1\n"
    exam.write_text(exam.read_text().replace("weight: 3", "weight: 2"))
    assert tool("suite", "save", "-f", "suite.yaml").stdout == "exam: version 2\n"
    assert tool("suite", "save", "-f", "suite.yaml", "--name", "other").stdout == "other: version 1\n"
    shown = tool("suite", "list").stdout
    assert "exam" in shown and "other" in shown and "What we measure by." in shown
    listed = answered(tool("suite", "list", "--json"))
    assert {(row["name"], row["version"]) for row in listed} == {("exam", 2), ("other", 1)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("parts: [", "cannot be read as YAML"),
        ("- a", "is no suite"),
        ("name: x", "is no suite"),
        ("name: x\nparts: {}", "is no suite"),
        ("name: x\nparts: &a [*a]", "cannot be read as YAML"),
        ("name: x\nparts: [{title: a, weight: .nan}]", "cannot be read as YAML"),
        ("name: x\nparts: [{title: a, config: {}, wieght: 2}]", "wieght"),
        ("name: x\nparts: []", "parts"),
        ("name: x\nparts: [{title: a, config: {data: {train: 2020-01-01}}, weight: 0}]", "weight above 0"),
    ],
)
def test_a_file_that_is_no_suite_is_refused_with_a_sentence(tool: Tool, home: Path, text: str, sentence: str) -> None:
    (home / "suite.yaml").write_text(text)
    refused(tool("suite", "save", "-f", "suite.yaml"), sentence)
    assert not Suite.objects.exists()


def test_a_file_that_is_no_text_is_refused(tool: Tool, home: Path) -> None:
    (home / "suite.yaml").write_bytes(b"\xff\xfe\x00")
    refused(tool("suite", "save", "-f", "suite.yaml"), "cannot be read as YAML")
    assert tool("suite", "save", "-f", "gone.yaml").exit_code == 2


def test_the_documented_file_is_a_suite(home: Path) -> None:
    page = (ROOT / "client" / "README.md").read_text(encoding="utf-8")
    (home / "suite.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    found = suite_of(home / "suite.yaml")
    assert found["name"] == "exam" and [part["title"] for part in found["parts"]] == ["easy"]
    assert JobConfig.model_validate(found["parts"][0]["config"] | {"kind": "evaluate"}).rollout.num_generations == 4


def test_a_contestant_plays_all_parts(tool: Tool, exam: Path) -> None:
    assert tool("suite", "save", "-f", "suite.yaml").exit_code == 0
    assert "No contestant has played it" in tool("suite", "show", "exam").stdout
    made = answered(tool("suite", "evaluate", "exam", "--contestant", "policy:claim_success", "--json"))
    assert made["contestant"] == "policy:claim_success"
    assert {str(run.pk) for run in Run.objects.filter(kind="evaluate", state="queued")} == set(made["runs"])
    shown = tool("suite", "evaluate", "exam", "--contestant", "policy:empty").stdout
    assert Run.objects.count() == 4 and all(run.name in shown for run in Run.objects.order_by("-created_at")[:2])
    board = tool("suite", "show", "exam").stdout
    assert "policy:empty" in board and "queued" in board and "exam @1" in board
    RegisteredModel.objects.create(project=Project.objects.get(slug="joust"), name="small", kind=ModelKind.STARTER)
    assert answered(tool("suite", "evaluate", "exam", "--contestant", "small", "--json"))["contestant"] == "model:small"
    unknown = tool("suite", "evaluate", "exam", "--contestant", "model:nobody")
    refused(unknown, "there is no model “nobody” in this project.")
    assert unknown.stderr.count("nobody") == 1  # said once
    refused(tool("suite", "evaluate", "exam", "--contestant", "policy:cheat"), "Choose who plays.")
    refused(tool("suite", "evaluate", "nothing", "--contestant", "starter"), "There is no suite 'nothing' in joust.")
    refused(tool("suite", "show", "nothing"), "There is no suite 'nothing' in joust.")
    assert tool("suite", "evaluate", "exam").exit_code == 2


@pytest.mark.parametrize(("ends", "code"), [(("succeeded", "succeeded"), 0), (("failed", "succeeded"), 5)])
def test_watching_lasts_until_the_last_part_ends(tool: Tool, exam: Path, ends: tuple[str, str], code: int) -> None:
    assert tool("suite", "save", "-f", "suite.yaml").exit_code == 0

    def play() -> None:
        """The second part ends before the first."""
        until = time.monotonic() + 30
        while SuiteRun.objects.count() < 2 and time.monotonic() < until:
            time.sleep(0.05)
        first, second = (item.run_id for item in SuiteRun.objects.order_by("part"))
        Run.objects.filter(pk=second).update(state=ends[1], seq=5)
        time.sleep(0.5)
        Run.objects.filter(pk=first).update(state=ends[0], seq=5)

    thread = threading.Thread(target=play)
    thread.start()
    words = ("suite", "evaluate", "exam", "--contestant", "policy:empty", "--watch", "--json")
    line = answered(tool(*words), code)
    thread.join()
    assert [part["state"] for part in line["parts"]] == list(ends)
    assert (line["contestant"], len(line["runs"])) == ("policy:empty", 2)


def test_the_leaderboard_says_scores_and_what_they_leave_out(
    tool: Tool, exam: Path, evaluation: Callable[..., Run]
) -> None:
    assert tool("suite", "save", "-f", "suite.yaml").exit_code == 0
    version = SuiteVersion.objects.get()
    tries: Any = {0: [1, 1], 1: [1, 1], 2: [1, 1], 3: [0, 0]}
    for contestant, solved in (("model:good", tries), ("model:bad", {task: [0, 0] for task in range(4)})):
        made = SuiteEvaluation.objects.create(version=version, contestant=contestant, environments=[{}, {}])
        for part in (0, 1):
            run = evaluation(f"{contestant[6:]}-{part}", solved)
            SuiteRun.objects.create(evaluation=made, part=part, run=run)
    shown = tool("suite", "show", "exam").stdout
    good, bad = (line for line in shown.splitlines() if line.startswith(" model:"))
    assert "model:good" in good and "75%" in good and "model:bad" in bad and "0%" in bad
    found = answered(tool("suite", "show", "exam", "--json"))
    assert [(line["contestant"], line["score"]["value"]) for line in found["lines"]] == [
        ("model:good", 0.75),
        ("model:bad", 0.0),
    ]
