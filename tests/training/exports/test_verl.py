"""The export has what a job passes through to verl, in the tree that its sharding chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.training.helpers import demonstration_rows, write_rows
from training.config import JobConfig, config_from_yaml, config_to_yaml
from training.config.passed import FSDP, MEGATRON
from training.exports.verl import export_verl

OFFLOAD, TENSOR = f"{FSDP}.param_offload", f"{MEGATRON}.tensor_model_parallel_size"


def exported(folder: Path, **groups: Any) -> tuple[str, dict[str, Any], str]:
    """The first line of the config, what it says of the actor, and the readme."""
    rows = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=True)
    config = config_from_yaml(config_to_yaml(JobConfig.model_validate(groups)))
    export_verl(config, rows, folder)
    text = (folder / "config.yaml").read_text()
    actor: dict[str, Any] = yaml.safe_load(text)["actor_rollout_ref"]["actor"]
    return text.splitlines()[0], actor, (folder / "README.txt").read_text()


def test_options_are_carried_over_as_they_are(tmp_path: Path) -> None:
    head, actor, readme = exported(tmp_path, hardware={"devices": 2, "verl_options": [f"{OFFLOAD}=true"]})
    assert actor["fsdp_config"]["param_offload"] is True and "overrides of the ppo_trainer.yaml" in head
    assert "defaults: [ppo_trainer, _self_]" in readme and "hardware.verl_options" not in readme


def test_megatron_is_a_job_for_its_own_tree(tmp_path: Path) -> None:
    hardware = {"devices": 4, "sharding": "megatron", "verl_options": [f"{TENSOR}=2"]}
    head, actor, readme = exported(tmp_path, hardware=hardware)
    assert "overrides of the ppo_megatron_trainer.yaml" in head and "defaults: [ppo_megatron_trainer, _self_]" in readme
    assert (actor["strategy"], actor["megatron"]) == ("megatron", {"tensor_model_parallel_size": 2})
    assert actor["optim"]["clip_grad"] == 1.0 and "grad_clip" not in actor and "fsdp_config" not in actor
