"""The memory of a job on each of several devices, as verl trains it: FSDP2 shards, and a sampler on the same devices.

What stays is divided by all devices: each has a slice of every tensor, along its first dimension, rounded up (PyTorch,
``fully_shard``). Before a unit computes, its slices are gathered, and so they are for its backward, while the next unit
is gathered already. Units are what verl 0.9.1 wraps (``apply_fsdp2``): each layer, embeddings and output layer unless
they are one tensor, and the rest, which stays gathered from its forward to the end of the backward. The gradient of a
unit is there as a whole, in the precision of the forward and once more in float32, until each device has its slice.

The shards are counted; tests compare them with those of real ranks, byte by byte. All else is arithmetic.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from training.config import JobConfig
from training.memory.devices import PROGRAM, Device, Term, Weight, kept_by
from training.memory.tracing import How, Precision, Shape, empty_model, trained_weights
from training.policy.adapter import lora_config
from training.words import _, sentence

PLAIN = Precision(torch.float32)
FEW_WORDS = 256
LOGITS, SCALED, ENTROPY = 3, 1, 2
"""Copies of a micro batch's logits that verl holds at once: as they are, without padding, and their logarithms; one
more where a temperature divides them; and for the entropy the probabilities and their product with them."""


class Units(NamedTuple):
    """Weights of the units in their order, and of the rest, which stays gathered. Those in ``own`` are never zero."""

    own: tuple[int, ...]
    rest: int

    @property
    def largest(self) -> int:
        """Of the largest unit, or of the rest."""
        return max(*self.own, self.rest)

    @property
    def at_once(self) -> int:
        """Of the unit at work and the next one, at most, and of the rest."""
        return max(map(sum, pairwise(self.own)), default=sum(self.own)) + self.rest


def sliced(weights: Iterable[Weight], devices: int) -> list[Weight]:
    """What each device holds of tensors: their rows are divided and rounded up, so that all slices are as large."""
    return [weight._replace(shape=(-(-weight.shape[0] // devices), *weight.shape[1:])) for weight in weights]


def bytes_of(weights: Iterable[Weight]) -> int:
    """Of all values of tensors."""
    return sum(weight.size * weight.itemsize for weight in weights)


def share_of(device: Device, config: JobConfig) -> Device:
    """What one of the job's devices has: processes on a processor share its memory."""
    if device.kind == "cuda":
        return device
    return device._replace(bytes=device.bytes // config.hardware.of_host)


def units_of(config: Any) -> Units:
    """The units of a model (transformers' config) that verl wraps."""
    model = empty_model(config, PLAIN)
    kinds = set(getattr(model, "_no_split_modules", None) or [])
    tied = bool(getattr(config, "tie_word_embeddings", False))
    wrapped: list[int] = []
    seen: set[int] = set()
    for name, module in model.named_modules():
        leaf = name.rpartition(".")[2]
        alone = isinstance(module, torch.nn.Embedding) or leaf in ("embed_tokens", "lm_head")
        if type(module).__name__ in kinds or (alone and not tied):
            own = {id(weight): weight.numel() for weight in module.parameters()}
            wrapped.append(sum(own.values()))
            seen |= set(own)
    rest = sum(weight.numel() for weight in model.parameters() if id(weight) not in seen)
    return Units(tuple(wrapped), rest)


def sharded_terms(config: JobConfig, model: Any, device: Device, shape: Shape, precision: Precision) -> list[Term]:
    """What a device holds while verl trains: ``model`` is the ``Model`` of the table, ``shape`` its micro batch, and
    ``precision`` that of the weights that stay. The sampler comes on top of it."""
    count, lora = config.hardware.training, lora_config(config)
    computed = torch.bfloat16 if device.kind == "cuda" else torch.float32
    base = sliced(trained_weights(model.config, None, precision.weights.itemsize), count)
    trained = sliced(model.trained(precision, lora), count)
    shared = sentence(_("a part in {count} of each tensor, its rows rounded up"), count=count)
    terms = [Term("weights", bytes_of(base), shared)]
    if lora is not None:
        terms.append(Term("lora", bytes_of(trained), shared))
    terms.append(Term("gradients", bytes_of(trained), shared))
    kept = kept_by(config.optim.optimizer, trained, on_gpu=device.kind == "cuda")
    terms.append(Term("optimizer", kept.here, kept.why))
    if config.gradient.beta > 0 and lora is None:
        why = sentence(_("in the processor's memory, in {count} parts, but for the unit at work"), count=count)
        terms.append(Term("reference", 0, why))
    terms += _gathered(units_of(model.config), computed.itemsize, learns=lora is None)
    return terms + _computed(config, model, shape, computed, on_gpu=device.kind == "cuda")


def _gathered(units: Units, itemsize: int, *, learns: bool) -> list[Term]:
    """The units that are whole at the moment of most; of a base below an adapter no gradient is made."""
    why = sentence(
        _("{size} weights: the unit at work, the next one and what is in no unit"), size=f"{units.at_once:,}"
    )
    terms = [Term("gathered", units.at_once * itemsize, why)]
    if learns:
        text = _("of {size} weights, as computed and in float32, until each device has its part")
        size = units.largest * (itemsize + torch.float32.itemsize)
        terms.append(Term("reduced", size, sentence(text, size=f"{units.largest:,}")))
    return terms


def _computed(config: JobConfig, model: Any, shape: Shape, computed: torch.dtype, *, on_gpu: bool) -> list[Term]:
    """Activations of the micro batch, and its logits: verl makes them of every token at once."""
    text, length = model.config.get_text_config(), shape.prompt + shape.completion
    wordless = copy.deepcopy(model.config)
    wordless.get_text_config().vocab_size = min(FEW_WORDS, text.vocab_size)
    how = How(lora_config(config), config.model.gradient_checkpointing, on_gpu=on_gpu)
    found = type(model)(wordless).step(shape, Precision(computed, computed if on_gpu else None), how)
    rows = sentence(_("{rows} rows of {tokens} tokens"), rows=shape.rows, tokens=f"{length:,}")
    copies = LOGITS + (SCALED if config.rollout.temperature != 1 else 0) + (ENTROPY if config.needs_entropy else 0)
    cells = shape.rows * length * text.vocab_size
    of_words = sentence(
        _("{tokens} tokens, {words} words, {copies} copies of {size} bytes"),
        tokens=f"{shape.rows * length:,}",
        words=f"{text.vocab_size:,}",
        copies=copies,
        size=computed.itemsize,
    )
    return [
        Term("activations", found.layers, rows),
        Term("head", found.head, sentence(_("embeddings, masks, and the layer that is computed again"))),
        Term("logits", cells * copies * computed.itemsize, of_words),
    ]


def sampler_on_cpu(config: JobConfig, model: Any) -> list[Term]:
    """The sampler that each device has on a processor, or each that only samples: a whole model, and the rollouts that
    are dealt to it."""
    columns = config.longest_text
    cost, rows = model.row(PLAIN), -(-config.rollouts_per_step // config.hardware.sampling)
    why = sentence(_("{rows} rollouts of {tokens} tokens at once"), rows=rows, tokens=f"{columns:,}")
    whole = sentence(_("all weights once more, in a program of its own"))
    return [
        Term("sampler", model.parameters * torch.float32.itemsize + PROGRAM["cpu"], whole),
        Term("cache", cost.of(rows, columns), why, spare=cost.of(rows, columns) - cost.of(1, columns)),
    ]
