"""QLoRA: a base of 4 bits below an adapter; what it cannot do is refused by name. test_gpu.py trains with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from training.algorithms import loading, saving
from training.config import JobConfig
from training.errors import ConfigError
from training.memory.devices import device_named
from training.memory.table import Model, memory_of
from training.words import complaint_of, option_of


def config(**groups: Any) -> JobConfig:
    groups["model"] = {"lora_rank": 4, "quantization": "nf4"} | groups.get("model", {})
    return JobConfig.model_validate(groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"model": {"lora_rank": 0}}, "set a LoRA rank"),
        ({"run": {"device": "cpu"}}, "need a CUDA GPU"),
        (
            {"rollout": {"engine": "vllm"}, "grpo": {"sampler_correction": "off"}},
            "turn grpo.sampler_correction on",
        ),
    ],
)
def test_what_a_base_of_4_bits_cannot_do_is_refused_at_its_option(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as found:
        config(**groups)
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == "model.quantization" and message in complaint_of(error)
    config(**groups | {"kind": "evaluate"})  # nothing is trained, so the base is not quantised


def test_a_machine_without_a_gpu_or_without_bitsandbytes_says_so(
    monkeypatch: pytest.MonkeyPatch, starter_folder: Path
) -> None:
    with pytest.raises(ConfigError, match="need a CUDA GPU, and there is none here") as found:
        loading.load_model(config(), starter_folder, "cpu")
    assert found.value.option == "model.quantization"
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs bitsandbytes, which is not installed") as found:
        loading.load_model(config(), starter_folder, "cuda")
    assert "pip install bitsandbytes==" in found.value.hint


def test_the_base_is_asked_for_in_nf4_with_constants_quantised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: object())
    asked = loading.four_bits("cuda")
    assert asked.load_in_4bit and asked.bnb_4bit_quant_type == "nf4" and asked.bnb_4bit_use_double_quant


def test_the_adapter_is_merged_into_the_base_as_it_was(
    tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged into 4 bits, and read back, small updates would be rounded away."""
    from types import SimpleNamespace

    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def adapted() -> Any:
        torch.manual_seed(1)
        whole = AutoModelForCausalLM.from_pretrained(starter_folder)
        model = get_peft_model(whole, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.02)
        return model

    expected = adapted().merge_and_unload().state_dict()
    model = adapted()
    with torch.no_grad():  # as 4 bits do to what they hold
        for name, weight in model.named_parameters():
            if "base_layer" in name:
                weight.copy_((weight * 8).round() / 8)
    monkeypatch.setattr(saving, "is_quantized", lambda given: True)
    accelerator = SimpleNamespace(unwrap_model=lambda given: given)
    tokenizer = AutoTokenizer.from_pretrained(starter_folder)
    trainer = SimpleNamespace(model=model, accelerator=accelerator, processing_class=tokenizer)
    folder, _size = saving.save_final(trainer, tmp_path, 3, base_folder=starter_folder)
    found = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert set(found) == set(expected)
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)


def test_its_weights_in_the_memory_table_are_those_of_qlora_s_paper() -> None:
    model = Model.of("Qwen/Qwen3-0.6B")
    assert model is not None
    # 28 layers of 1024: queries and output 2 × 1024 × 2048, keys and values 2 × 1024 × 1024, three of 1024 × 3072.
    layers = 28 * (2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072)
    assert model.in_layers == layers
    job = config(model={"source": "Qwen/Qwen3-0.6B"}, rollout={"max_prompt_tokens": 64, "max_completion_tokens": 96})
    plain = config(model={"source": "Qwen/Qwen3-0.6B", "quantization": "none"}, rollout=job.rollout.model_dump())
    quantized, whole = (memory_of(found, model, device_named("h100")).bytes_of("weights") for found in (job, plain))
    assert whole == 2 * model.parameters
    assert quantized == round(layers * (0.5 + 1 / 64 + 4 / 16384)) + 2 * (model.parameters - layers)
