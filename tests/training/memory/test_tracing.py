"""What a step keeps in memory, against counts by hand and against a real forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM

from training.errors import ModelError
from training.memory.tracing import How, Precision, Shape, _any_most, _at, _cut, row_cost, step_bytes

HIDDEN, INNER, LAYERS, HEADS, KEY_HEADS, WORDS = 64, 160, 6, 4, 2, 500
FULL = Precision(torch.float32)
MIXED = Precision(torch.float32, torch.bfloat16)


def _config(family: str = "qwen3", **more: Any) -> Any:
    return AutoConfig.for_model(
        family,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=HIDDEN // HEADS,
        vocab_size=WORDS,
        **more,
    )


def test_with_checkpointing_a_layer_keeps_its_input_and_nothing_else() -> None:
    found = step_bytes(_config(), Shape(3, 40, 60), FULL, How(recompute=True))
    assert found.layers == LAYERS * 3 * 100 * HIDDEN * 4


def test_a_row_in_flight_keeps_keys_and_values_of_each_layer() -> None:
    column = LAYERS * 2 * KEY_HEADS * (HIDDEN // HEADS)
    assert row_cost(_config(), FULL) == (column * 4, 0)
    assert row_cost(_config(), MIXED) == (column * 2, 0)


def test_rows_and_length_count_in_proportion_and_depth_is_extrapolated() -> None:
    once = step_bytes(_config(), Shape(2, 20, 108), FULL)
    assert step_bytes(_config(), Shape(4, 20, 108), FULL).layers == pytest.approx(2 * once.layers, rel=0.02)
    assert step_bytes(_config(), Shape(2, 40, 216), FULL).layers == pytest.approx(2 * once.layers, rel=0.1)
    deep = _config()
    deep.num_hidden_layers, deep.layer_types = 3 * LAYERS, ["full_attention"] * 3 * LAYERS
    assert step_bytes(deep, Shape(2, 20, 108), FULL).layers == pytest.approx(3 * once.layers, rel=0.02)


@pytest.mark.parametrize("family", ["qwen3", "llama", "mistral", "gemma3_text"])
def test_it_is_what_a_real_forward_saves(family: str) -> None:
    """Autograd's own list of what it keeps, of a model with weights, is the ground."""
    config, shape = _config(family), Shape(2, 10, 190)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    mask = torch.ones(2, 200, dtype=torch.long)
    mask[0, 0] = 0  # as in nearly every batch
    ids = torch.zeros_like(mask)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    computed = step_bytes(config, shape, FULL)
    assert hidden.shape == (2, 200, HIDDEN)
    assert computed.layers == pytest.approx(sum(saved.values()), rel=0.12)


def test_an_adapter_and_mixed_precision_are_seen() -> None:
    shape = Shape(2, 20, 108)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    plain = step_bytes(_config(), shape, FULL)
    assert step_bytes(_config(), shape, MIXED).layers < plain.layers
    adapted = step_bytes(_config(), shape, FULL, How(lora))
    assert adapted.layers != plain.layers and adapted.head < plain.head, "a frozen head has no gradient of its own"


@pytest.mark.parametrize("lora", [None, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")])
def test_on_a_gpu_a_tile_of_the_head_is_there_once(lora: Any) -> None:
    """4,096 tokens by 32,768 words in bfloat16, and no copy in float32; what the layers keep is the same."""
    config, shape = _config(), Shape(1, 20, 4076)
    config.vocab_size = words = 24000
    found = step_bytes(config, shape, MIXED, How(lora, on_gpu=True))
    tile, cast, hidden = 4096 * 32768 * 2, words * HIDDEN * 2, 4096 * HIDDEN * 4
    gradient = words * HIDDEN * 4 if lora is None else 0
    assert tile + cast < found.head < tile + cast + gradient + 8 * hidden
    assert found.layers == step_bytes(config, shape, MIXED, How(lora)).layers
    assert step_bytes(config, shape, MIXED, How(lora)).head > tile + 3 * 4096 * words * 4


@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_many_rows_are_shown_what_they_need(on_gpu: bool) -> None:
    """A line through few rows, at which the head's tile is the most, was 24 GiB short for ToolBench's 32."""
    config, how = _config(), How(recompute=True, on_gpu=on_gpu)
    config.vocab_size, config.intermediate_size = 24000, 4096
    whole = max(sum(moment) for moment in _at(config, Shape(64, 2048, 2048), MIXED, how))
    assert step_bytes(config, Shape(64, 2048, 2048), MIXED, how).whole == pytest.approx(whole, rel=0.01)


EXPERTS = {
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("precision", [FULL, MIXED])
def test_mixtures_of_experts_are_traced_in_any_precision(family: str, precision: Precision) -> None:
    config = _config(family, **EXPERTS[family])
    shape = Shape(2, 20, 108)
    assert step_bytes(config, shape, precision).layers > 2 * 128 * LAYERS * HIDDEN * 2
    assert row_cost(config, precision).column == LAYERS * 2 * KEY_HEADS * (HIDDEN // HEADS) * (
        2 if precision.autocast else 4
    )


def test_layers_without_keys_have_a_state_of_their_own() -> None:
    config = _config("qwen3_5_text")
    found = row_cost(config, FULL)
    attention = sum(kind == "full_attention" for kind in config.layer_types)
    assert 0 < attention < LAYERS
    assert found.column == attention * 2 * KEY_HEADS * (HIDDEN // HEADS) * 4 and found.state > 0


def test_what_cannot_be_traced_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any) -> int:
        raise NotImplementedError("data-dependent")

    monkeypatch.setattr("training.memory.tracing._most", refuse)
    with pytest.raises(ModelError, match="cannot be told beforehand: NotImplementedError: data-dependent"):
        step_bytes(_config(), Shape(1, 1, 1), FULL)


@pytest.mark.parametrize("recompute", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_deep_model_is_shown_what_its_own_depth_needs(recompute: bool) -> None:
    """At 4 layers the most is the layer that is computed again, at 56 the end of the forward, where autocast holds a
    copy of every weight: a line through the most of 2 and 4 layers was up to 10 GiB short for 7B."""
    config, shape = _config("llama"), Shape(1, 100, 100)
    config.num_hidden_layers = 56
    full = _any_most(config, shape, MIXED, How(recompute=recompute))
    assert step_bytes(config, shape, MIXED, How(recompute=recompute)).whole == pytest.approx(max(full), rel=0.01)
    if recompute:
        two, four = (max(_any_most(_cut(config, layers), shape, MIXED, How(recompute=True))) for layers in (2, 4))
        assert four + (four - two) * 26 < 0.9 * max(full), "the kink is there"
