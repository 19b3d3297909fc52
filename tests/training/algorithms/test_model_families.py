"""Runs on models of other families than the starter's, with their own chat templates."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environment import environment_server
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.families import TEN, make_model
from tests.training.helpers import demonstration_rows, job_config, of_type, write_rows
from tests.training.rollout.templates import SILENT, model_with
from training.algorithms.evaluate import run_evaluate
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.sft import run_sft
from training.data.reader import load_rows
from training.errors import TemplateError
from training.journal import Journal


def job(folder: Path, **groups: Any) -> Job:
    return Job(job_config(**groups), folder, Journal(folder), threading.Event())


def test_a_run_with_tools_does_not_begin_where_no_call_can_be_read(
    make_job: MakeJob, starter_folder: Path, tmp_path: Path
) -> None:
    folder = model_with(SILENT, starter_folder, tmp_path / "silent")
    data = write_rows(tmp_path / "with-tools.jsonl", demonstration_rows())
    with pytest.raises(TemplateError, match=r"leaves tool calls out\."):
        run_grpo(make_job(model={"source": str(folder)}, data={"train": str(data)}))


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Demonstrations and tasks of the tools environment."""
    folder = tmp_path_factory.mktemp("rows")
    made = {name: folder / f"{name}.jsonl" for name in ("demonstrations", "tasks")}
    for name, path in made.items():
        command = [sys.executable, "-m", "envs.tools", name, "--difficulty", "starter", "--output", str(path)]
        subprocess.run([*command, "--count", "300"], check=True, timeout=120, capture_output=True)
    return made


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TEN)
def test_a_family_writes_readable_calls_in_every_stage(
    name: str, rows_of: dict[str, Path], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Warm-up, GRPO and an evaluation of a tiny random model, whose calls were read by nobody before."""
    base = make_model(name, load_rows(rows_of["demonstrations"], 300), tmp_path / "base")
    learning = {"batch_size": 4, "max_length": 2048}
    warm_up = job(
        tmp_path / "warm-up", kind="sft", model={"source": str(base)}, data={"train": str(rows_of["demonstrations"])},
        sft=learning, optim={"learning_rate": 4e-3, "schedule": "cosine"}, run={"max_steps": 110, "threads": 2},
    )  # fmt: skip
    run_sft(warm_up)
    with environment_server("tools", "--slots", "16") as server:
        played = {
            "environment": {"name": "tools", "url": server.url},
            "data": {"train": str(rows_of["tasks"]), "max_rows": 16},
            "rewards": {"components": [{"name": "task_success", "weight": 1}]},
            "rollout": {"max_turns": 3, "max_turn_tokens": 96, "max_completion_tokens": 400, "max_prompt_tokens": 2000,
                        "prompts_per_step": 2, "num_generations": 4},
        }  # fmt: skip
        grpo = job(tmp_path / "grpo", kind="grpo", model={"source": str(tmp_path / "warm-up" / "model")},
                   run={"max_steps": 2, "threads": 2}, **played)  # fmt: skip
        run_grpo(grpo)
        evaluation = job(tmp_path / "evaluation", kind="evaluate", model={"source": str(tmp_path / "grpo" / "model")},
                         run={"threads": 2}, **played)  # fmt: skip
        run_evaluate(evaluation)
    for made in (grpo, evaluation):
        finished = of_type(made.run_dir, "rollout_finished")
        assert not [rollout.error for rollout in finished if rollout.error]
        called, broken = sum(r.calls for r in finished), sum(r.parse_errors for r in finished)
        record_property(made.config.kind, f"{called} calls, {broken} unreadable, {len(finished)} rollouts")
        assert called >= len(finished) / 2 and broken <= called, (called, broken, len(finished))
