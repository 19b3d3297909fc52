"""Tiny random models of many families, and the gap between the sampler and a training forward."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from training.policy.engine import Engine, Sample

WINDOW = 16
"""Tokens of a sliding window, of which the rows below are several long."""
_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEADS = {"head_dim": 8}
_WINDOW = {"sliding_window": WINDOW}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"] * 2, **_WINDOW}
_LINEAR = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SEEN = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_EYES = {"vision_config": _SEEN, "image_token_index": 95, "boi_token_index": 94, "eoi_token_index": 93}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", {}),
    "qwen2 with windows": ("qwen2", {"use_sliding_window": True, "max_window_layers": 2, **_WINDOW}),
    "qwen3": ("qwen3", _HEADS),
    "qwen3_moe": ("qwen3_moe", {**_HEADS, **_EXPERTS}),
    "llama": ("llama", _HEADS),
    "mistral with a window": ("mistral", {**_HEADS, **_WINDOW}),
    "gemma3_text": ("gemma3_text", {**_HEADS, **_MIXED}),
    "gemma3 as published": ("gemma3", {"text_config": {**_SMALL, **_HEADS, **_MIXED}, **_EYES}),
    "phi3 with a window": ("phi3", _WINDOW),
    "olmo2": ("olmo2", {}),
    "gpt_oss": ("gpt_oss", {**_HEADS, **_MIXED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_5_text": ("qwen3_5_text", {**_HEADS, **_LINEAR}),
    "qwen3_5 as published": ("qwen3_5", {"text_config": {**_SMALL, **_HEADS, **_LINEAR}}),
    "qwen3_next": ("qwen3_next", {**_HEADS, **_LINEAR, **_EXPERTS, "shared_expert_intermediate_size": 16}),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"] * 2}),
}
ROWS, TURNS = 6, 3


def tiny_model(name: str) -> Any:
    """A model of one of ``FAMILIES`` in float32 and train mode, as a trainer holds it."""
    torch.manual_seed(0)
    model_type, over = FAMILIES[name]
    options = over if "text_config" in over else {**_SMALL, **over}
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**options)).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(3.0)  # sharper than at initialisation, so that one wrong token in sight shows
    model.generation_config.eos_token_id = None
    return model.train()


async def _play(engine: Engine, row: int) -> list[tuple[list[int], Sample]]:
    """One row: turns of different lengths with an environment's ids and a wait between them."""
    generator = torch.Generator().manual_seed(row)

    def words(count: int) -> list[int]:
        found: list[int] = torch.randint(3, 90, (count,), generator=generator).tolist()
        return found

    ids, turns = words(9 + 5 * row), []
    for turn in range(TURNS):
        sample = await engine.generate(ids, max_tokens=5 + 2 * row, seed=100 * row + turn, episode=f"row {row}")
        turns.append((ids, sample))
        ids = ids + sample.ids + words(1 + 3 * ((row + turn) % 4))
        await asyncio.sleep(0.004 * (row % 3))
    engine.release(f"row {row}")
    return turns


def played(engine: Engine) -> list[tuple[list[int], Sample]]:
    """All turns of six rows that are sampled together: prompt ids and sample."""

    async def together() -> list[list[tuple[list[int], Sample]]]:
        return list(await asyncio.gather(*(_play(engine, row) for row in range(ROWS))))

    with engine.sampling():
        rows = asyncio.run(together())
    return [turn for row in rows for turn in row]


def gaps(model: Any, turns: list[tuple[list[int], Sample]], autocast: torch.dtype | None = None) -> list[float]:
    """How far each sampled token's log-probability is from that of a fresh forward over the whole text, in nats."""
    apart: list[float] = []
    model.eval()
    for prompt, sample in turns:
        ids = torch.tensor([prompt + sample.ids])
        with torch.no_grad(), torch.autocast("cpu", autocast, enabled=autocast is not None):
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, len(prompt) - 1 : -1].float()
        drawn = torch.tensor(sample.ids)
        theirs = torch.log_softmax(logits, dim=-1).gather(1, drawn.unsqueeze(1)).squeeze(1)
        apart += (theirs - torch.tensor(sample.logprobs)).abs().tolist()
    return apart
