"""How a job divides its model and its rollouts over devices: what verl's sharding and passed options do not allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from training.config import JobConfig, passed
from training.verl_backend.counting import warmup_steps
from training.words import Sentence, _, counted, ngettext, sentence

Found = tuple[str, Sentence]
"""An option, and why verl cannot train by it."""
_FLASH = "flash_attention_2"


def uneven_shares(config: JobConfig) -> Iterator[Found]:
    """verl fills a batch up with empty rows where its devices do not divide it; here it is refused."""
    batch, mini, micro = config.rollouts_per_step, config.optim.mini_batch_size, config.optim.micro_batch_size
    count, longest = config.hardware.shares, config.longest_text
    tokens = config.optim.max_tokens_per_micro_batch
    if mini and mini % count:
        text = _("mini batches of {mini} rollouts cannot be divided over {places}")
        yield "optim.mini_batch_size", sentence(text, mini=mini, places=_places(config))
    elif batch % count:
        text = _("{batch} rollouts per step (prompts × generations) cannot be divided over {places}")
        yield "rollout.prompts_per_step", sentence(text, batch=batch, places=_places(config))
    elif micro and (share := (mini or batch) // count) % micro:
        text = _("a device's {share} rollouts of an update cannot be divided into micro batches of {micro}")
        yield "optim.micro_batch_size", sentence(text, share=share, micro=micro)
    if 0 < tokens < longest:
        text = _("verl refuses a rollout that no micro batch holds, and one may have {longest} tokens")
        yield "optim.max_tokens_per_micro_batch", sentence(text, longest=f"{longest:,}")
    size, own = config.vllm.tensor_parallel, config.hardware.sampler_devices
    if own % size:
        text = _("{count} devices of a host that only sample cannot be divided into samplers of {size} devices each")
        yield "vllm.tensor_parallel", sentence(text, count=own, size=size)
    elif not own and config.hardware.training % size:
        text = _("{count} devices cannot be divided into samplers of {size} devices each")
        yield "vllm.tensor_parallel", sentence(text, count=config.hardware.training, size=size)


def _places(config: JobConfig) -> Sentence:
    """What the rollouts are dealt to: devices, or groups of devices that share each rollout."""
    shares, total = config.hardware.shares, config.hardware.training
    if shares == total:
        return counted(ngettext("one device", "{n} devices"), total)
    return counted(
        ngettext("one group of {size} devices", "{n} groups of {size} devices"), shares, size=total // shares
    )


def untried(config: JobConfig) -> Iterator[Sentence]:
    """What a job does that was checked against verl's own options, and not tried."""
    chosen = config.hardware
    if chosen.sharding == "megatron":
        text = _(
            "Megatron divides the model: its settings were checked against verl {version} and have not been tried, and "
            "memory is counted as FSDP2 takes it."
        )
        yield sentence(text, version=passed.VERL)
    if chosen.verl_options:
        text = _(
            "Passed through to verl, not tried by Tiltyard and not counted in the memory that is needed: {options}."
        )
        yield sentence(text, options=", ".join(chosen.verl_options))


def misfits_of_passed(config: JobConfig, device: str, set_here: Mapping[str, Any]) -> Iterator[Found]:
    """Of the sharding and of verl's own options. ``set_here`` are the settings of ours on processors."""
    chosen = config.hardware
    if chosen.sharding == "megatron":
        yield from _of_megatron(config, device)
    for key, value in chosen.passed.items():
        if (why := _misfit(config, key, value, set_here)) is not None:
            yield passed.PATH, why


def _of_megatron(config: JobConfig, device: str) -> Iterator[Found]:
    if device == "cpu":
        yield "hardware.sharding", sentence(_("Megatron needs CUDA GPUs, and there are none: choose FSDP2"))
    if config.model.dtype == "float32":
        text = _("Megatron computes in bfloat16 here, with weights in float32 in its optimiser: set {usual}")
        yield "model.dtype", sentence(text, usual="auto")
    if config.model.attention != "auto":
        text = _("Megatron has attentions of its own, which {key} chooses: set {usual}")
        key = f"{passed.MEGATRON}.override_transformer_config.attention_backend"
        yield "model.attention", sentence(text, key=key, usual="auto")
    if (rises := warmup_steps(config)) and rises >= config.run.max_steps:
        text = _("Megatron needs a warm-up that ends before the run, and {steps} steps are none")
        yield "optim.warmup_steps", sentence(text, steps=rises)


def _misfit(config: JobConfig, key: str, value: Any, set_here: Mapping[str, Any]) -> Sentence | None:
    """What is wrong with one of verl's own options in this job; ``None`` where nothing is."""
    if key in passed.LOG_PROB_LIMITS:
        return _misfit_of_limit(config, key, value)
    if key in set_here:
        return sentence(_("{key} is set on processors: leave it out"), key=key)
    if key.startswith(f"{passed.ROLLOUT}.") and config.rollout.engine != "vllm":
        return sentence(_("{key} is of a vLLM, and transformers sample here: leave it out"), key=key)
    if key == passed.ULYSSES and value > 1 and config.model.attention != _FLASH:
        return sentence(_("{key} needs rows without padding: set model.attention to {usual}"), key=key, usual=_FLASH)
    if key == passed.FSDP_SIZE and value not in (-1, config.hardware.training) and config.model.lora_rank:
        return sentence(_("{key}: an adapter is read from parts of all devices, so leave it out"), key=key)
    return None


def _misfit_of_limit(config: JobConfig, key: str, value: int) -> Sentence | None:
    if config.optim.micro_batch_size:
        return sentence(
            _("{key} has no effect with a micro batch of rollouts: set optim.micro_batch_size to 0"), key=key
        )
    if value < (longest := config.longest_text):
        text = _("{key}: verl refuses a rollout that no micro batch holds, and one may have {longest} tokens")
        return sentence(text, key=key, longest=f"{longest:,}")
    return None
