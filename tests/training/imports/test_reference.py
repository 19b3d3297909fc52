"""docs/imports.md is what the code says, and every option of a job has its place in the export or a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from training.config import JobConfig
from training.errors import ConfigError
from training.exports.verl import export_verl, verl_yaml
from training.exports.verl_options import OPTIONS, options_of, translated
from training.imports.reference import reference

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "imports.md").read_text(encoding="utf-8") == reference()


def test_every_option_is_carried_over_or_named() -> None:
    every = set(options_of(JobConfig()))
    assert len(every) > 40 and set(OPTIONS) <= every | set(options_of(JobConfig(kind="rloo")))
    _keys, missing = translated(JobConfig())
    assert every - set(OPTIONS) <= set(missing)
    text = verl_yaml(JobConfig())
    assert all(f"# {option}" in text and why in text for option, why in missing.items())


def test_the_values_of_envtuning(tmp_path: Path) -> None:
    """Stage 1 of systems.md in our options and in verl's."""
    config = JobConfig.model_validate(
        {
            "model": {"source": "Qwen/Qwen2.5-7B-Instruct"},
            "rollout": {
                "prompts_per_step": 16,
                "num_generations": 16,
                "max_prompt_tokens": 8192,
                "max_turns": 100,
                "max_completion_tokens": 10000,
                "top_k": 0,
                "dialect": "bfcl",
            },
            "grpo": {"beta": 0.1, "loss_type": "grpo", "scale_rewards": "group"},
            "optim": {"learning_rate": 1e-6, "schedule": "linear"},
            "run": {"save_every": 5},
        }
    )
    text = verl_yaml(config, "stage 1")
    found = yaml.safe_load(text)
    actor, rollout, data = found["actor_rollout_ref"]["actor"], found["actor_rollout_ref"]["rollout"], found["data"]
    assert (actor["kl_loss_coef"], actor["kl_loss_type"], actor["use_kl_loss"]) == (0.1, "low_var_kl", True)
    assert (actor["loss_agg_mode"], actor["optim"]["lr"], actor["ppo_mini_batch_size"]) == (
        "seq-mean-token-mean",
        1e-6,
        16,
    )
    assert (rollout["n"], rollout["multi_turn"]["max_assistant_turns"], rollout["top_k"]) == (16, 100, -1)
    assert (data["train_batch_size"], data["max_prompt_length"], data["max_response_length"]) == (16, 8192, 10000)
    assert (found["trainer"]["save_freq"], found["trainer"]["experiment_name"]) == (5, "stage 1")
    assert "# optim.schedule = linear: verl knows constant and cosine" in text and "no parser for bfcl" in text
    with pytest.raises(ConfigError, match="learn from rollouts"):
        export_verl(JobConfig(kind="sft"), tmp_path / "rows.jsonl", tmp_path)
