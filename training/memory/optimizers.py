"""What an optimiser keeps for the weights that it moves, in bytes, by the shapes of their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from training.words import Sentence, _, sentence

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
