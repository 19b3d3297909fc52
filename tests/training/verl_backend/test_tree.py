"""Every key of our settings is one of the pinned release's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.exports.test_verl_tree import has
from tests.training.verl_backend.conftest import RunInVerl
from tests.training.verl_backend.test_settings import job
from tests.training.verl_backend.verl_keys import installed, keys_text, tree_of_verl
from training.config import passed
from training.exports.verl_options import VERL, tree_of
from training.verl_backend.settings import METHOD, ray_settings, settings_of

pytestmark = pytest.mark.verl
OPEN = (
    "actor_rollout_ref.model.override_config.",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision.",
    "ray_kwargs.ray_init.",
    "actor_rollout_ref.actor.checkpoint.save_lora_only",
    "actor_rollout_ref.actor.optim.override_optimizer_config",
)
"""Mappings of verl that take any key: for transformers, for FSDP's precision, for ``ray.init`` and for Megatron's
optimiser; and a field of its ``CheckpointConfig`` that the tree leaves at its default."""
JOBS: list[dict[str, Any]] = [
    {},
    {"optim": {"micro_batch_size": 4, "schedule": "cosine", "warmup_steps": 3}},
    {"optim": {"max_tokens_per_micro_batch": 4096}, "model": {"attention": "flash_attention_2"}},
    {"model": {"lora_rank": 8, "lora_rslora": True, "lora_alpha": 4}},
    {"model": {"dtype": "bfloat16", "gradient_checkpointing": True}, "grpo": {"delta": 3, "epsilon_high": 0.28}},
]


MEGATRON = {"hosts": 1, "devices": 4, "sharding": "megatron"}
SIZES = [
    f"{passed.MEGATRON}.{name}={size}"
    for name, size in {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "param_offload": "true",
        "override_transformer_config.recompute_granularity": "selective",
    }.items()
]
OFFLOADED = [f"{passed.FSDP}.{name}=true" for name in ("param_offload", "optimizer_offload", "forward_prefetch")]
VLLM = f"{passed.ROLLOUT}.engine_kwargs.vllm"


def of(**options: Any) -> dict[str, Any]:
    hardware = options.pop("hardware", {"hosts": 2, "devices": 2})
    return settings_of(job(**options, hardware=hardware), "cuda", Path("/run/verl"), Path("/b"))


@pytest.fixture(scope="module")
def verl() -> Path:
    """The folder of verl's package, of the release that keys are of."""
    found = installed()
    if found is None:
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    assert (found / "version" / "version").read_text().strip() == VERL
    return found


def test_every_key_is_in_the_config_tree(verl: Path) -> None:
    tree = tree_of_verl(verl, "fsdp2")
    keys = {key for options in JOBS for key in of(**options)}
    keys |= set(settings_of(job(rollout={"engine": "in_process"}), "cpu", Path("/run/verl"), Path("/base"), "/saved"))
    keys |= set(ray_settings(job(), "cpu"))
    assert len(keys) > 60
    assert {key for key in keys if not key.startswith(OPEN) and not has(tree, key)} == set()


def test_every_key_of_megatron_is_in_its_tree(verl: Path) -> None:
    tree = tree_of_verl(verl, "megatron")
    jobs = [options for options in JOBS if "model" not in options] + [{"model": {"gradient_checkpointing": True}}]
    keys = {key for options in jobs for key in of(**options, hardware=MEGATRON)}
    assert len(keys) > 60
    assert {key for key in keys if not key.startswith(OPEN) and not has(tree, key)} == set()


def test_the_known_keys_are_those_of_the_release(verl: Path) -> None:
    kept = Path(passed.__file__).with_name("verl_keys.txt").read_text(encoding="utf-8")
    assert kept == keys_text(verl), "python -m tests.training.verl_backend.verl_keys > training/config/verl_keys.txt"


def test_what_is_passed_through_has_values_of_its_kind_in_verl(verl: Path) -> None:
    kinds = {"flag": bool, "count": int, "number": int, "part": int, "word": str, "words": list}
    for sharding, taken in passed.TAKEN.items():
        tree = tree_of_verl(verl, sharding)
        for key, kind in taken.items():
            if key.startswith(f"{VLLM}."):
                assert has(tree, VLLM)
                continue
            value: Any = tree
            for name in key.split("."):
                value = value[name]
            said = isinstance(value, str) and value.startswith("${")  # follows from another key
            assert value is None or said or type(value) is kinds[kind], key


def test_what_is_passed_to_vllm_are_its_options(run_in_verl: RunInVerl) -> None:
    names = [key.removeprefix(f"{VLLM}.") for key in passed.TAKEN["fsdp2"] if key.startswith(VLLM)]
    done = run_in_verl("-c", ASK_VLLM, *names)
    if "No module named 'vllm'" in done.stderr:
        pytest.skip("There is no vLLM in verl's virtualenv.")
    assert len(names) > 5 and done.stdout.splitlines()[-1:] == ["set()"], (done.stdout + done.stderr)[-2000:]


ASK_VLLM = """
import dataclasses, sys
from vllm.engine.arg_utils import EngineArgs
print(set(sys.argv[1:]) - {field.name for field in dataclasses.fields(EngineArgs)})
"""
CODE = """
import sys
from pathlib import Path
from omegaconf import open_dict
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from training.verl_backend.__main__ import composed
config = composed(Path(sys.argv[1]))
validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
parts = config.actor_rollout_ref
with open_dict(parts.ref):  # as verl's worker does
    parts.ref.ppo_mini_batch_size = parts.actor.ppo_mini_batch_size
    for name in ("micro_batch_size", "micro_batch_size_per_gpu", "max_token_len_per_gpu"):
        parts.ref[f"ppo_{name}"] = parts.ref.pop(f"log_prob_{name}", None)
    parts.ref.use_dynamic_bsz = parts.ref.pop("log_prob_use_dynamic_bsz", False)
made = {part: omega_conf_to_dataclass(parts[part]) for part in ("actor", "ref", "rollout", "model")}
assert config.data.train_batch_size == 8 and config.transfer_queue.backend.SimpleStorage.num_data_storage_units == 2
assert not need_critic(config) and not need_reference_policy(config)
actor, engine = made["actor"], made["actor"].engine
print("TAKEN", type(engine).__name__, type(actor.optim).__name__, eval(sys.argv[2]))
"""
"""``HFModelConfig`` reads the model's folder."""


@pytest.mark.parametrize(
    ("options", "asked", "says"),
    [
        ({"optim": {"micro_batch_size": 4}}, "engine.strategy", "FSDPEngineConfig FSDPOptimizerConfig fsdp2"),
        (
            {"hardware": {"devices": 4, "verl_options": OFFLOADED}},
            "engine.param_offload, engine.optimizer_offload, engine.forward_prefetch, engine.reshard_after_forward",
            "FSDPEngineConfig FSDPOptimizerConfig (True, True, True, True)",
        ),
        (
            {"hardware": MEGATRON | {"verl_options": SIZES}, "optim": {"micro_batch_size": 0}},
            "engine.tensor_model_parallel_size, engine.pipeline_model_parallel_size, engine.context_parallel_size, "
            "engine.override_transformer_config['recompute_granularity'], made['ref'].megatron.param_offload, "
            "actor.optim.lr_decay_style, actor.optim.clip_grad, config.actor_rollout_ref.ref.strategy",
            "McoreEngineConfig McoreOptimizerConfig (2, 2, 1, 'selective', True, 'constant', 1.0, 'megatron')",
        ),
        (
            {"hardware": MEGATRON, "optim": {"micro_batch_size": 2, "schedule": "cosine", "beta1": 0.8}},
            "actor.optim.lr_decay_style, actor.optim.override_optimizer_config['adam_beta1'], "
            "actor.ppo_micro_batch_size_per_gpu",
            "McoreEngineConfig McoreOptimizerConfig ('cosine', 0.8, 2)",
        ),
    ],
    ids=["FSDP2", "FSDP2 with options", "Megatron with sizes", "Megatron"],
)
def test_verl_takes_them(
    options: dict[str, Any], asked: str, says: str, run_in_verl: RunInVerl, starter_folder: Path, tmp_path: Path
) -> None:
    settings = of(**options) | {f"{METHOD}.model.{name}": str(starter_folder) for name in ("path", "tokenizer_path")}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(tree_of(settings)))
    done = run_in_verl("-c", CODE, str(tmp_path / "settings.yaml"), asked)
    assert done.returncode == 0 and f"TAKEN {says}" in done.stdout, (done.stdout + done.stderr)[-3000:]
