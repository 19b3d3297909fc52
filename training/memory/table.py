"""The memory of a job on a device, term by term.

Weights, what the optimiser keeps and a reference stay for the whole run. Above them a run is either learning
(gradients, activations and the head's tiles of the longest micro batch) or sampling (the cache of the rollouts in
flight), never both: the larger of the two counts. The sampler takes what is free for more rollouts at once, and needs
room for one: the rest of its cache is an opportunity, no need.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from training.config import JobConfig
from training.memory.devices import KNOWN, LEARNING, NF4_BYTES, PROGRAM, Device, Need, Term, Weight, gib, kept_by
from training.memory.sharded import sampler_on_cpu, sharded_terms, share_of
from training.memory.tracing import (
    How,
    Precision,
    Shape,
    StepBytes,
    adapter_size,
    empty_model,
    row_cost,
    step_bytes,
    trained_weights,
)
from training.model_check import load_config
from training.policy.adapter import lora_config
from training.policy.memory import BATCH_SHARE, RowCost
from training.starter import starter_config
from training.words import _, sentence

# What sampling takes of a device's memory: the cache of the trainer's own sampler, or a vLLM next to the training.


def cache_terms(config: JobConfig, model: Any, precision: Precision, device: Device, fixed: list[Term]) -> list[Term]:
    """The cache of the rollouts in flight: as many as are wanted, at most as many as the sampler admits."""
    rows, columns = config.rollouts_per_step, config.longest_text
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
    chosen = config.vllm
    if chosen.mode != "managed":
        return []
    computes = (precision.autocast or precision.weights).itemsize
    each = {"none": computes, "fp8": 1, "bitsandbytes": NF4_BYTES}[chosen.quantization]
    weights = model.rounded(each, computes) // chosen.tensor_parallel
    cache = model.row(precision).of(1, config.longest_text)
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


Found = TypeVar("Found")
ADAM_MOMENTS = 2
PLAIN = 0.25
# The heap of a processor's allocator keeps the holes that freed tensors leave between activations that stay. An adapter
# leaves twice as many, and layers that are computed again leave 70% of theirs. Shares of the activations of all
# layers, fitted to measured peaks (benchmarks/memory.py). A GPU's allocator joins its holes.
HOLES, HOLES_OF_ADAPTER, COMPUTED_AGAIN = 0.4, 0.9, 0.7


class Model:
    """A base model as its config describes it. Nothing is loaded, so a size of any kind costs nothing."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self._found: dict[tuple[Any, ...], Any] = {}

    @classmethod
    def of(cls, source: str) -> Model | None:
        """The model of a local folder, the starter, or one that is known by its id; ``None`` for any other.

        Raises ``ModelError`` for a folder whose config cannot be read.
        """
        folder = Path(source).expanduser()
        if (folder / "config.json").is_file():
            return cls(load_config(folder))
        if source == "starter":
            return cls(starter_config())
        return cls(KNOWN[source].config()) if source in KNOWN else None

    @cached_property
    def parameters(self) -> int:
        """Weights, tied ones once."""
        return sum(p.numel() for p in empty_model(self.config, Precision(torch.float32)).parameters())

    @cached_property
    def in_layers(self) -> int:
        """Weights of linear layers without the output layer: those that bitsandbytes holds in 4 bits."""
        model = empty_model(self.config, Precision(torch.float32))
        outputs = model.get_output_embeddings()
        linear = (m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not outputs)
        return sum(module.weight.numel() for module in linear)

    def attending(self, how: str) -> Model:
        """The same with attention written out where it is asked for, whose scores are kept; any other keeps none."""
        if how != "eager":
            return self
        return self._once(("eager",), lambda: Model(_with_eager(self.config)))

    def rounded(self, each: float, others: int) -> int:
        """Bytes of the weights where each of a layer's has ``each``, and all others have ``others``."""
        return round(self.in_layers * each) + (self.parameters - self.in_layers) * others

    def adapter(self, lora: Any) -> int:
        """Weights of a LoRA adapter."""
        return self._once(("adapter", str(lora)), lambda: adapter_size(self.config, lora))

    def trained(self, precision: Precision, lora: Any) -> list[Weight]:
        """The tensors that are trained: all of the model, or an adapter's, which is in float32."""
        size = precision.weights.itemsize if lora is None else torch.float32.itemsize
        return self._once(("trained", size, str(lora)), lambda: trained_weights(self.config, lora, size))

    def row(self, precision: Precision) -> RowCost:
        """The memory of a rollout in flight in the sampler's cache."""
        return self._once(("row", precision), lambda: row_cost(self.config, precision))

    @property
    def width(self) -> int:
        """Of a hidden state."""
        return int(self.config.get_text_config().hidden_size)

    def step(self, shape: Shape, precision: Precision, how: How) -> StepBytes:
        """The memory that one micro batch needs."""
        key = ("step", shape, precision, str(how))
        return self._once(key, lambda: step_bytes(self.config, shape, precision, how))

    def _once(self, key: tuple[Any, ...], find: Callable[[], Found]) -> Found:
        """Advice tries many changes of one job: what none of them touches is found once."""
        if key not in self._found:
            self._found[key] = find()
        found: Found = self._found[key]
        return found


def plainly_fits(config: JobConfig, model: Model, device: Device) -> bool:
    """Whether the job fits many times over, by a bound that takes no time: a tiny model need not be traced."""
    text, shape = model.config.get_text_config(), longest_shape(config)
    tokens, layers = shape.rows * (shape.prompt + shape.completion), text.num_hidden_layers
    widest = max(text.hidden_size, getattr(text, "intermediate_size", 0) or 0)
    weights = 2 * text.vocab_size * text.hidden_size + layers * 12 * text.hidden_size * widest
    each = 4 * (layers * 40 * widest + 40 * text.hidden_size)
    return 24 * weights + tokens * each + 8 * 4096 * min(text.vocab_size, 32768) * 4 < PLAIN * device.bytes


def _with_eager(config: Any) -> Any:
    found = copy.deepcopy(config)
    found._attn_implementation = "eager"
    return found


def precision_of(config: JobConfig, device: Device) -> Precision:
    """As ``training.algorithms.loading`` chooses it on that device."""
    autocast = torch.bfloat16 if device.kind == "cuda" and device.computes_bf16 else None
    wanted = config.model.dtype
    if wanted == "auto":
        wanted = "bfloat16" if autocast is not None and config.model.lora_rank else "float32"
    return Precision(getattr(torch, wanted), autocast)


def longest_shape(config: JobConfig) -> Shape:
    """The longest micro batch that the options allow. A pair is two rows of one forward pass."""
    rows, rollout = micro_rows(config), config.rollout
    if config.method.learns_from == "demonstrations":
        return Shape(rows, 0, config.sft.max_length)
    if config.method.learns_from == "preferences":
        return Shape(2 * rows, 0, config.dpo.max_length)
    return Shape(rows, rollout.max_prompt_tokens, rollout.max_completion_tokens)


def micro_rows(config: JobConfig) -> int:
    """Rows, or pairs, of a micro batch; with a limit of tokens as many of the longest as it holds."""
    whole, tokens = update_rows(config), config.optim.max_tokens_per_micro_batch
    if config.by_verl and not config.optim.micro_batch_size:
        tokens = config.tokens_of_micro_batch
    if tokens:
        return min(whole, max(1, tokens // config.longest_text))
    return config.optim.micro_batch_size or whole


def update_rows(config: JobConfig) -> int:
    """Rows, or pairs, of one update of the weights; of several devices those of each."""
    if config.method.learns_from == "demonstrations":
        return config.sft.batch_size
    if config.method.learns_from == "preferences":
        return config.dpo.batch_size
    whole = config.optim.mini_batch_size or config.rollouts_per_step
    return max(1, whole // (config.hardware.training if config.by_verl else 1))


def memory_of(config: JobConfig, model: Model, device: Device) -> Need:
    """The table of a job, for one of its devices. Raises ``ModelError`` for a model that cannot be traced."""
    model = model.attending(config.model.attention)
    if config.by_verl:
        return _memory_by_verl(config, model, share_of(device, config))
    precision, lora = precision_of(config, device), lora_config(config)
    size = precision.weights.itemsize
    terms = [_weights(config, model, precision)]
    if config.method.trains:
        terms += _learned(config, model, precision, lora, device)
    if _keeps_reference(config):
        why = sentence(_("a second copy of the weights, which the loss is held to"))
        terms.append(Term("reference", model.parameters * size, why))
    if config.learns_values:
        terms.append(_values(config, model))
    if config.method.trains:
        terms += _learning(config, model, precision, how_of(config, device), terms)
        if device.kind == "cpu":
            terms.append(_holes(config, model, precision, how_of(config, device)))
    if config.method.plays and config.rollout.engine == "vllm":
        terms += vllm_terms(config, model, precision, device)
    elif config.method.plays:
        terms += cache_terms(config, model, precision, device, terms)
    terms.append(Term("program", PROGRAM[device.kind], sentence(_("Python, PyTorch and what the device keeps"))))
    return Need(device, tuple(terms))


def _memory_by_verl(config: JobConfig, model: Model, device: Device) -> Need:
    """The shards, the unit at work, and the sampler, which leaves the device to the trainer while it learns.

    Of samplers on devices of their own, the table is of a device that trains, unless one that samples lacks memory.
    """
    precision, apart = precision_of(config, device), config.hardware.sampler_devices
    terms = sharded_terms(config, model, device, longest_shape(config), precision)
    if device.kind == "cpu":
        terms.append(_holes(config, model, precision, how_of(config, device)))
        sampler = sampler_on_cpu(config, model)
    else:
        chosen = config.vllm.model_copy(update={"sleep": not apart, "mode": "managed"})
        sampler = vllm_terms(config.model_copy(update={"vllm": chosen}), model, precision, device)
    program = Term("program", PROGRAM[device.kind], sentence(_("Python, PyTorch and what the device keeps")))
    if not apart:
        return Need(device, (*terms, *sampler, program), config.devices)
    trains = Need(device, (*terms, program), config.hardware.training)
    samples = Need(device, (*sampler, program), config.hardware.sampling)
    return trains if samples.fits else max(trains, samples, key=lambda need: need.whole)


def _weights(config: JobConfig, model: Model, precision: Precision) -> Term:
    if config.method.trains and config.model.quantization != "none":
        rest = model.parameters - model.in_layers
        why = sentence(
            _("{count} weights of layers in 4 bits with their constants, and {rest} others of {size} bytes"),
            count=f"{model.in_layers:,}",
            rest=f"{rest:,}",
            size=precision.weights.itemsize,
        )
        return Term("weights", model.rounded(NF4_BYTES, precision.weights.itemsize), why)
    why = sentence(_("{count} weights of {size} bytes"), count=f"{model.parameters:,}", size=precision.weights.itemsize)
    return Term("weights", model.parameters * precision.weights.itemsize, why)


def _learned(config: JobConfig, model: Model, precision: Precision, lora: Any, device: Device) -> list[Term]:
    """The adapter, the gradients of what is trained and what the optimiser keeps. PEFT keeps adapters in float32."""
    terms = []
    if lora is None:
        trained = model.parameters * precision.weights.itemsize
    else:
        count = model.adapter(lora)
        trained = count * torch.float32.itemsize
        why = sentence(
            _("{count} weights of rank {rank}, 4 bytes each"), count=f"{count:,}", rank=config.model.lora_rank
        )
        terms.append(Term("lora", trained, why))
    terms.append(Term("gradients", trained, sentence(_("one for each weight that is trained"))))
    kept = kept_by(config.optim.optimizer, model.trained(precision, lora), on_gpu=device.kind == "cuda")
    terms.append(Term("optimizer", kept.here, kept.why))
    return terms


def _values(config: JobConfig, model: Model) -> Term:
    """The value head with its gradient and moments, and what all updates of a sampling share."""
    rows, tokens = config.rollouts_per_step, config.rollout.max_completion_tokens
    each = torch.float32.itemsize
    head = (2 + ADAM_MOMENTS) * each * (model.width + 1)
    text = _("the value head, and value, return and advantage of {rows} rollouts of {tokens} tokens")
    why = sentence(text, rows=rows, tokens=f"{tokens:,}")
    return Term("values", head + 3 * each * rows * tokens, why)


def how_of(config: JobConfig, device: Device) -> How:
    """How a job learns, as the trace has to know it."""
    recompute, on_gpu = config.model.gradient_checkpointing, device.kind == "cuda"
    return How(lora_config(config), recompute, config.learns_values, on_gpu)


def _learning(config: JobConfig, model: Model, precision: Precision, how: How, fixed: list[Term]) -> list[Term]:
    """Activations and head at the moment of most.

    A gradient appears while its layer's activations go. Where several micro batches make one update, all gradients are
    there already; else those of the layers are not yet there at the moment of most, and what they take is no sum.
    """
    shape = longest_shape(config)
    step = model.step(shape, precision, how)
    length = shape.prompt + shape.completion
    rows = sentence(_("{rows} rows of {tokens} tokens"), rows=shape.rows, tokens=f"{length:,}")
    tiles = sentence(_("log-probabilities of {rows} rows, tile by tile"), rows=shape.rows)
    gradients = sum(term.bytes for term in fixed if term.key == "gradients")
    layers = step.layers
    if micro_batches(config) == 1:
        layers = max(0, layers - min(gradients, layers + step.head))
    return [Term("activations", layers, rows), Term("head", step.head, tiles)]


def _holes(config: JobConfig, model: Model, precision: Precision, how: How) -> Term:
    share = HOLES if how.lora is None else HOLES_OF_ADAPTER
    if how.recompute:
        share *= COMPUTED_AGAIN
    activations = model.step(longest_shape(config), precision, how._replace(recompute=False)).layers
    why = sentence(_("{share} of the activations of all layers: freed tensors"), share=f"{share:.0%}")
    return Term("holes", round(share * activations), why)


def micro_batches(config: JobConfig) -> int:
    """Forward passes an update."""
    return -(-update_rows(config) // micro_rows(config))


def _keeps_reference(config: JobConfig) -> bool:
    """Whether a second copy of the weights stays: with an adapter it is switched off instead."""
    if config.model.lora_rank or not config.method.trains:
        return False
    if config.method.learns_from == "preferences":
        return True
    return config.method.plays and config.gradient.beta > 0
