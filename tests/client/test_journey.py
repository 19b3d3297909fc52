"""From a terminal alone: upload, train twice with different rewards, evaluate both, compare, download.

On real parts: web server, Celery workers, environment server, trainer. Slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import ROOT
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
JOB = """
kind: grpo
data: {{train: "dataset:tasks@1"}}
environment: {{name: "{environment}"}}
rewards: {{components: [{{name: task_success, weight: 1.0}}]}}
rollout: {{prompts_per_step: 4, num_generations: 4, max_turns: 2, max_turn_tokens: 24, max_completion_tokens: 64}}
run: {{max_steps: 2, seed: 3, threads: 1}}
"""
SUITE = """
name: exam
parts:
  - title: few
    config:
      data: {{train: "dataset:tasks@1"}}
      environment: {{name: "{environment}"}}
      rewards: {{components: [{{name: task_success, weight: 1.0}}]}}
      rollout: {{num_generations: 1, max_turns: 2, max_turn_tokens: 24, max_completion_tokens: 64}}
      evaluate: {{tasks: 3}}
      run: {{threads: 1}}
"""
SHAPED = [{"name": "task_success", "weight": 0.7}, {"name": "tool_call_correctness", "weight": 0.3}]


@pytest.fixture
def terminal(tmp_path: Path, site: str, bob: User, project: Project) -> Callable[..., Any]:
    """``terminal("run", "list")``: what ``tiltyard --json`` prints, in a process of its own; it must end with 0."""
    here = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PYTHONPATH": str(ROOT / "client"), "PATH": os.environ["PATH"]}
    token = token_create(user=bob, name="laptop", role="editor")[1]

    def run(*words: str, plain: bool = False) -> Any:
        argv = [sys.executable, "-m", "tiltyard_client", *words, *([] if plain else ["--json"])]
        made = subprocess.run(argv, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=400)
        assert made.returncode == 0, (words, made.stdout[-2000:], made.stderr[-2000:])
        return made.stdout if plain else json.loads(made.stdout)

    run("login", site, "--token", token, plain=True)
    return run


def test_which_model_is_better_from_a_terminal(
    terminal: Callable[..., Any], workers: None, tools_server: str, make_environment: Any, tmp_path: Path
) -> None:
    environment = make_environment(url=tools_server)
    rows = [sys.executable, "-m", "envs.tools", "tasks", "--count", "24", "--difficulty", "starter", "--output"]
    subprocess.run([*rows, str(tmp_path / "tasks.jsonl")], cwd=ROOT, check=True, timeout=60)
    assert terminal("dataset", "upload", "tasks.jsonl", "--name", "tasks")["state"] == "ready"
    (tmp_path / "job.yaml").write_text(JOB.format(environment=environment.reference))
    first = terminal("run", "launch", "-f", "job.yaml", "--name", "plain", "--watch")
    change = f"rewards.components={json.dumps(SHAPED)}"
    second = terminal("run", "clone", "plain", "--name", "shaped", "--set", change, "--watch")
    assert first["state"] == second["state"] == "succeeded" and second["step"] == 2
    for name in ("plain", "shaped"):
        words = ("evaluate", name, "--like", "plain", "--tasks", "6", "--tries", "2", "--watch")
        assert terminal(*words)["state"] == "succeeded"
    found = terminal("compare", "plain-evaluate", "shaped-evaluate")
    assert [(item["name"], item["tasks"]) for item in found["items"]] == [("plain-evaluate", 6), ("shaped-evaluate", 6)]
    assert all(item["figures"]["success"]["tasks"] == 6 for item in found["items"]) and not found["specs_differ"]
    assert len(found["verdicts"]) == 1 and "n = 6 tasks × 2" in found["verdicts"][0]["text"]
    assert Run.objects.get(name="plain-evaluate").evaluation["tries"] == 12
    link = terminal("compare", "plain-evaluate", "shaped-evaluate", "--save", "which", "--share", "1")["link"]["url"]
    assert "plain-evaluate" in httpx.get(link, follow_redirects=True).text
    (tmp_path / "suite.yaml").write_text(SUITE.format(environment=environment.reference))
    assert terminal("suite", "save", "-f", "suite.yaml")["version"] == 1
    line = terminal("suite", "evaluate", "exam", "--contestant", "plain", "--watch")
    assert [part["state"] for part in line["parts"]] == ["succeeded"] and line["score"]["tasks"] == 3
    assert [line["contestant"] for line in terminal("suite", "show", "exam")["lines"]] == ["model:plain"]
    files = terminal("model", "download", "plain")["files"]
    assert any(name.endswith(".safetensors") for name in files) and all((tmp_path / name).is_file() for name in files)
    assert terminal("model", "mark", "plain", "production")["mark"] == "production"
    states = {row["name"]: row["state"] for row in terminal("run", "list")}
    played = Run.objects.get(pk=line["runs"][0]).name
    assert states == dict.fromkeys(("plain", "shaped", "plain-evaluate", "shaped-evaluate", played), "succeeded")
