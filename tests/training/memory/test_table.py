"""The table of a job by value, its verdict, and the command that prints it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from benchmarks.memory import ON_A_GPU, config_of
from training.__main__ import main
from training.config import JobConfig
from training.errors import ConfigError, ModelError
from training.memory.advice import halved, judge
from training.memory.devices import DEVICES, GIB, Device, device_named, gib
from training.memory.table import Model, longest_shape, memory_of, plainly_fits, precision_of

PUBLISHED = {
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
    "deepseek-ai/deepseek-llm-7b-chat": 6_910_365_696,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
}
SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 4000, "head_dim": 32}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's config without its weights."""
    AutoConfig.for_model("qwen3", **SMALL, **HEADS).save_pretrained(tmp_path)
    return tmp_path


def _job(source: Path | str, **changes: Any) -> JobConfig:
    data: dict[str, Any] = {
        "kind": "grpo",
        "model": {"source": str(source)},
        "rollout": {
            "prompts_per_step": 4,
            "num_generations": 4,
            "max_prompt_tokens": 100,
            "max_completion_tokens": 412,
        },
    }
    data["rollout"]["max_completion_tokens"] = 412
    for path, value in changes.items():
        group, name = path.split("__")
        data.setdefault(group, {})[name] = value
    return JobConfig.model_validate(data)


@cache
def _small() -> Model:
    """The model of ``folder``. One for all tests: it remembers what it has traced."""
    return Model(AutoConfig.for_model("qwen3", **SMALL, **HEADS))


def _terms(config: JobConfig, device: str = "h100") -> dict[str, int]:
    return {term.key: term.bytes for term in memory_of(config, _small(), device_named(device)).terms}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name: str) -> None:
    model = Model.of(name)
    assert model is not None and model.parameters == PUBLISHED[name]


def test_all_weights_have_gradients_moments_and_a_reference(folder: Path) -> None:
    layer = 256 * (8 + 4 + 4) * 32 + 8 * 32 * 256 + 3 * 256 * 512 + 2 * 256 + 2 * 32
    weights = 4000 * 256 + 4 * layer + 256
    found = _terms(_job(folder, grpo__beta=0.1))
    assert found["weights"] == found["gradients"] == found["reference"] == 4 * weights
    assert found["optimizer"] == 8 * weights
    assert found["copy"] == 2 * weights, "cast to bfloat16 for sampling"
    assert "reference" not in _terms(_job(folder))


def test_a_processor_keeps_holes_between_activations(folder: Path) -> None:
    model = _small()
    for rank, share in ((0, 0.4), (8, 0.9)):
        job = _job(folder, model__lora_rank=rank, optim__micro_batch_size=8)
        on_cpu, on_gpu = (memory_of(job, model, device_named(name)) for name in ("cpu", "h100"))
        terms = {term.key: term.bytes for term in on_cpu.terms}
        assert terms["holes"] == round(share * terms["activations"]) > 0
        learning = terms["gradients"] + terms["activations"] + terms["head"] + terms["holes"]
        assert on_cpu.learning == on_cpu.fixed + learning
        assert "holes" not in {term.key for term in on_gpu.terms}
    plain, again = (
        _terms(_job(folder, model__gradient_checkpointing=on, optim__micro_batch_size=8), "cpu") for on in (False, True)
    )
    assert plain["holes"] == round(0.4 * plain["activations"])
    assert again["holes"] == round(0.28 * plain["activations"]) > again["activations"]


def test_no_gradient_is_there_while_it_samples_and_only_one_rollout_is_needed(folder: Path) -> None:
    """7B with all weights was shown 28 GiB of gradients that are not there, LoRA the half of what is free."""
    model = _small()
    job = _job(folder, rollout__prompts_per_step=512, optim__micro_batch_size=8)
    need = memory_of(job, model, device_named("h100"))
    terms = {term.key: term.bytes for term in need.terms}
    kept = terms["weights"] + terms["optimizer"] + terms["program"]
    assert need.fixed == kept and need.sampling == kept + terms["copy"] + terms["cache"]
    column = 4 * 2 * 4 * 32 * 2
    (cache,) = (term for term in need.terms if term.key == "cache")
    assert cache.bytes == 2048 * 512 * column and cache.bytes - cache.spare == 512 * column
    assert need.whole == max(need.learning, kept + terms["copy"] + 512 * column)
    assert need.most == max(need.learning, need.sampling) > need.whole
    assert f"takes up to {gib(need.most)}" in str(judge(job, model, device_named("h100")).sentence)
    tight = Device("x", "Box", need.whole)
    assert memory_of(job, model, tight).fits and not memory_of(job, model, Device("x", "Box", need.whole - 1)).fits


def test_an_adapter_alone_has_gradients(folder: Path) -> None:
    found = _terms(_job(folder, model__lora_rank=8, grpo__beta=0.1))
    per_layer = 8 * ((256 + 256) + 2 * (256 + 128) + (256 + 256) + 2 * (256 + 512) + (512 + 256))
    assert found["lora"] == found["gradients"] == 4 * 4 * per_layer
    assert found["optimizer"] == 2 * found["lora"]
    assert "reference" not in found, "the adapter is switched off instead"


def test_the_cache_is_of_all_that_may_be_in_flight_or_as_many_as_fit(folder: Path) -> None:
    column = 4 * 2 * 4 * 32 * 2
    assert _terms(_job(folder))["cache"] == 16 * 512 * column
    config = _job(folder, rollout__prompts_per_step=4096, rollout__max_completion_tokens=32668)
    need = memory_of(config, _small(), Device("x", "Box", 4 * GIB))
    term = next(term for term in need.terms if term.key == "cache")
    assert 0 < term.bytes <= 2 * GIB and "of 16384 rollouts of 32,768 tokens at once" in term.why


def test_a_run_that_trains_nothing_has_weights_and_cache(folder: Path) -> None:
    config = _job(folder).model_copy(update={"kind": "evaluate"})
    assert set(_terms(config)) == {"weights", "cache", "copy", "program"}


def test_the_longest_micro_batch() -> None:
    assert longest_shape(_job("starter")) == (16, 100, 412)
    assert longest_shape(_job("starter", optim__micro_batch_size=2)) == (2, 100, 412)
    assert longest_shape(_job("starter", optim__mini_batch_size=8)) == (8, 100, 412)
    assert longest_shape(_job("starter", optim__max_tokens_per_micro_batch=4 * 512)) == (4, 100, 412)
    assert longest_shape(_job("starter", optim__max_tokens_per_micro_batch=4 * 512 - 1)) == (3, 100, 412)
    assert longest_shape(_job("starter", optim__max_tokens_per_micro_batch=100)) == (1, 100, 412)
    assert longest_shape(_job("starter", optim__max_tokens_per_micro_batch=1 << 20)) == (16, 100, 412)
    assert halved(_job("starter", optim__max_tokens_per_micro_batch=4 * 512)) == (
        "optim.max_tokens_per_micro_batch: 1024"
    )
    sft = JobConfig.model_validate({"kind": "sft", "sft": {"batch_size": 12, "max_length": 300}})
    assert longest_shape(sft) == (12, 0, 300)


def test_pairs_are_two_rows_and_keep_a_reference(folder: Path) -> None:
    dpo = JobConfig.model_validate(
        {"kind": "dpo", "model": {"source": str(folder)}, "dpo": {"batch_size": 6, "max_length": 200}}
    )
    assert longest_shape(dpo) == (12, 0, 200)
    found = _terms(dpo)
    assert found["reference"] == found["weights"] and "cache" not in found
    dpo.model.lora_rank = 8
    assert "reference" not in _terms(dpo)


def test_rloo_keeps_a_reference_for_its_own_pull(folder: Path) -> None:
    config = _job(folder).model_copy(update={"kind": "rloo"})
    config.grpo.beta, config.rloo.beta = 0.0, 0.05
    assert "reference" in _terms(config)
    config.grpo.beta, config.rloo.beta = 0.1, 0.0
    assert "reference" not in _terms(config)


def test_a_value_head_is_small_and_values_are_of_all_rollouts(folder: Path) -> None:
    config = _job(folder).model_copy(update={"kind": "ppo"})
    plain, found = _terms(_job(folder)), _terms(config)
    assert found["values"] == 4 * 4 * (256 + 1) + 3 * 4 * 16 * 412
    assert {key: found[key] for key in plain if key not in ("activations", "head")} == {
        key: plain[key] for key in plain if key not in ("activations", "head")
    }
    before, after = (terms["activations"] + terms["head"] for terms in (plain, found))
    assert before <= after <= before + 2 * 4 * 16 * 512 * 256, "at most the hidden states in float32, twice"
    config.ppo.beta = 0.05
    assert "reference" in _terms(config)


def test_vllm_keeps_its_share_for_the_whole_run(folder: Path) -> None:
    managed = _job(folder, rollout__engine="vllm", vllm__gpu_memory_share=0.3)
    found = _terms(managed)
    assert found["vllm"] == round(0.3 * device_named("h100").bytes) and not {"cache", "copy"} & set(found)
    elsewhere = _job(folder, rollout__engine="vllm", vllm__mode="server", vllm__urls=["http://127.0.0.1:8000"])
    assert not {"vllm", "cache", "copy"} & set(_terms(elsewhere))


def test_precision_is_chosen_as_the_trainer_does(folder: Path) -> None:
    names = [
        [str(found).removeprefix("torch.") for found in precision_of(_job(folder, **changes), device_named(device))]
        for device, changes in (
            ("h100", {}),
            ("h100", {"model__lora_rank": 8}),
            ("t4", {"model__lora_rank": 8}),
            ("Tesla T4=15.0@7.5", {"model__lora_rank": 8}),
            ("NVIDIA L4=22.5@8.9", {"model__lora_rank": 8}),
            ("NVIDIA B200=178.4@10.0", {"model__lora_rank": 8}),
            ("cpu", {"model__dtype": "bfloat16"}),
        )
    ]
    able, unable = ["bfloat16", "bfloat16"], ["float32", "None"]
    assert names == [["float32", "bfloat16"], able, unable, unable, able, able, ["bfloat16", "None"]]


@pytest.mark.slow
def test_the_smallest_change_that_fits_is_named(folder: Path) -> None:
    model = Model.of("Qwen/Qwen3-0.6B")
    assert model is not None
    big = {"rollout__max_prompt_tokens": 1024, "rollout__max_completion_tokens": 1024}
    roomy = judge(_job("Qwen/Qwen3-0.6B", **big), model, device_named("h200"))
    assert roomy.fits and roomy.hint == ""
    verdict = judge(_job("Qwen/Qwen3-0.6B", **big), model, device_named("a100-40"))
    assert not verdict.fits and verdict.change is not None
    assert set(verdict.change.values) == {"optim.micro_batch_size"} and verdict.change.need.fits
    assert f"optim.micro_batch_size: {verdict.change.values['optim.micro_batch_size']}" in verdict.hint
    small = judge(_job("Qwen/Qwen3-0.6B", **big), model, device_named("t4"))
    assert small.change is not None and "model.gradient_checkpointing" in small.change.values
    whole = Model.of("Qwen/Qwen2.5-7B-Instruct")
    assert whole is not None
    adapted = judge(_job("Qwen/Qwen2.5-7B-Instruct", **big), whole, device_named("a100"))
    assert adapted.change is not None and adapted.change.values["model.lora_rank"] == 16
    quantised = judge(_job("Qwen/Qwen2.5-7B-Instruct", **big), whole, device_named("t4"))
    assert quantised.change is not None and quantised.change.values["model.quantization"] == "nf4"
    none = judge(_job("Qwen/Qwen2.5-7B-Instruct", **big), whole, device_named("Small box=5"))
    assert none.change is None and none.other is not None and none.other.bytes >= DEVICES["t4"].bytes
    assert none.other.title in none.hint


def test_a_tiny_model_is_not_traced_and_a_large_one_is(folder: Path) -> None:
    small, large = Model.of(str(folder)), Model.of("Qwen/Qwen3-8B")
    assert small is not None and large is not None
    assert plainly_fits(_job(folder), small, device_named("h100"))
    assert not plainly_fits(_job(folder), large, device_named("h100"))


def test_an_unknown_id_has_no_model_and_a_broken_config_is_a_sentence(tmp_path: Path) -> None:
    assert Model.of("somebody/something") is None
    (tmp_path / "config.json").write_text('{"model_type": "nothing-of-the-kind"}')
    with pytest.raises(ModelError, match="config cannot be read"):
        Model.of(str(tmp_path))
    with pytest.raises(ConfigError, match="no device abacus"):
        device_named("abacus")
    for key in ("=12.5", "Our box=", "Our box=12.5.1", "Our box=12@", "Our box=12@x"):
        with pytest.raises(ConfigError, match="no device"):
            device_named(key)
    boxes = [device_named(key) for key in ("Our box=12.5", "Our box=12.5@7.0", "Our box=12.5@12.0")]
    assert {(box.title, box.bytes) for box in boxes} == {("Our box", round(12.5 * GIB))}
    assert [box.computes_bf16 for box in boxes] == [True, False, True]


def test_the_command_prints_terms_and_verdict(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json.yaml"
    sizes = "{prompts_per_step: 1, num_generations: 2}"  # little to halve: each smaller job is traced
    job.write_text(f"kind: grpo\nmodel: {{source: {folder}}}\nrollout: {sizes}\n")
    assert main(["memory", str(job), "--device", "h100"]) == 0
    shown = capsys.readouterr().out
    assert "Weights" in shown and "It needs about" in shown and "NVIDIA H100 80 GB" in shown
    assert main(["memory", str(job), "--device", "Matchbox=0.001", "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["fits"] is False and output["device"] == {"title": "Matchbox", "bytes": round(0.001 * GIB)}
    parts = {term["term"]: term["part"] for term in output["terms"]}
    assert (parts["weights"], parts["optimizer"]) == ("kept", "kept")
    assert (parts["gradients"], parts["head"], parts["cache"]) == ("learning", "learning", "sampling")
    assert (parts["activations"], parts["cache"], parts["program"]) == ("learning", "sampling", "kept")
    assert output["told"]["verdict"]["template"] == "It needs about {need}, and {device} has {all}."
    weights = next(term for term in output["terms"] if term["term"] == "weights")
    assert (weights["title"], weights["told"]["values"]["size"]) == ("Weights of the model", 4)
    assert output["change"] is None and output["changed"] is None
    assert main(["memory", str(job), "--device", "abacus"]) == 2
    assert "There is no device abacus" in capsys.readouterr().err
    assert main(["memory", str(job), "--device", "abacus", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["boundary"]) == ("config_invalid", "config") and "no device abacus" in error["message"]


def test_the_starter_is_known_before_it_is_built() -> None:
    need = memory_of(JobConfig(), _starter(), device_named("a10"))
    terms = {term.key: term.bytes for term in need.terms}
    # 768 tokens × 128, tied; each of two layers: q 128 × 128, k and v 128 × 64, o 128 × 128, three of 128 × 384, two
    # norms of 128, two of a head of 32; one norm at the end.
    layer = 128 * 128 * 2 + 2 * 128 * 64 + 3 * 128 * 384 + 2 * 128 + 2 * 32
    assert terms["weights"] == 4 * (768 * 128 + 2 * layer + 128)


def _starter() -> Model:
    found = Model.of("starter")
    assert found is not None
    return found


def test_attention_that_is_written_out_keeps_the_scores_of_every_head(folder: Path) -> None:
    plain, out = (_terms(_job(folder, model__attention=how)) for how in ("auto", "eager"))
    scores = 16 * 8 * 512 * 512 * 4  # rows × heads × tokens², in float32 after the softmax
    assert out["activations"] - plain["activations"] >= 4 * scores, "of each of the four layers"
    assert _terms(_job(folder, model__attention="flash_attention_2")) == plain
    assert _terms(_job(folder, optim__packing=True)) == plain


ON_AN_H100: dict[str, tuple[str, dict[str, Any], int]] = {
    "all weights": ("qwen3, 0.6b", {"length": 1024}, 20822),
    "long": ("qwen3", {"length": 3072}, 7502),
    "long, computed again": ("qwen3", {"length": 3072, "recompute": True}, 2868),
    "an adapter": ("llama", {"length": 1024, "rank": 16}, 3814),
    "deep, few words": ("qwen2, deep", {"length": 1024}, 4012),
}
"""A shape of benchmarks/memory.py, how it learns, and the MiB that an H100 held at most in two steps of 8 rollouts, 4
in a micro batch (``--device cuda``, PyTorch 2.11, 2026-11-27)."""


@pytest.mark.parametrize("case", ON_AN_H100)
def test_the_table_of_a_gpu_is_right_to_15_percent(case: str, tmp_path: Path) -> None:
    shape, how, measured = ON_AN_H100[case]
    config_of(ON_A_GPU[shape]).save_pretrained(tmp_path)
    job = _job(
        tmp_path,
        model__lora_rank=how.get("rank", 0),
        model__gradient_checkpointing=how.get("recompute", False),
        rollout__prompts_per_step=2,
        rollout__max_prompt_tokens=16,
        rollout__max_completion_tokens=how["length"],
        optim__micro_batch_size=4,
    )
    model = Model.of(str(tmp_path))
    assert model is not None
    assert memory_of(job, model, DEVICES["h100"]).learning >> 20 == pytest.approx(measured, rel=0.15)
