"""What sampling takes of a device's memory: the cache of the trainer's own sampler, or a vLLM beside the training."""

from __future__ import annotations

from typing import Any

from training.config import JobConfig
from training.memory.devices import Device, gib
from training.memory.need import LEARNING, NF4_BYTES, PROGRAM, Term
from training.memory.tracing import Precision
from training.policy.memory import BATCH_SHARE
from training.words import _, sentence


def cache_terms(config: JobConfig, model: Any, precision: Precision, device: Device, fixed: list[Term]) -> list[Term]:
    """The cache of the rollouts in flight: as many as are wanted, at most as many as the sampler admits."""
    rows, rollout = config.rollouts_per_step, config.rollout
    columns = rollout.max_prompt_tokens + rollout.max_completion_tokens
    cost = model.row(precision)
    wanted = cost.of(rows, columns)
    left = max(0, device.bytes - PROGRAM[device.kind] - sum(t.bytes for t in fixed if t.key not in LEARNING))
    admitted = min(rows, max(1, int(left * BATCH_SHARE) // max(1, cost.of(1, columns))))
    if admitted < rows:
        text = _("{admitted} of {rows} rollouts of {tokens} tokens at once, as many as fit; all would take {all}")
        why = sentence(text, admitted=admitted, rows=rows, tokens=f"{columns:,}", all=gib(wanted))
    else:
        why = sentence(_("{rows} rollouts of {tokens} tokens at once"), rows=rows, tokens=f"{columns:,}")
    terms = [Term("cache", cost.of(admitted, columns), why, spare=cost.of(admitted, columns) - cost.of(1, columns))]
    if precision.autocast is not None and precision.autocast != precision.weights:
        text = sentence(_("cast once for a step's sampling"))
        terms.append(Term("copy", model.parameters * precision.autocast.itemsize, text))
    return terms


def vllm_terms(config: JobConfig, model: Any, precision: Precision, device: Device) -> list[Term]:
    """What a vLLM that the run starts keeps for itself; one that runs elsewhere keeps nothing here.

    Its share has to hold its weights and the cache of one rollout at least. One that sleeps while the model learns
    keeps then what any program keeps.
    """
    chosen, rollout = config.vllm, config.rollout
    if chosen.mode != "managed":
        return []
    computes = (precision.autocast or precision.weights).itemsize
    each = {"none": computes, "fp8": 1, "bitsandbytes": NF4_BYTES}[chosen.quantization]
    weights = model.rounded(each, computes) // chosen.tensor_parallel
    cache = model.row(precision).of(1, rollout.max_prompt_tokens + rollout.max_completion_tokens)
    share, least = round(chosen.gpu_memory_share * device.bytes), weights + cache // chosen.tensor_parallel
    if least > share:
        text = _("{weights} of weights and the cache of one rollout, more than its share of {share} % ({size})")
    elif chosen.sleep:
        text = _("{share} % of the device, {weights} of it weights; it leaves them while the model learns")
    else:
        text = _("{share} % of the device, {weights} of it weights, kept for the whole run")
    why = sentence(text, share=round(100 * chosen.gpu_memory_share), weights=gib(weights), size=gib(share))
    if not chosen.sleep:
        return [Term("vllm", max(share, least), why)]
    asleep = sentence(_("what its program keeps of the device while it sleeps"))
    return [Term("vllm", PROGRAM[device.kind], asleep), Term("vllm_awake", max(share, least), why)]
