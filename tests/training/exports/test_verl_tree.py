"""The export's keys against the config tree of the verl that it names: slow, as verl is fetched for it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import Any

import pytest
import yaml

from training.config import JobConfig
from training.exports.verl_options import VERL, translated

pytestmark = pytest.mark.slow
TREE = "verl/trainer/config/_generated_ppo_trainer.yaml"
JOBS: list[dict[str, Any]] = [
    {"kind": "grpo"},
    {"kind": "rloo", "rloo": {"beta": 0.1}},
    {"kind": "ppo", "ppo": {"cliprange_value": 0.4, "critic_learning_rate": 1e-5}},
    {"grpo": {"loss_type": "cispo"}},
    {"grpo": {"loss_type": "sapo"}},
    {"grpo": {"importance_sampling": "sequence", "epsilon_high": 0.28, "delta": 4, "entropy_coef": 0.01}},
    {"model": {"lora_rank": 8, "lora_alpha": 16, "dtype": "bfloat16"}, "rollout": {"max_turns": 5}},
    {"optim": {"micro_batch_size": 4, "schedule": "cosine"}},
    {"optim": {"micro_batch_size": 0, "max_tokens_per_micro_batch": 4096}, "run": {"save_every": 5, "keep_last": 2}},
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """verl's own wheel, without what it needs."""
    folder = tmp_path_factory.mktemp("verl")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), f"verl=={VERL}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        pytest.skip(f"verl {VERL} cannot be had here: {done.stderr.strip()[-200:]}")
    return zipfile.ZipFile(found[0])


def has(tree: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def test_every_key_is_one_of_verls(wheel: zipfile.ZipFile) -> None:
    tree = yaml.safe_load(wheel.read(TREE))
    unknown = {key for job in JOBS for key in translated(JobConfig.model_validate(job))[0] if not has(tree, key)}
    assert unknown == set()


def test_what_the_reasons_say_of_verl_is_so(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert not any(name.startswith("verl/interactions/") for name in names), "it has no interactions"
    assert "verl/experimental/agent_loop/tool_agent_loop.py" in names
    loop = wheel.read("verl/experimental/agent_loop/tool_agent_loop.py").decode()
    assert '@register("tool_agent")' in loop
    tree = yaml.safe_load(wheel.read(TREE))["actor_rollout_ref"]["rollout"]
    assert "tool_config_path" in tree["multi_turn"] and tree["agent"]["default_agent_loop"] == "single_turn_agent"
    losses = wheel.read("verl/trainer/ppo/core_algos.py").decode()
    assert all(f'register_policy_loss("{name}")' in losses for name in ("cispo", "sapo", "gspo"))
    assert "vespo" not in losses
