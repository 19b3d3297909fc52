"""Every family that is accepted is sampled right: what the sampler says of its tokens, a training forward says too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.helpers import job_config
from tests.training.policy.families import FAMILIES, ROWS, TURNS, WINDOW, gaps, played, tiny_model
from training.errors import ModelError
from training.policy.engine import Engine
from training.policy.make import make_engine

PLAIN = {"qwen3_5_text", "qwen3_5 as published", "qwen3_next", "lfm2"}


def engine_of(model: Any, autocast: torch.dtype | None = None, log: Any = print) -> Engine:
    return make_engine(job_config(), model, {2}, autocast=autocast, log=log)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sampler_agrees_with_a_training_forward_to_1e_4_nats(family: str) -> None:
    """Windows were counted in cache columns, gaps between turns included (0.1 to 0.7 nats); linear attention and
    convolutions could not be sampled at all.
    """
    model, notes = tiny_model(family), []
    engine = engine_of(model, log=notes.append)
    try:
        turns = played(engine)
    finally:
        engine.close()
    assert len(turns) == ROWS * TURNS and max(len(prompt) for prompt, _ in turns) > 3 * WINDOW
    assert max(gaps(model, turns)) <= 1e-4
    assert len(notes) == (family in PLAIN)


@pytest.mark.parametrize("family", ["mistral with a window", "qwen3_5_text"])
def test_in_bfloat16_the_cache_is_kept_in_bfloat16_and_the_gap_is_noise(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast rotary embeddings give float32 keys: the cache was twice as large as what attention reads."""
    from training.policy import attention

    kept: set[torch.dtype] = set()
    feed = attention.DecodeBatch._feed

    def watched(self: Any, *args: Any) -> None:
        feed(self, *args)
        kept.update(layer.keys.dtype for layer in self.layers if getattr(layer, "keys", None) is not None)

    monkeypatch.setattr(attention.DecodeBatch, "_feed", watched)
    model = tiny_model(family)
    engine = engine_of(model, torch.bfloat16)
    try:
        found = gaps(model, played(engine), torch.bfloat16)
    finally:
        engine.close()
    assert kept == {torch.bfloat16}
    assert sum(found) / len(found) < 0.05 and max(found) < 1.0


def test_a_family_that_cannot_be_sampled_right_is_refused_by_name() -> None:
    model = tiny_model("qwen2")
    model.config.model_type = "mamba"
    with pytest.raises(ModelError, match="family mamba cannot be sampled correctly") as refused:
        engine_of(model)
    assert "qwen3" in refused.value.hint
