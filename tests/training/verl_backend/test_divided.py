"""A job that is divided over devices as verl's own options say: what is refused, and what is said of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.verl_backend.test_settings import job
from training.config.passed import ACTOR, FSDP_SIZE, LOG_PROB_LIMITS, MEGATRON, ROLLOUT, ULYSSES, VERL
from training.verl_backend.divided import untried
from training.verl_backend.settings import DeviceKind, misfits

OFFLOAD, SEQUENCES = f"{ACTOR}.fsdp_config.param_offload", f"{ROLLOUT}.max_num_seqs"
TENSOR = f"{MEGATRON}.tensor_model_parallel_size"
ON_CPU = {"engine": "in_process"}


def found(*lines: str, device: DeviceKind = "cuda", **groups: Any) -> list[tuple[str, str]]:
    hardware = {"devices": 2, "verl_options": list(lines)} | groups.pop("hardware", {})
    return [(misfit.option, str(misfit.why)) for misfit in misfits(job(hardware=hardware, **groups), device)]


def test_what_fits_is_not_refused() -> None:
    assert found(f"{OFFLOAD}=true", f"{SEQUENCES}=64", f"{FSDP_SIZE}=1") == []
    assert found(f"{OFFLOAD}=true", device="cpu", rollout=ON_CPU) == []
    assert found(f"{TENSOR}=2", hardware={"sharding": "megatron"}) == []
    assert found(f"{ULYSSES}=2", model={"attention": "flash_attention_2"}) == []
    assert found(f"{ULYSSES}=1") == []


@pytest.mark.parametrize("size", [2, -1])
def test_an_adapter_is_read_from_parts_of_all_devices(size: int) -> None:
    adapted = {"model": {"lora_rank": 4}, "hardware": {"devices": 4}}
    says = f"{FSDP_SIZE}: an adapter is read from parts of all devices, so leave it out"
    assert found(f"{FSDP_SIZE}={size}", **adapted) == ([("hardware.verl_options", says)] if size == 2 else [])
    assert found(f"{FSDP_SIZE}=4", **adapted) == []


def test_a_rollout_over_several_devices_needs_rows_without_padding() -> None:
    says = f"{ULYSSES} needs rows without padding: set model.attention to flash_attention_2"
    assert found(f"{ULYSSES}=2") == [("hardware.verl_options", says)]


def test_what_is_set_on_processors_or_read_by_no_one_is_named_there() -> None:
    names = [f"{ACTOR}.use_torch_compile", SEQUENCES]
    lines = [f"{names[0]}=false", f"{names[1]}=8", f"{ROLLOUT}.enable_prefix_caching=true"]
    on_processors = [("hardware.verl_options", f"{name} is set on processors: leave it out") for name in names]
    assert found(*lines, device="cpu", rollout={"engine": "vllm"}) == on_processors
    sampled = [why for _option, why in found(*lines, device="cpu", rollout=ON_CPU)]
    assert sampled[0] == f"{names[0]} is set on processors: leave it out"
    assert sampled[1:] == [
        f"{ROLLOUT}.{name} is of a vLLM, and transformers sample here: leave it out"
        for name in ("max_num_seqs", "enable_prefix_caching")
    ]
    assert found(*lines) == []


@pytest.mark.parametrize("key", LOG_PROB_LIMITS)
def test_a_limit_of_tokens_holds_the_longest_rollout(key: str) -> None:
    sizes = {"max_prompt_tokens": 900, "max_completion_tokens": 100, "max_turn_tokens": 50}
    by_tokens: dict[str, Any] = {"rollout": sizes, "optim": {"micro_batch_size": 0}}
    assert found(f"{key}=1000", **by_tokens) == []
    ((option, why),) = found(f"{key}=999", **by_tokens)
    assert option == "hardware.verl_options"
    assert why == f"{key}: verl refuses a rollout that no micro batch holds, and one may have 1,000 tokens"
    ((option, why),) = found(f"{key}=1000", rollout=sizes, optim={"micro_batch_size": 2})
    assert why == f"{key} has no effect with a micro batch of rollouts: set optim.micro_batch_size to 0"


def test_rollouts_are_divided_over_groups_of_devices_that_share_them() -> None:
    eight = {"devices": 8, "sharding": "megatron"}
    six = {"prompts_per_step": 3, "num_generations": 2}
    optim = {"micro_batch_size": 0}
    says = "6 rollouts per step (prompts × generations) cannot be divided over 4 groups of 2 devices"
    assert found(f"{TENSOR}=2", hardware=eight, rollout=six, optim=optim) == [("rollout.prompts_per_step", says)]
    four = {"prompts_per_step": 2, "num_generations": 2}
    assert found(f"{TENSOR}=2", hardware=eight, rollout=four, optim=optim) == [], "8 devices share 4 rollouts"
    assert found(hardware={"devices": 8}, rollout=four, optim=optim) == [
        ("rollout.prompts_per_step", "4 rollouts per step (prompts × generations) cannot be divided over 8 devices")
    ]
    odd = {"prompts_per_step": 4, "num_generations": 3}
    ((option, why),) = found(f"{TENSOR}=2", hardware=eight, rollout=odd, optim=optim | {"mini_batch_size": 6})
    assert option == "optim.mini_batch_size" and why.endswith("cannot be divided over 4 groups of 2 devices")


def test_megatron_is_refused_by_name_for_what_it_does_otherwise() -> None:
    megatron = {"sharding": "megatron"}
    assert found(device="cpu", rollout=ON_CPU, hardware=megatron) == [
        ("hardware.sharding", "Megatron needs CUDA GPUs, and there are none: choose FSDP2")
    ]
    several = found(hardware=megatron, model={"dtype": "float32", "attention": "sdpa"})
    assert [option for option, _why in several] == ["model.dtype", "model.attention"], "all at once"
    assert f"{MEGATRON}.override_transformer_config.attention_backend" in several[1][1]
    for steps, refused in ((9, []), (10, ["optim.warmup_steps"])):
        optim = {"schedule": "cosine", "warmup_steps": steps}
        rising = found(hardware=megatron, optim=optim, run={"max_steps": 10})
        assert [option for option, _why in rising] == refused
    assert found(optim={"schedule": "cosine", "warmup_steps": 10}, run={"max_steps": 10}) == [], "FSDP2 takes it"


def test_what_has_not_been_tried_is_said() -> None:
    assert list(untried(job())) == []
    lines = [f"{OFFLOAD}=true", f"{SEQUENCES}=8"]
    (said,) = untried(job(hardware={"verl_options": lines}))
    assert f"not tried by Tiltyard and not counted in the memory that is needed: {lines[0]}, {lines[1]}." in said
    (said,) = untried(job(hardware={"devices": 2, "sharding": "megatron"}))
    assert f"checked against verl {VERL} and have not been tried" in said
