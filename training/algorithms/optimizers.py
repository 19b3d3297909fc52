"""The optimiser of a job, as the trainer takes it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from training.algorithms.loading import BITSANDBYTES
from training.algorithms.moments import SmallAdamW
from training.config import JobConfig
from training.errors import ConfigError

OPTION = "optim.optimizer"
OF_TRANSFORMERS = {
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
}
"""Those that the trainer makes by itself, by transformers' name."""
OURS: dict[str, dict[str, Any]] = {"adamw_bf16": {"dtype": torch.bfloat16}, "adamw_offload": {"offload": True}}


def optimizer_arguments(config: JobConfig, device: str) -> dict[str, Any]:
    """Arguments of ``transformers.TrainingArguments``. Raises ``ConfigError`` for one that cannot be made here."""
    chosen = config.optim
    if chosen.optimizer in chosen.of_bitsandbytes:
        _require_bitsandbytes(chosen.optimizer, device)
    named = OF_TRANSFORMERS.get(chosen.optimizer)
    settings = {"adam_beta1": chosen.beta1, "adam_beta2": chosen.beta2, "adam_epsilon": chosen.epsilon}
    return settings | ({"optim": named} if named else {})


def use_optimizer(trainer: Any, config: JobConfig) -> None:
    """Have the trainer make one of ours, where the job wants it."""
    chosen = config.optim
    if chosen.optimizer in OURS:
        settings = {"lr": config.learning_rate, "betas": (chosen.beta1, chosen.beta2), "eps": chosen.epsilon}
        trainer.optimizer_cls_and_kwargs = (SmallAdamW, settings | OURS[chosen.optimizer])


def _require_bitsandbytes(name: str, device: str) -> None:
    if device != "cuda":
        hint = "Choose adamw, adamw_bf16 or adafactor, or a CUDA device."
        raise ConfigError(f"{name} is bitsandbytes', which needs a CUDA GPU.", option=OPTION, hint=hint)
    if find_spec("bitsandbytes") is None:
        raise ConfigError(f"{name} needs bitsandbytes, which is not installed.", option=OPTION, hint=f"{BITSANDBYTES}.")
