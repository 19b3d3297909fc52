"""How much a LoRA adapter counts."""

from __future__ import annotations

import pytest

from tests.training.helpers import job_config
from training.policy.adapter import lora_config


@pytest.mark.parametrize(
    ("model", "alpha", "factor"),
    [
        ({"lora_rank": 8}, 16, 2.0),
        ({"lora_rank": 64}, 128, 2.0),
        ({"lora_rank": 64, "lora_alpha": 32}, 32, 0.5),
        ({"lora_rank": 64, "lora_alpha": 16, "lora_rslora": True}, 16, 2.0),
    ],
)
def test_alpha_follows_the_rank_unless_it_is_set(model: dict[str, object], alpha: int, factor: float) -> None:
    """It was 32 whatever the rank, so that a rank of 64 counted a half."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = job_config(model=model)
    found = lora_config(config)
    assert (config.model.adapter_alpha, found.lora_alpha) == (alpha, alpha)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    adapted = get_peft_model(AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=32, **sizes)), found)
    layers = [layer for layer in adapted.modules() if hasattr(layer, "lora_A")]
    assert layers and {layer.scaling["default"] for layer in layers} == {factor}


def test_rslora_needs_an_alpha_and_nothing_is_made_without_a_rank() -> None:
    with pytest.raises(ValueError, match=r"model\.lora_alpha.*set an alpha"):
        job_config(model={"lora_rank": 8, "lora_rslora": True})
    assert lora_config(job_config(model={"lora_rslora": True})) is None
