"""Every key of our settings is one of the pinned release's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.exports.test_verl_tree import has
from tests.training.verl_backend.conftest import PYTHON, RunInVerl
from tests.training.verl_backend.test_settings import job
from training.exports.verl_options import VERL, tree_of
from training.verl_backend.settings import ray_settings, settings_of

pytestmark = pytest.mark.verl
OPEN = (
    "actor_rollout_ref.model.override_config.",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision.",
    "ray_kwargs.ray_init.",
    "actor_rollout_ref.actor.checkpoint.save_lora_only",
)
"""Mappings of verl that take any key: for transformers, for FSDP's precision, and for ``ray.init``; and a field of its
``CheckpointConfig`` that the tree leaves at its default."""
JOBS: list[dict[str, Any]] = [
    {},
    {"optim": {"micro_batch_size": 4, "schedule": "cosine", "warmup_steps": 3}},
    {"optim": {"max_tokens_per_micro_batch": 4096}, "model": {"attention": "flash_attention_2"}},
    {"model": {"lora_rank": 8, "lora_rslora": True, "lora_alpha": 4}},
    {"model": {"dtype": "bfloat16", "gradient_checkpointing": True}, "grpo": {"delta": 3, "epsilon_high": 0.28}},
]


def of(**options: Any) -> dict[str, Any]:
    return settings_of(job(**options | {"hardware": {"hosts": 2, "devices": 2}}), "cuda", Path("/run/verl"), Path("/b"))


def test_every_key_is_in_the_config_tree() -> None:
    found = list(PYTHON.parents[1].glob("lib/python*/site-packages/verl"))
    if not found:
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    (verl,) = found
    assert (verl / "version" / "version").read_text().strip() == VERL
    tree = yaml.safe_load((verl / "trainer/config/_generated_ppo_trainer.yaml").read_text())
    keys = {key for options in JOBS for key in of(**options)}
    keys |= set(settings_of(job(rollout={"engine": "in_process"}), "cpu", Path("/run/verl"), Path("/base"), "/saved"))
    keys |= set(ray_settings(job(), "cpu"))
    assert len(keys) > 60
    assert {key for key in keys if not key.startswith(OPEN) and not has(tree, key)} == set()


CODE = """
import sys
from pathlib import Path
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from training.verl_backend.__main__ import composed
config = composed(Path(sys.argv[1]))
validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
for part in ("actor", "rollout"):
    omega_conf_to_dataclass(config.actor_rollout_ref[part])
assert config.data.train_batch_size == 8 and config.transfer_queue.backend.SimpleStorage.num_data_storage_units == 2
assert not need_critic(config) and not need_reference_policy(config)
print("TAKEN")
"""


def test_verl_takes_them(run_in_verl: RunInVerl, tmp_path: Path) -> None:
    settings = of(optim={"micro_batch_size": 4})
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(tree_of(settings)))
    done = run_in_verl("-c", CODE, str(tmp_path / "settings.yaml"))
    assert done.returncode == 0 and "TAKEN" in done.stdout, (done.stdout + done.stderr)[-3000:]
