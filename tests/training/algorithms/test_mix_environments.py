"""A mix on two real environments over HTTP: our tools server and ToolBench's world, GRPO on a starter of the words of
both; one of the servers dies, and the run continues from there once it is back."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.environment import environment_server
from tests.training.helpers import of_type
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.config import JobConfig, config_from_yaml
from training.errors import EnvironmentUnreachable
from training.journal import Journal
from training.rewards.scoring import differently_scored

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tasks of both environments, short ones for tiny models."""
    folder = tmp_path_factory.mktemp("tasks")
    made = {name: str(folder / f"{name}.jsonl") for name in ("tools", "toolbench")}
    for name, path in made.items():
        command = [sys.executable, "-m", f"envs.{name}", "tasks", "--difficulty", "starter", "--output", path]
        subprocess.run([*command, "--count", "24"], check=True, timeout=120, capture_output=True)
    return made


def job(folder: Path, rows: dict[str, str], urls: dict[str, str], resume_from: Path | None = None) -> Job:
    """examples/mix.yaml in small, with half of the groups for each."""
    raw = yaml.safe_load((ROOT / "examples" / "mix.yaml").read_text(encoding="utf-8"))
    for part in raw["mix"]["parts"]:
        part["data"]["train"], part["weight"] = rows[part["name"]], 1
        part["environment"] |= {"url": urls[part["name"]], "patience_s": 0}
    raw["rollout"] |= {"prompts_per_step": 2, "num_generations": 4, "max_turns": 2, "max_turn_tokens": 24}
    raw["evaluate"] |= {"every": 9, "share": 0.2, "tasks": 2}
    raw["run"] |= {"max_steps": 2, "save_every": 1, "device": "cpu"}
    config = JobConfig.model_validate(raw)
    return Job(config, folder, Journal(folder), threading.Event(), 1, (resume_from,) if resume_from else ())


class Dies(Journal):
    """A journal in whose second step a server ends."""

    victim: Any = None

    def write(self, event: Any) -> None:
        super().write(event)
        if event.type == "phase" and event.phase == "generating" and event.step == 2 and self.victim is not None:
            self.victim.__exit__(None, None, None)
            self.victim = None


def test_the_example_is_what_its_head_says() -> None:
    text = (ROOT / "examples" / "mix.yaml").read_text(encoding="utf-8")
    config = config_from_yaml(text)
    assert [part.weight for part in config.mix.parts] == [3.0, 1.0] and differently_scored(config) is None
    for name, course in config.named_courses.items():
        port = course.environment.url.rpartition(":")[2]
        assert f"#   python -m envs.{name} --port {port} &\n" in text
        assert f"#   python -m envs.{name} tasks --difficulty starter --output {course.data.train}\n" in text


@pytest.mark.slow
def test_two_real_environments_teach_one_model_and_one_of_them_dies(rows: dict[str, str], tmp_path: Path) -> None:
    toolbench = environment_server("toolbench")
    with environment_server("tools") as tools:
        urls = {"tools": tools.url, "toolbench": toolbench.__enter__().url}
        first = job(tmp_path / "1", rows, urls)
        first.journal = Dies(tmp_path / "1")
        first.journal.victim = toolbench
        with pytest.raises(EnvironmentUnreachable, match="The environment of part toolbench could not be reached"):
            run_grpo(first)
        assert (tmp_path / "1" / "checkpoint-1").is_dir()
        with environment_server("toolbench") as again:
            second = job(tmp_path / "2", rows, urls | {"toolbench": again.url}, tmp_path / "1")
            run_grpo(second)
    begun = of_type(tmp_path / "1", "rollout_started")
    assert {(event.step, event.part) for event in begun if not event.held_out} == {
        (1, "tools"), (1, "toolbench"), (2, "tools"), (2, "toolbench"),
    }  # fmt: skip
    part_of = {event.rollout: event.part for event in of_type(tmp_path / "2", "rollout_started")}
    ends = of_type(tmp_path / "2", "rollout_finished")
    assert len(ends) >= 8 and {event.status for event in ends} <= {"completed", "truncated"}
    for event in ends:
        first = {"tools": "tool_call_correctness", "toolbench": "toolbench_format"}[part_of[event.rollout]]
        assert list(event.parts) == [first, "task_success"]
    assert of_type(tmp_path / "2", "run_started")[0].from_step == 1
    values = {event.step: event.values for event in of_type(tmp_path / "2", "metrics") if "loss" in event.values}
    assert values[2]["parts/tools/share"] == values[2]["parts/toolbench/share"] == 0.5
    assert {event.part for event in of_type(tmp_path / "2", "tasks_held_out")} == {"tools", "toolbench"}
    held = of_type(tmp_path / "2", "held_out_evaluated")
    assert [event.report["tasks"] for event in held] == [4, 4]  # as it continues, and at its end
    assert list(values) == [2]
