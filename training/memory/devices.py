"""How much memory a device has, and what a job needs of it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from training.errors import ConfigError
from training.words import Sentence, _, sentence

# Devices that jobs run on, with the memory that a program really gets of them.

GIB = 1 << 30
BF16_MAJOR = 8
"""CUDA devices below this compute capability emulate bfloat16 (T4 and V100: 7)."""
OTHER = re.compile(r"(?P<name>.+)=(?P<gib>\d+(\.\d+)?)(@(?P<major>\d+)\.\d+)?", re.ASCII)
CLOSE = 0.9
"""Above this share of the device a fit is called close: the table is right to about 15%."""


def gib(size: int) -> str:
    """A size as people read it."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.0f} MiB"


class Device(NamedTuple):
    """``bytes`` is what a program can use; ``computes_bf16`` says whether bfloat16 is computed and not emulated."""

    key: str
    title: str
    bytes: int
    kind: Literal["cuda", "cpu"] = "cuda"
    computes_bf16: bool = True


def _gpu(key: str, title: str, gib: float, *, bf16: bool = True) -> Device:
    return Device(key, title, round(gib * GIB), "cuda", bf16)


# What nvidia-smi reports as the total of each, in GiB (MiB / 1024).
DEVICES: dict[str, Device] = {
    device.key: device
    for device in (
        _gpu("t4", "NVIDIA T4 16 GB", 15.0, bf16=False),
        _gpu("v100", "NVIDIA V100 32 GB", 31.7, bf16=False),
        _gpu("rtx4090", "NVIDIA RTX 4090 24 GB", 23.9),
        _gpu("a10", "NVIDIA A10 24 GB", 22.5),
        _gpu("l4", "NVIDIA L4 24 GB", 22.5),
        _gpu("rtx5090", "NVIDIA RTX 5090 32 GB", 31.8),
        _gpu("a100-40", "NVIDIA A100 40 GB", 39.6),
        _gpu("l40s", "NVIDIA L40S 48 GB", 45.0),
        _gpu("a100", "NVIDIA A100 80 GB", 79.2),
        _gpu("h100", "NVIDIA H100 80 GB", 79.6),
        _gpu("h200", "NVIDIA H200 141 GB", 139.8),
        _gpu("b200", "NVIDIA B200 192 GB", 178.4),
    )
}


def device_named(key: str) -> Device:
    """The device of a key, ``cpu`` for this machine, or any other as ``name=GiB`` or ``name=GiB@capability``, with its
    compute capability in CUDA; without that, it computes bfloat16. Raises ``ConfigError``.
    """
    if other := OTHER.fullmatch(key):
        major = int(other["major"] or BF16_MAJOR)
        return _gpu(key, other["name"], float(other["gib"]), bf16=major >= BF16_MAJOR)
    if key == "cpu":
        return this_machine()
    if key not in DEVICES:
        known = ", ".join(["cpu", *DEVICES])
        raise ConfigError(f"There is no device {key}: known are {known}.")
    return DEVICES[key]


def this_machine() -> Device:
    """The processor of this machine, with all of its memory."""
    return Device("cpu", "CPU", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "cpu", computes_bf16=False)


def device_here(wanted: str) -> Device:
    """The device that a job would run on here, by ``run.device``: the GPU that PyTorch sees, else the processor."""
    import torch

    if wanted == "cpu" or not torch.cuda.is_available():
        return this_machine()
    found = torch.cuda.get_device_properties(0)
    able = torch.cuda.is_bf16_supported(including_emulation=False)
    return Device("gpu", found.name, int(found.total_memory), "cuda", able)


# --- Known ----------------------------------------------------------------------------------------------------------
# Shapes of models that presets and people name by their Hugging Face id, so that a job can be sized before its model
# was fetched. The figures are those of each model's published ``config.json``.


class KnownModel(NamedTuple):
    """What decides about memory. ``head`` is the size of one attention head, 0 for ``hidden / heads``."""

    family: str
    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    words: int
    tied: bool
    head: int = 0

    def config(self) -> Any:
        """As transformers would read it from the model's folder."""
        from transformers import AutoConfig

        return AutoConfig.for_model(
            self.family,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            head_dim=self.head or self.hidden // self.heads,
            vocab_size=self.words,
            tie_word_embeddings=self.tied,
        )


KNOWN: dict[str, KnownModel] = {
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": KnownModel("llama", 2048, 5632, 22, 32, 4, 32000, False),
    "Qwen/Qwen2.5-0.5B-Instruct": KnownModel("qwen2", 896, 4864, 24, 14, 2, 151936, True),
    "Qwen/Qwen2.5-1.5B-Instruct": KnownModel("qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-3B-Instruct": KnownModel("qwen2", 2048, 11008, 36, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B-Instruct": KnownModel("qwen2", 3584, 18944, 28, 28, 4, 152064, False),
    "Qwen/Qwen2.5-14B-Instruct": KnownModel("qwen2", 5120, 13824, 48, 40, 8, 152064, False),
    "Qwen/Qwen2.5-32B-Instruct": KnownModel("qwen2", 5120, 27648, 64, 40, 8, 152064, False),
    "Qwen/Qwen3-0.6B": KnownModel("qwen3", 1024, 3072, 28, 16, 8, 151936, True, 128),
    "Qwen/Qwen3-1.7B": KnownModel("qwen3", 2048, 6144, 28, 16, 8, 151936, True, 128),
    "Qwen/Qwen3-4B": KnownModel("qwen3", 2560, 9728, 36, 32, 8, 151936, True, 128),
    "Qwen/Qwen3-8B": KnownModel("qwen3", 4096, 12288, 36, 32, 8, 151936, False, 128),
    "Qwen/Qwen3-14B": KnownModel("qwen3", 5120, 17408, 40, 40, 8, 151936, False, 128),
    "Qwen/Qwen3-32B": KnownModel("qwen3", 5120, 25600, 64, 64, 8, 151936, False, 128),
    "deepseek-ai/deepseek-llm-7b-chat": KnownModel("llama", 4096, 11008, 30, 32, 32, 102400, False),
    "meta-llama/Llama-3.2-1B-Instruct": KnownModel("llama", 2048, 8192, 16, 32, 8, 128256, True, 64),
    "meta-llama/Llama-3.2-3B-Instruct": KnownModel("llama", 3072, 8192, 28, 24, 8, 128256, True, 128),
    "meta-llama/Llama-3.1-8B-Instruct": KnownModel("llama", 4096, 14336, 32, 32, 8, 128256, False),
}


# What a job needs on a device, term by term, and when each term is there.

NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Half a byte; for each 64 weights a constant of a byte, and for each 256 of those one of four (QLoRA, section 3)."""
PROGRAM = {"cuda": round(0.75 * GIB), "cpu": round(0.45 * GIB)}
"""The libraries' own memory: on a GPU their context, on a processor what is resident before a model is loaded."""
TITLES = {
    "weights": _("Weights of the model"),
    "lora": _("LoRA adapter"),
    "gradients": _("Gradients"),
    "optimizer": _("Optimiser"),
    "reference": _("Reference model"),
    "values": _("Value head and values"),
    "activations": _("Activations"),
    "head": _("Output head, loss and the layer at work"),
    "logits": _("Logits"),
    "gathered": _("Gathered weights"),
    "reduced": _("Gradient of the unit at work"),
    "sampler": _("Sampler"),
    "holes": _("Holes that the allocator keeps"),
    "cache": _("Key-value cache of the rollouts"),
    "copy": _("Weights in the precision of sampling"),
    "vllm": _("vLLM"),
    "vllm_awake": _("vLLM while it samples"),
    "program": _("Program and libraries"),
}
LEARNING = ("gradients", "activations", "head", "holes", "logits", "gathered", "reduced")
SAMPLING = ("cache", "copy", "vllm_awake")


class Term(NamedTuple):
    """One line of the table. ``why`` says what it is made of; ``spare`` is what of it is taken where there is room,
    and needed by nothing."""

    key: str
    bytes: int
    why: Sentence
    spare: int = 0

    @property
    def title(self) -> str:
        """Its name, to be translated where it is shown."""
        return TITLES[self.key]

    @property
    def part(self) -> str:
        """When it is there: ``learning``, ``sampling``, or ``kept`` for the whole run."""
        return "learning" if self.key in LEARNING else "sampling" if self.key in SAMPLING else "kept"


class Need(NamedTuple):
    """The memory that a job needs on a device, or on each of ``devices``."""

    device: Device
    terms: tuple[Term, ...]
    devices: int = 1

    def bytes_of(self, *keys: str) -> int:
        """The sum of these terms."""
        return sum(term.bytes for term in self.terms if term.key in keys)

    @property
    def fixed(self) -> int:
        """The bytes that stay for the whole run."""
        return sum(term.bytes for term in self.terms if term.key not in (*LEARNING, *SAMPLING))

    @property
    def learning(self) -> int:
        """At the moment of most in a forward and backward."""
        return self.fixed + self.bytes_of(*LEARNING)

    @property
    def sampling(self) -> int:
        """While all rollouts that may be in flight are at their longest."""
        return self.fixed + self.bytes_of(*SAMPLING)

    @property
    def whole(self) -> int:
        """Bytes that it needs at the moment of most: with less it cannot run."""
        return max(self.learning, self.sampling - sum(term.spare for term in self.terms))

    @property
    def most(self) -> int:
        """Bytes that it takes at most where there is room."""
        return max(self.learning, self.sampling)

    @property
    def fits(self) -> bool:
        """Whether the device has as much."""
        return self.whole <= self.device.bytes


# What an optimiser keeps for the weights that it moves, in bytes, by the shapes of their tensors.

FLOAT, HALF = 4, 2
BLOCK, SMALL = 256, 4096
"""bitsandbytes: values that share a float32 constant, and tensors of fewer values than which stay in 32 bits."""


class Kept(NamedTuple):
    """Bytes on the device, and elsewhere; ``why`` says what they are."""

    here: int
    elsewhere: int
    why: Sentence


class Weight(NamedTuple):
    """One tensor that is trained: its shape, the bytes of a value, and whether it is an embedding."""

    shape: tuple[int, ...]
    itemsize: int = FLOAT
    embedding: bool = False

    @property
    def size(self) -> int:
        """Values."""
        return math.prod(self.shape)


def kept_by(optimizer: str, weights: Iterable[Weight], *, on_gpu: bool) -> Kept:
    """What ``optim.optimizer`` keeps for these tensors. A processor's memory is one: nothing is elsewhere there."""
    tensors = list(weights)
    count = sum(weight.size for weight in tensors)
    if optimizer == "adamw_bf16":
        return Kept(2 * HALF * count, 0, sentence(_("two moments in bfloat16 for each weight that is trained")))
    if optimizer == "adafactor":
        return Kept(sum(map(_factored, tensors)), 0, sentence(_("sums of rows and columns of each matrix")))
    if optimizer == "adamw_8bit":
        return Kept(sum(map(_in_8_bits, tensors)), 0, sentence(_("two moments of a byte, embeddings in float32")))
    if optimizer in ("paged_adamw", "paged_adamw_8bit"):
        each = _in_8_bits if optimizer == "paged_adamw_8bit" else _whole
        why = sentence(_("two moments in pages that leave the GPU when it is full"))
        return Kept(0, sum(map(each, tensors)), why)
    if optimizer == "adamw_offload":
        largest = max((weight.size for weight in tensors), default=0)
        why = sentence(_("two moments of one tensor at a time; the others are in the processor's memory"))
        return Kept(2 * FLOAT * (largest if on_gpu else count), 2 * FLOAT * count if on_gpu else 0, why)
    moments = sum(2 * weight.size * weight.itemsize for weight in tensors)
    return Kept(moments, 0, sentence(_("two moments for each weight that is trained")))


def _whole(weight: Weight) -> int:
    return 2 * FLOAT * weight.size


def _in_8_bits(weight: Weight) -> int:
    """A byte each, and a float32 for each block; transformers keeps embeddings in 32 bits."""
    if weight.embedding or weight.size < SMALL:
        return _whole(weight)
    return 2 * (weight.size + FLOAT * -(-weight.size // BLOCK))


def _factored(weight: Weight) -> int:
    """Adafactor (Shazeer and Stern 2018): of a matrix its rows' and columns' means, of a vector each value; no first
    moment."""
    if len(weight.shape) < 2:
        return FLOAT * weight.size
    *before, rows, columns = weight.shape
    return FLOAT * math.prod(before) * (rows + columns)
