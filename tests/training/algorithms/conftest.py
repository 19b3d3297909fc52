"""Runs of the real trainers on the tiny model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import demonstration_rows, job_config, write_rows
from training.algorithms.job import Job
from training.journal import Journal

MakeJob = Callable[..., Job]


def job_maker(tmp_path: Path, starter_folder: Path) -> MakeJob:
    """Builds jobs on the tiny model; ``name`` is a job's run directory, the rest are config groups."""

    def make(name: str = "run", *, resume_from: Path | None = None, **groups: Any) -> Job:
        sft = groups.get("kind") == "sft"
        data = write_rows(tmp_path / f"{name.replace('/', '-')}.jsonl", demonstration_rows(), prompts_only=not sft)
        groups.setdefault("model", {"source": str(starter_folder)})
        groups["data"] = {"train": str(data), **groups.get("data", {})}
        config = job_config(**groups)
        run_dir = tmp_path / name
        return Job(config, run_dir, Journal(run_dir), threading.Event(), 1, (resume_from,) if resume_from else ())

    return make


@pytest.fixture
def make_job(tmp_path: Path, starter_folder: Path) -> MakeJob:
    """``job_maker`` in this test's folder."""
    return job_maker(tmp_path, starter_folder)


@pytest.fixture
def no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments are not asked for their health: the scripted server speaks only the websocket."""
    for module in ("grpo", "playing"):
        monkeypatch.setattr(f"training.algorithms.{module}.check_environment", lambda config: None)


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of which too many rollouts failed is not followed by a wait for the rest of twenty seconds."""
    monkeypatch.setattr("training.rollout.holding.BAD_STEP_S", 0.0)
