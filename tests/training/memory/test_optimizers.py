"""What each optimiser keeps, by hand."""

from __future__ import annotations

import pytest
import torch

from tests.training.helpers import job_config
from training.memory.devices import Weight, device_named, kept_by
from training.memory.table import Model, memory_of
from training.memory.tracing import Precision
from training.policy.adapter import lora_config
from training.starter import starter_config

TABLE, MATRIX, VECTOR = Weight((1000, 64), 4, embedding=True), Weight((128, 64)), Weight((64,))
WEIGHTS = [TABLE, MATRIX, VECTOR]
COUNT = 64_000 + 8_192 + 64


@pytest.mark.parametrize(
    ("name", "here", "elsewhere"),
    [
        ("adamw", 8 * COUNT, 0),
        ("adamw_bf16", 4 * COUNT, 0),
        ("adamw_offload", 8 * 64_000, 8 * COUNT),
        ("adamw_8bit", 8 * 64_000 + 2 * (8_192 + 4 * 32) + 8 * 64, 0),
        ("paged_adamw", 0, 8 * COUNT),
        ("paged_adamw_8bit", 0, 8 * 64_000 + 2 * (8_192 + 4 * 32) + 8 * 64),
        ("adafactor", 4 * (1064 + 192 + 64), 0),
    ],
)
def test_bytes_of_each(name: str, here: int, elsewhere: int) -> None:
    found = kept_by(name, WEIGHTS, on_gpu=True)
    assert (found.here, found.elsewhere) == (here, elsewhere)


def test_on_a_processor_nothing_is_elsewhere_and_adamw_keeps_the_weights_precision() -> None:
    assert kept_by("adamw_offload", WEIGHTS, on_gpu=False)[:2] == (8 * COUNT, 0)
    assert kept_by("adamw", [Weight((10, 10), 2)], on_gpu=True).here == 400
    assert kept_by("adamw_8bit", [Weight((4096,))], on_gpu=True).here == 2 * (4096 + 64)
    assert kept_by("adamw_8bit", [Weight((4097,))], on_gpu=True).here == 2 * (4097 + 4 * 17)
    assert kept_by("adamw_8bit", [Weight((4095,))], on_gpu=True).here == 8 * 4095


def test_the_table_has_it_for_all_weights_and_for_an_adapter() -> None:
    model, gpu = Model(starter_config()), device_named("t4")
    assert sum(w.size for w in model.trained(Precision(torch.float32), None)) == model.parameters
    assert [w.shape[0] for w in model.trained(Precision(torch.float32), None) if w.embedding]
    whole = {
        name: memory_of(job_config(optim={"optimizer": name}), model, gpu).bytes_of("optimizer")
        for name in ("adamw", "adamw_bf16", "adafactor")
    }
    assert whole["adamw"] == 8 * model.parameters == 2 * whole["adamw_bf16"]
    assert 0 < whole["adafactor"] < 0.05 * whole["adamw"]
    config = job_config(model={"lora_rank": 4}, optim={"optimizer": "adamw_bf16"})
    adapter = model.adapter(lora_config(config))
    assert memory_of(config, model, gpu).bytes_of("optimizer") == 4 * adapter


def test_what_is_kept_is_what_the_optimisers_keep() -> None:
    """The real ones, over the same tensors."""
    from transformers.optimization import Adafactor

    from training.algorithms.updates import SmallAdamW

    tensors = [torch.nn.Parameter(torch.randn(weight.shape)) for weight in WEIGHTS]
    settings = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
    made = {
        "adamw": torch.optim.AdamW(tensors, **settings),
        "adamw_bf16": SmallAdamW(tensors, **settings, dtype=torch.bfloat16),
        "adafactor": Adafactor(tensors, lr=1e-3, scale_parameter=False, relative_step=False),
    }
    for name, optimizer in made.items():
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        assert sum(each.nbytes for each in states if each.ndim) == kept_by(name, WEIGHTS, on_gpu=True).here, name
