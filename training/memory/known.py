"""Shapes of models that presets and people name by their Hugging Face id, so that a job can be sized before its model
was fetched. The figures are those of each model's published ``config.json``.
"""

from __future__ import annotations

from typing import Any, NamedTuple


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
