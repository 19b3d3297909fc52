"""The LoRA adapter of a job."""

from __future__ import annotations

from typing import Any

from training.config import JobConfig


def lora_config(config: JobConfig) -> Any:
    """The LoRA adapter to train (Hu et al. 2021; scaled as Kalajdzievski 2023 where asked), or ``None`` to train all
    weights."""
    if not config.model.lora_rank:
        return None
    from peft import LoraConfig

    targets = config.model.lora_targets
    return LoraConfig(
        r=config.model.lora_rank,
        lora_alpha=config.model.adapter_alpha,
        use_rslora=config.model.lora_rslora,
        lora_dropout=config.model.lora_dropout,
        target_modules=targets if targets == "all-linear" else targets.split(","),
        task_type="CAUSAL_LM",
    )
