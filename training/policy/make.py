"""The sampling engine of a job. Another sampler is one more module and one more branch here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from training.config import JobConfig
from training.policy.engine import SamplingParams, WatchedEngine, known_path
from training.policy.transformers_engine import TransformersEngine

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of each of accelerate's names of a mixed precision."""
MEMORY_NOTE = "Step %s: sampling ran out of memory and continued with fewer rollouts at once, so it is slower."


def make_engine(
    config: JobConfig,
    model: Any,
    ends: Collection[int],
    *,
    autocast: torch.dtype | None,
    log: Callable[[str], None],
) -> WatchedEngine:
    """The engine that plays a job's model. Raises ``ModelError`` for a family that cannot be sampled right.

    ``ends`` are the ids that end a turn by the model's chat template; ``autocast`` is the precision that the loss is
    computed in, if it is another than the weights'.
    """
    family = model.config.model_type
    path = known_path(family)
    if path == "plain":
        log(f"Models of the family {family} are sampled by the plain path: each turn computes the whole prompt again.")
    return TransformersEngine(
        model,
        stop_ids=stop_ids(model, ends),
        params=SamplingParams(config.rollout.temperature, config.rollout.top_p, config.rollout.top_k),
        autocast=autocast,
        parks=path == "fast",
    )


def stop_ids(model: Any, ends: Collection[int]) -> set[int]:
    """Ids at which sampling of a turn stops: its ``ends`` by the chat template, and what else the model declares.

    Only the former lets a conversation continue; a turn that stops at another one is taken as cut off.
    """
    declared = model.generation_config.eos_token_id
    others = [] if declared is None else [declared] if isinstance(declared, int) else list(declared)
    return {*ends, *others}
