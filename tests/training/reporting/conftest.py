"""A run's journal that a test writes step by step while its reporters read, and a stand-in for W&B's package."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig, config_to_yaml
from training.journal import Journal, Metrics, RunFinished, RunStarted
from training.reporting.starting import Reports

KEY = "k" * 8 + "secret-of-the-tracker"
RUN_ID = "5d1c0d55-1111-4222-8333-444455556666"


class Attempt:
    """One attempt of a run, as its trackers see it."""

    def __init__(self, folder: Path, number: int, from_step: int, *, to: list[str], **report: Any) -> None:
        self.run_dir = folder / str(number)
        self.run_dir.mkdir(parents=True)
        report = {"project": "pilot", "name": "first", "tags": ["a", "b"], **report, "to": to}
        config = JobConfig.model_validate(
            {"report": report, "model": {"source": "/srv/models/m"}, "environment": {"url": "http://gpu-1:8001"}}
        )
        path = self.run_dir / "config.yaml"
        path.write_text(config_to_yaml(config))
        self.journal = Journal(self.run_dir)
        earlier = [folder / str(before) for before in range(1, number)]
        self.reports = Reports(config, path, self.run_dir, self.journal, attempt=number, earlier=earlier, run_id=RUN_ID)
        self.journal.write(RunStarted(kind="grpo", total_steps=99, from_step=from_step, attempt=number))

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            values = {"reward": step + int(self.run_dir.name) / 10, "rewards/exact/mean": step / 3}
            self.journal.write(Metrics(step=step, values=values))

    def end(self, status: str = "succeeded") -> None:
        self.journal.write(RunFinished(status=status, step=0))  # type: ignore[arg-type]
        self.leave()

    def leave(self) -> None:
        self.reports.end(stopped=False)
        self.journal.close()

    def log(self) -> list[tuple[str, str]]:
        lines = map(json.loads, (self.run_dir / "journal.jsonl").read_text().splitlines())
        return [(line["level"], line["message"]) for line in lines if line["type"] == "log"]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    started: list[Attempt] = []

    def make(number: int = 1, from_step: int = 0, **options: Any) -> Attempt:
        started.append(Attempt(tmp_path / "run", number, from_step, **options))
        return started[-1]

    yield make
    for attempt in started:
        for child in attempt.reports._children.values():
            child.kill()
            child.wait()


class Wandb:
    """What the stand-in received."""

    def __init__(self, record: Path) -> None:
        self.record = record

    def received(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def steps(self) -> list[tuple[int, float]]:
        return [(item["step"], item["values"]["reward"]) for item in self.received() if "step" in item]

    def wait(self, condition: Callable[[list[dict[str, Any]]], bool], limit_s: float = 30) -> None:
        end = time.monotonic() + limit_s
        while not condition(self.received()):
            assert time.monotonic() < end, self.received()
            time.sleep(0.05)


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Wandb]:
    """The stand-in in place of the package; call it with how it shall behave, before each attempt."""
    packages = tmp_path / "packages"
    packages.mkdir()
    shutil.copyfile(Path(__file__).with_name("fake_wandb.py"), packages / "wandb.py")

    def behaves(how: str) -> Wandb:
        root = str(Path(__file__).resolve().parents[3])
        monkeypatch.setenv("PYTHONPATH", ":".join([str(packages), root]))
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_ENTITY", how)
        monkeypatch.setenv("WANDB_BASE_URL", str(tmp_path / "received.jsonl"))
        return Wandb(tmp_path / "received.jsonl")

    return behaves
