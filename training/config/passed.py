"""verl's own options of how devices are used: a job passes them through as they are, one ``key=value`` a line.

Only the keys below are taken, each with values of one kind: numbers, true and false, and single words where a key needs
them. So no value names a file, an address or code, and nothing changes what is trained, on what, or by which rewards.
``verl_keys.txt`` has all keys of the pinned release (no text of verl's), to say of any other key whether verl has it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from training.words import OptionError, Sentence, _, sentence

VERL = "0.9.1"
"""The release that keys are checked against."""
Sharding = Literal["fsdp2", "megatron"]
PATH = "hardware.verl_options"
MAX_LINES, MAX_CHARS, LONGEST, MOST = 100, 300, 120, 10**15
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
MEGATRON, FSDP = f"{ACTOR}.megatron", f"{ACTOR}.fsdp_config"
ULYSSES, FSDP_SIZE = f"{ACTOR}.ulysses_sequence_parallel_size", f"{FSDP}.fsdp_size"
LOG_PROB_LIMITS = (f"{ROLLOUT}.log_prob_max_token_len_per_gpu", "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu")
"""Ours is the limit of an update's micro batches; a pass without gradients can take more."""
RECOMPUTED = f"{MEGATRON}.override_transformer_config.recompute"

_BOTH = """
actor_rollout_ref.nccl_timeout count
actor_rollout_ref.actor.entropy_from_logits_with_chunking flag
actor_rollout_ref.actor.entropy_from_logits_chunk_size count
actor_rollout_ref.model.use_fused_kernels flag
actor_rollout_ref.ref.log_prob_max_token_len_per_gpu count
actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu count
actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes count
actor_rollout_ref.rollout.cudagraph_capture_sizes counts
actor_rollout_ref.rollout.enable_chunked_prefill flag
actor_rollout_ref.rollout.enable_prefix_caching flag
actor_rollout_ref.rollout.enforce_eager flag
actor_rollout_ref.rollout.free_cache_engine flag
actor_rollout_ref.rollout.max_num_batched_tokens count
actor_rollout_ref.rollout.max_num_seqs count
actor_rollout_ref.rollout.multi_stage_wake_up flag
actor_rollout_ref.rollout.engine_kwargs.vllm.async_scheduling flag
actor_rollout_ref.rollout.engine_kwargs.vllm.block_size count
actor_rollout_ref.rollout.engine_kwargs.vllm.disable_cascade_attn flag
actor_rollout_ref.rollout.engine_kwargs.vllm.disable_custom_all_reduce flag
actor_rollout_ref.rollout.engine_kwargs.vllm.fully_sharded_loras flag
actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes count
actor_rollout_ref.rollout.engine_kwargs.vllm.long_prefill_token_threshold count
actor_rollout_ref.rollout.engine_kwargs.vllm.max_cudagraph_capture_size count
actor_rollout_ref.rollout.engine_kwargs.vllm.num_gpu_blocks_override count
"""
_FSDP2 = """
actor_rollout_ref.actor.entropy_checkpointing flag
actor_rollout_ref.actor.use_torch_compile flag
actor_rollout_ref.actor.ulysses_sequence_parallel_size count
actor_rollout_ref.actor.fsdp_config.forward_prefetch flag
actor_rollout_ref.actor.fsdp_config.fsdp_size part
actor_rollout_ref.actor.fsdp_config.offload_policy flag
actor_rollout_ref.actor.fsdp_config.optimizer_offload flag
actor_rollout_ref.actor.fsdp_config.param_offload flag
actor_rollout_ref.actor.fsdp_config.reshard_after_forward flag
actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation flag
actor_rollout_ref.actor.fsdp_config.use_torch_compile flag
actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params number
actor_rollout_ref.model.enable_activation_offload flag
actor_rollout_ref.model.fused_kernel_options.impl_backend word
actor_rollout_ref.model.tiled_mlp.enabled flag
actor_rollout_ref.model.tiled_mlp.num_shards count
actor_rollout_ref.model.use_liger flag
actor_rollout_ref.ref.fsdp_config.forward_prefetch flag
actor_rollout_ref.ref.fsdp_config.fsdp_size part
actor_rollout_ref.ref.fsdp_config.param_offload flag
actor_rollout_ref.ref.fsdp_config.reshard_after_forward flag
actor_rollout_ref.ref.fsdp_config.use_torch_compile flag
actor_rollout_ref.ref.fsdp_config.wrap_policy.min_num_params number
"""
_MEGATRON = """
actor_rollout_ref.actor.megatron.context_parallel_size count
actor_rollout_ref.actor.megatron.expert_model_parallel_size count
actor_rollout_ref.actor.megatron.expert_tensor_parallel_size size
actor_rollout_ref.actor.megatron.optimizer_offload flag
actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend word
actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity word
actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method word
actor_rollout_ref.actor.megatron.override_transformer_config.recompute_modules words
actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers size
actor_rollout_ref.actor.megatron.pad_to_length flag
actor_rollout_ref.actor.megatron.pad_to_length_bucket count
actor_rollout_ref.actor.megatron.param_offload flag
actor_rollout_ref.actor.megatron.pipeline_model_parallel_size count
actor_rollout_ref.actor.megatron.sequence_parallel flag
actor_rollout_ref.actor.megatron.tensor_model_parallel_size count
actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size size
actor_rollout_ref.ref.megatron.param_offload flag
"""


def _kinds(text: str) -> dict[str, str]:
    return dict(line.split() for line in text.split("\n") if line)  # type: ignore[arg-type]


TAKEN: dict[Sharding, dict[str, str]] = {
    "fsdp2": _kinds(_BOTH) | _kinds(_FSDP2),
    "megatron": _kinds(_BOTH) | _kinds(_MEGATRON),
}
"""The keys of each sharding, with the kind of their values."""
_TAKEN = TAKEN["fsdp2"] | TAKEN["megatron"]

INSTEAD = {
    "model_engine": "hardware.sharding",
    f"{ACTOR}.strategy": "hardware.sharding",
    f"{ACTOR}.clip_ratio": "grpo.epsilon",
    f"{ACTOR}.clip_ratio_c": "grpo.delta",
    f"{ACTOR}.clip_ratio_high": "grpo.epsilon_high",
    f"{ACTOR}.clip_ratio_low": "grpo.epsilon",
    f"{ACTOR}.entropy_coeff": "grpo.entropy_coef",
    f"{ACTOR}.fsdp_config.model_dtype": "model.dtype",
    f"{ACTOR}.grad_clip": "optim.max_grad_norm",
    f"{ACTOR}.kl_loss_coef": "grpo.beta",
    f"{ACTOR}.loss_agg_mode": "grpo.loss_type",
    f"{ACTOR}.optim.clip_grad": "optim.max_grad_norm",
    f"{ACTOR}.optim.lr": "optim.learning_rate",
    f"{ACTOR}.optim.lr_decay_style": "optim.schedule",
    f"{ACTOR}.optim.lr_scheduler_type": "optim.schedule",
    f"{ACTOR}.optim.lr_warmup_steps": "optim.warmup_steps",
    f"{ACTOR}.optim.weight_decay": "optim.weight_decay",
    f"{ACTOR}.ppo_epochs": "grpo.num_iterations",
    f"{ACTOR}.ppo_max_token_len_per_gpu": "optim.max_tokens_per_micro_batch",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "optim.micro_batch_size",
    f"{ACTOR}.ppo_mini_batch_size": "optim.mini_batch_size",
    f"{ACTOR}.use_kl_loss": "grpo.beta",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "model.gradient_checkpointing",
    "actor_rollout_ref.model.lora_alpha": "model.lora_alpha",
    "actor_rollout_ref.model.lora_rank": "model.lora_rank",
    "actor_rollout_ref.model.path": "model.source",
    f"{ROLLOUT}.gpu_memory_utilization": "vllm.gpu_memory_share",
    f"{ROLLOUT}.max_model_len": "vllm.max_model_len",
    f"{ROLLOUT}.n": "rollout.num_generations",
    f"{ROLLOUT}.temperature": "rollout.temperature",
    f"{ROLLOUT}.tensor_model_parallel_size": "vllm.tensor_parallel",
    f"{ROLLOUT}.top_k": "rollout.top_k",
    f"{ROLLOUT}.top_p": "rollout.top_p",
    "data.max_prompt_length": "rollout.max_prompt_tokens",
    "data.max_response_length": "rollout.max_completion_tokens",
    "data.train_batch_size": "rollout.prompts_per_step",
    "data.train_files": "data.train",
    "trainer.n_gpus_per_node": "hardware.devices",
    "trainer.nnodes": "hardware.hosts",
    "trainer.save_freq": "run.save_every",
    "trainer.test_freq": "evaluate.every",
    "trainer.total_training_steps": "run.max_steps",
}
"""Keys of verl's that have an option of ours."""

_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
_WANTED = {
    "flag": _("{key} is true or false, not {value}"),
    "count": _("{key} is a whole number from 1 on, not {value}"),
    "number": _("{key} is a whole number from 0 on, not {value}"),
    "size": _("{key} is a whole number from 1 on, or null, not {value}"),
    "part": _("{key} is a whole number from 1 on, or -1 for all devices, not {value}"),
    "counts": _("{key} is a list of whole numbers from 1 on, such as [1, 2, 4], not {value}"),
    "word": _("{key} is one word of small letters, digits and _, not {value}"),
    "words": _("{key} is a list of words of small letters, digits and _, such as [core_attn], not {value}"),
}


class Passed(NamedTuple):
    """One of verl's options and its value."""

    key: str
    value: Any


class Sizes(NamedTuple):
    """Over how many devices Megatron divides a model in each way."""

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1


def checked(line: str) -> str:
    """The line without white space around it. Raises ``ValueError`` with the sentence that says what is wrong."""
    passed_of(line)
    return line.strip()


def passed_of(line: str) -> Passed:
    """The option of a line. Raises ``ValueError`` with the sentence that says what is wrong with it."""
    key, equals, text = (part.strip() for part in line.strip().partition("="))
    if key.startswith(("+", "~")):
        why = _("{line}: + and ~ add and remove keys, and neither is passed through: write key=value")
        raise ValueError(sentence(why, line=line))
    if not equals or not text or not _KEY.fullmatch(key):
        why = _("{line}: write one of verl's options as key=value, such as {such}")
        raise ValueError(sentence(why, line=line, such=f"{FSDP}.param_offload=true"))
    if key not in _TAKEN:
        raise ValueError(_refused(key))
    if "${" in text:
        raise ValueError(sentence(_("{key}: no value refers to another key by $: write the value"), key=key))
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ValueError(sentence(_("{key}: {value} cannot be read as YAML"), key=key, value=text)) from None
    kind = _TAKEN[key]
    if not _fits(value, kind):
        raise ValueError(sentence(_WANTED[kind], key=key, value=text))
    return Passed(key, value)


def _fits(value: Any, kind: str) -> bool:
    """Whether a value is of a kind."""
    if kind in ("counts", "words"):
        each = kind.removesuffix("s")
        return isinstance(value, list) and 0 < len(value) <= MAX_LINES and all(_fits(item, each) for item in value)
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "word":
        return isinstance(value, str) and bool(_WORD.fullmatch(value))
    if (kind == "size" and value is None) or (kind == "part" and value == -1 and type(value) is int):
        return True
    return type(value) is int and (0 if kind == "number" else 1) <= value <= MOST


def _refused(key: str) -> Sentence:
    """Why a key is not passed through."""
    if key in INSTEAD:
        return sentence(_("{key} follows from {option}: set that"), key=key, option=INSTEAD[key])
    if _has(key):
        text = _(
            "{key} is not passed through: only options of how devices are used are, and all others are set by Tiltyard "
            "or left as verl has them"
        )
        return sentence(text, key=key)
    near = get_close_matches(key, [*_TAKEN, *known_keys()], n=1, cutoff=0.8) if len(key) <= LONGEST else []
    if near:
        return sentence(_("verl {version} has no {key}: is {near} meant?"), version=VERL, key=key, near=near[0])
    return sentence(_("verl {version} has no {key}"), version=VERL, key=key)


def _has(key: str) -> bool:
    """Whether verl has a key, a group of keys, or a mapping that may hold it."""
    keys = known_keys()
    parts = key.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(each in keys for each in above) or any(each.startswith(f"{key}.") for each in keys)


@functools.cache
def known_keys() -> Mapping[str, str]:
    """Every key of the pinned release, with the shardings that have it: ``both``, ``fsdp2`` or ``megatron``."""
    lines = Path(__file__).with_name("verl_keys.txt").read_text(encoding="utf-8").splitlines()
    return {key: of for of, key in (line.split() for line in lines if line and not line.startswith("#"))}


def check_together(passed: Iterable[Passed], sharding: Sharding, devices: int) -> None:
    """Raise ``OptionError`` where a key is given twice, is of the other sharding, or does not divide the devices."""
    found = dict[str, Any]()
    for key, value in passed:
        if key in found:
            raise OptionError(PATH, sentence(_("{key} is given twice"), key=key))
        if key not in TAKEN[sharding]:
            text = _("{key} is not of {sharding}: leave it out, or choose the other sharding")
            raise OptionError(PATH, sentence(text, key=key, sharding="Megatron" if sharding == "megatron" else "FSDP2"))
        found[key] = value
    if sharding == "megatron":
        _check_sizes(sizes_of(found), devices)
    for key in (ULYSSES, FSDP_SIZE, "actor_rollout_ref.ref.fsdp_config.fsdp_size"):
        _check_divides(found.get(key, 1), devices, (key,))


def _check_sizes(sizes: Sizes, devices: int) -> None:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    _check_divides(sizes.tensor * sizes.pipeline * sizes.context, devices, names)
    names = ("expert_tensor_parallel_size", "expert_model_parallel_size", "pipeline_model_parallel_size")
    _check_divides(sizes.expert_tensor * sizes.expert * sizes.pipeline, devices, names)


def _check_divides(size: int, devices: int, names: Collection[str]) -> None:
    if size > 0 and devices % size:
        text = _("{count} devices cannot be divided by {size}: {names}")
        raise OptionError(PATH, sentence(text, count=devices, size=size, names=" × ".join(names)))


def sizes_of(passed: Mapping[str, Any]) -> Sizes:
    """Megatron's sizes; an expert's tensors are divided as all others where nothing else is said."""

    def size(name: str) -> int | None:
        return passed.get(f"{MEGATRON}.{name}")

    tensor = size("tensor_model_parallel_size") or 1
    return Sizes(
        tensor,
        size("pipeline_model_parallel_size") or 1,
        size("context_parallel_size") or 1,
        size("expert_model_parallel_size") or 1,
        size("expert_tensor_parallel_size") or tensor,
    )


def layout_of(passed: Mapping[str, Any], sharding: Sharding) -> str:
    """In one line, how the parts of a checkpoint are cut, which the number of devices does not say."""
    if sharding == "megatron":
        sizes = sizes_of(passed)._asdict() | {"virtual": passed.get(f"{MEGATRON}.virtual_pipeline_model_parallel_size")}
        return " ".join(["megatron", *(f"{name}={size}" for name, size in sizes.items() if size)])
    size = passed.get(FSDP_SIZE, -1)
    return "fsdp2" if size == -1 else f"fsdp2 fsdp_size={size}"
