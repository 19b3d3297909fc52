"""Which model families the sampler is right for, and by which path.

A family is one ``model_type`` of transformers. It stands here once the log-probabilities of its sampled tokens were
equal to those of a training forward (3 turns × 6 rows with pauses between, tiny random weights, transformers 5.17):
at most 3e-5 nats apart, where a wrong mask gave 0.01 to 5 (qwen3_5 and qwen3_next with several turns and a temperature
of 0.9: 1.2e-4 and 2.5e-4 at most, 1e-5 on average, because a chunked rule rounds otherwise than a recurrent one).
The others are refused by name, because a run that learns from wrong log-probabilities looks healthy.

- *fast*: the cache of an episode waits for its next turn, which feeds only what is new. Full attention and sliding
  windows.
- *plain*: each turn feeds the whole prompt. For layers with a state, where the padding between the turns of a row
  would leave a trace (linear attention, convolutions), and for masks that count columns (chunks, ALiBi of MPT).
"""

from __future__ import annotations

from typing import Literal

from training.errors import ModelError

SamplingPath = Literal["fast", "plain"]

_FAST = """
afmoe apertus arcee axk1 biogpt bitnet bloom codegen cohere cohere2 cohere2_moe cwm deepseek_v2 deepseek_v3
diffllama dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe flex_olmo gemma gemma2 gemma3 gemma3_text gemma3n_text
gemma4 gemma4_text gemma4_unified gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite gpt2 gpt_bigcode gpt_neox
gpt_oss gptj granite granite_swa granitemoe granitemoe_swa granitemoeshared helium hrm_text hunyuan_v1_dense
hunyuan_v1_moe hy_v3 hyperclovax jais2 jetmoe laguna llama mellum mimo_v2_flash minicpm3 minimax_m2
ministral ministral3 mistral mixtral nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi
phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma xglm youtu
"""
_PLAIN = """
bamba falcon_h1 gpt_neo granitemoehybrid jamba lfm2 lfm2_moe llama4 llama4_text mpt nemotron_h olmo_hybrid qwen3_5
qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_next zamba2 zaya
"""
_PATHS: dict[str, SamplingPath] = {
    **dict.fromkeys(_FAST.split(), "fast"),
    **dict.fromkeys(_PLAIN.split(), "plain"),
}


def sampling_path(model_type: str) -> SamplingPath | None:
    """How models of a family are sampled; ``None`` if they cannot be sampled right."""
    return _PATHS.get(model_type)


def sampled_families() -> list[str]:
    """All model types that can be sampled."""
    return list(_PATHS)


def known_path(model_type: str) -> SamplingPath:
    """``sampling_path``. Raises ``ModelError`` that names a family which cannot be sampled."""
    path = sampling_path(model_type)
    if path is None:
        raise ModelError(
            f"Models of the family {model_type} cannot be sampled correctly: the sampler's log-probabilities are not "
            "shown to equal those of a training forward.",
            hint="Choose a model of another family, such as qwen3, qwen3_5, llama, mistral or gpt_oss.",
        )
    return path
