"""Sweeps from a terminal, on real parts: what they are compared by at each stage. Slow."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_journey import JOB, terminal
from tests.processes import ROOT

__all__ = ["terminal"]
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
WAIT_S = 600


def ended(terminal: Callable[..., Any], name: str) -> Any:
    """The sweep once all of its runs have ended."""
    until = time.monotonic() + WAIT_S
    while (found := terminal("sweep", "show", name))["answer"]["kind"] == "running":
        assert time.monotonic() < until, found
        time.sleep(2)
    return found


def test_a_sweep_is_compared_by_the_strongest_evidence_that_it_has(
    terminal: Callable[..., Any], workers: None, tools_server: str, make_environment: Any, tmp_path: Path
) -> None:
    environment = make_environment(url=tools_server)
    rows = [sys.executable, "-m", "envs.tools", "tasks", "--count", "24", "--difficulty", "starter", "--output"]
    subprocess.run([*rows, str(tmp_path / "tasks.jsonl")], cwd=ROOT, check=True, timeout=60)
    assert terminal("dataset", "upload", "tasks.jsonl", "--name", "tasks")["state"] == "ready"
    job = JOB.format(environment=environment.reference)
    (tmp_path / "job.yaml").write_text(job)
    (tmp_path / "held.yaml").write_text(f"{job}evaluate: {{every: 1, share: 0.3}}\n")
    vary = ("--vary", "optim.learning_rate=1e-3,2e-3")
    made = terminal("sweep", "create", "-f", "job.yaml", "--name", "rates", *vary)
    assert [run["name"] for run in made["runs"]] == ["lr-1e-3.rates", "lr-2e-3.rates"]
    terminal("sweep", "create", "-f", "held.yaml", "--name", "held", *vary)
    plain = ended(terminal, "rates")
    assert plain["evidence"] == "training" and plain["settings"][0]["word"] == "base"
    assert all(each["success"]["tasks"] == 4 for each in plain["settings"]), "the groups of the last step"
    for run in made["runs"]:
        words = ("evaluate", run["name"], "--like", "lr-1e-3.rates", "--tasks", "6", "--tries", "2", "--watch")
        assert terminal(*words)["state"] == "succeeded"
    played = terminal("sweep", "show", "rates")
    assert played["evidence"] == "evaluated" and all(each["success"]["tasks"] == 6 for each in played["settings"])
    held = ended(terminal, "held")
    assert held["evidence"] == "held_out"
    tasks = {each["success"]["tasks"] for each in held["settings"]}
    assert len(tasks) == 1 and 2 <= tasks.pop() <= 14 and held["settings"][1]["gain"]["value"] is not None
