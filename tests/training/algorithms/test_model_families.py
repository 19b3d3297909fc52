"""Runs on models of other families than the starter's, with their own chat templates."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from benchmarks.environment import environment_server
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.families import SMALL, TEN, make_model
from tests.training.helpers import demonstration_rows, job_config, of_type, scripted_server, write_rows
from tests.training.rollout.templates import SILENT, model_with
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.playing import run_evaluate
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


@pytest.mark.usefixtures("no_health")
def test_a_mixture_of_experts_is_sampled_whatever_its_config_asks_for(
    make_job: MakeJob, starter_folder: Path, tmp_path: Path
) -> None:
    """A forward that gives the router's logits computes a loss whose mask does not fit a decode step."""
    tokenizer = AutoTokenizer.from_pretrained(starter_folder)
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.25}
    config = CONFIG_MAPPING["mixtral"](**SMALL, **experts, vocab_size=len(tokenizer), output_router_logits=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "experts")
    tokenizer.save_pretrained(tmp_path / "experts")
    warm_up = make_job("warm-up", kind="sft", model={"source": str(tmp_path / "experts")}, run={"max_steps": 1})
    run_sft(warm_up)
    assert of_type(warm_up.run_dir, "metrics")[0].values["aux_loss"] > 0, "it is learned all the same"
    saved = json.loads((warm_up.run_dir / "model" / "config.json").read_text())
    assert (saved["output_router_logits"], saved["router_aux_loss_coef"]) == (False, 0.25)
    with scripted_server() as url:
        played = {"model": {"source": str(tmp_path / "experts")}, "environment": {"url": url}}
        trained = make_job("grpo", **played, run={"max_steps": 1})
        run_grpo(trained)
        evaluated = make_job("evaluate", kind="evaluate", **played)
        run_evaluate(evaluated)
    for made in (trained, evaluated):
        assert {end.error for end in of_type(made.run_dir, "rollout_finished")} == {None}
    assert json.loads((trained.run_dir / "model" / "config.json").read_text())["output_router_logits"] is False


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
    """Warm-up, GRPO and an evaluation of a tiny random model, whose calls were not read before."""
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
                        "prompts_per_step": 2, "num_generations": 4, "temperature": 0.5},  # its likely calls are read
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
