"""Tiny random models of real families: their architecture, their chat template, and a tokenizer with its marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.training.rollout.templates import control_tokens, text_of, tokenizer_for
from training.data.schema import Row
from training.rollout.templates import use_training_template
from training.rollout.tokens import ChatTemplate

VOCABULARY = 1000
SMALL: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 4096,
    "initializer_range": 0.05,
}
_LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 24,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 96}
_LATENT = {
    "head_dim": 12,
    "qk_rope_head_dim": 12,
    "qk_nope_head_dim": 12,
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "n_group": 2,
    "topk_group": 1,
}
_HYBRID = {
    "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    "num_hidden_layers": 4,
    "n_routed_experts": 4,
    "moe_shared_expert_intermediate_size": 96,
    "mamba_num_heads": 8,
    "mamba_head_dim": 24,
    "ssm_state_size": 16,
    "n_groups": 2,
    "chunk_size": 32,
}
TEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2.5": ("qwen2_5", "qwen2", {}),
    "qwen3": ("qwen3", "qwen3", {}),
    "qwen3.6": ("qwen3_6", "qwen3_5_text", _LINEAR),
    "llama3.1": ("llama3_1", "llama", {}),
    "gemma4": ("gemma4_v5", "gemma4_text", {}),
    "gpt-oss": ("gptoss", "gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "glm4.5": ("glm4moe", "glm4_moe", {**_EXPERTS, "n_routed_experts": 4, "first_k_dense_replace": 1}),
    "deepseek-v3": (
        "deepseekv3",
        "deepseek_v3",
        {**_EXPERTS, "n_routed_experts": 8, "first_k_dense_replace": 1, **_LATENT},
    ),
    "lfm2": ("lfm2_v2", "lfm2", {"layer_types": ["conv", "full_attention"]}),
    "nemotron3": ("nemotron_3_nano", "nemotron_h", {**_EXPERTS, **_HYBRID}),
}
"""Families by name: template, model type, and options of its config."""


def make_model(name: str, rows: Sequence[Row], folder: Path) -> Path:
    """Write a tiny random model of a family, whose words are those of ``rows`` as its template writes them."""
    template, model_type, over = TEN[name]
    tokenizer = _tokenizer(text_of(template), rows)
    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](**{**SMALL, "vocab_size": len(tokenizer), **ids, **over})
    model = AutoModelForCausalLM.from_config(config).float()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer(template: str, rows: Sequence[Row]) -> Any:
    bytewise = tokenizer_for(template)
    use_training_template(bytewise)
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(_texts(ChatTemplate(bytewise), rows), trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<EOS>", bos_token="<BOS>", pad_token="<PAD>")
    made.add_tokens(control_tokens(template))
    made.chat_template = template
    return made


def _texts(template: ChatTemplate, rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        text = template.text_of(row.messages, row.tools)
        for mark in template.control:
            text = text.replace(mark, "\n")
        yield text
