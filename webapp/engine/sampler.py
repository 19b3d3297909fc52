"""Which places chats and continuations of a small model take: a device, or a place without one next to a training run.

A run keeps its device for hours. A small model answers fast enough on the processor, so while runs have every place of
``TRAIN`` it is sampled in a place of ``ENDPOINT``, which sees no device.
"""

from __future__ import annotations

from django.conf import settings

from training.config import ModelConfig
from training.machine import memory_left
from training.model_check import parameters_of
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.runs.records.queue import read_queue


def pool_of_model(model: ModelConfig) -> str:
    """The pool whose places sample this model now, with its references resolved to a folder or a Hugging Face id."""
    if not is_small(model):
        return TRAIN
    queue = read_queue()
    devices, others = queue.pool(TRAIN), queue.pool(ENDPOINT)
    wanted = devices.full or any(not run.blocked and devices.can_take(run) for run in devices.line)
    return ENDPOINT if wanted and others.places else TRAIN


def is_small(model: ModelConfig) -> bool:
    """Whether the processor samples it fast enough. A model whose size is not known on this host is not small."""
    count = parameters_of(model.source)
    return count is not None and count <= settings.CPU_SAMPLER_PARAMETERS


BYTES_PER_PARAMETER = 5  # float32, and a quarter more for the cache of keys and values and the libraries


def has_room(model: ModelConfig) -> bool:
    """Whether this host's memory can take the model next to what runs here: training must not be killed for a chat."""
    count, left = parameters_of(model.source), memory_left()
    return count is None or left is None or count * BYTES_PER_PARAMETER <= left
