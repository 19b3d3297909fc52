"""The table of each of several devices, by value: shards, the unit at work, logits, the sampler, and the verdict."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from training.__main__ import main
from training.config import JobConfig
from training.memory.advice import as_json, judge
from training.memory.devices import GIB, PROGRAM, Need, Weight, device_named
from training.memory.sharded import bytes_of, sampler_on_cpu, sliced, units_of
from training.memory.table import Model, longest_shape, memory_of

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 4001, "head_dim": 32}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4}
LAYER = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256 + 2 * 32
WORDS = 4001 * 256


@cache
def model(*, tied: bool = True) -> Model:
    return Model(AutoConfig.for_model("qwen3", **SHAPE, **HEADS, tie_word_embeddings=tied))


def job(devices: int = 2, **groups: Any) -> JobConfig:
    given: dict[str, Any] = {
        "model": {"source": "x"},
        "data": {"train": "x"},
        "rollout": {
            "engine": "vllm",
            "prompts_per_step": 6,
            "num_generations": 4,
            "max_prompt_tokens": 100,
            "max_completion_tokens": 412,
        },
        "optim": {"micro_batch_size": 3},
        "hardware": {"devices": devices, "backend": "verl"},
    }
    for name, group in groups.items():
        given[name] = given.get(name, {}) | group
    return JobConfig.model_validate(given)


def need(config: JobConfig, device: str = "h100", *, tied: bool = True) -> Need:
    return memory_of(config, model(tied=tied), device_named(device))


def terms(config: JobConfig, device: str = "h100", *, tied: bool = True) -> dict[str, int]:
    return {term.key: term.bytes for term in need(config, device, tied=tied).terms}


def test_a_tensor_is_divided_by_its_rows_rounded_up() -> None:
    weights = [Weight((5, 3)), Weight((4,), 2), Weight((1, 8))]
    assert [each.shape for each in sliced(weights, 2)] == [(3, 3), (2,), (1, 8)]
    assert [each.shape for each in sliced(weights, 4)] == [(2, 3), (1,), (1, 8)]
    assert sliced(weights, 1) == weights
    assert bytes_of(sliced(weights, 2)) == 4 * 9 + 2 * 2 + 4 * 8


@pytest.mark.parametrize(
    ("tied", "units", "rest"),
    [
        (True, (LAYER,) * 4, WORDS + 256),
        (False, (WORDS, *(LAYER,) * 4, WORDS), 256),
    ],
)
def test_units_are_what_verl_wraps(tied: bool, units: tuple[int, ...], rest: int) -> None:
    """One table of embeddings for both ends belongs to no unit of its own."""
    found = units_of(model(tied=tied).config)
    assert (found.own, found.rest) == (units, rest)
    assert found.largest == WORDS + (256 if tied else 0)
    assert found.at_once == (2 * LAYER + WORDS + 256 if tied else WORDS + LAYER + 256)


def test_what_stays_is_divided_by_all_devices() -> None:
    rows = {devices: 4 * LAYER // devices + 256 // devices + -(-4001 // devices) * 256 for devices in (1, 2, 4)}
    for devices in (1, 2, 4):
        found = terms(job(devices))
        assert found["weights"] == found["gradients"] == 4 * rows[devices], devices
        assert found["optimizer"] == 8 * rows[devices]
    hosts = terms(job(2, hardware={"hosts": 2}))
    assert hosts["weights"] == 4 * rows[4]


def test_the_unit_at_work_is_whole() -> None:
    found = terms(job())
    assert found["gathered"] == 2 * (2 * LAYER + WORDS + 256), "as computed: bfloat16"
    assert found["reduced"] == (2 + 4) * (WORDS + 256), "the largest is what no unit has"
    found = terms(job(), tied=False)
    assert (found["gathered"], found["reduced"]) == (2 * (WORDS + LAYER + 256), 6 * WORDS)


def test_an_adapter_alone_is_trained() -> None:
    whole, found = terms(job()), terms(job(model={"lora_rank": 8}))
    values = 4 * (8 * (256 + 256) * 2 + 8 * (256 + 128) * 2 + 8 * (256 + 512) * 3)
    assert found["lora"] == found["gradients"] == 4 * values // 2 and found["optimizer"] == 8 * values // 2
    assert found["weights"] == whole["weights"] // 2, "the base is in bfloat16"
    assert "reduced" not in found and "lora" not in whole


def test_a_reference_is_in_the_processors_memory() -> None:
    assert terms(job(grpo={"beta": 0.1}))["reference"] == 0
    assert "reference" not in terms(job())
    assert "reference" not in terms(job(grpo={"beta": 0.1}, model={"lora_rank": 8}))


@pytest.mark.parametrize(
    ("groups", "copies"),
    [
        ({}, 3),
        ({"rollout": {"temperature": 0.7}}, 4),
        ({"grpo": {"entropy_coef": 0.1}}, 5),
        ({"grpo": {"num_iterations": 2}}, 5),
        ({"grpo": {"entropy_coef": 0.1}, "rollout": {"temperature": 0.7}}, 6),
    ],
)
def test_logits_of_every_token_at_once(groups: dict[str, Any], copies: int) -> None:
    assert terms(job(**groups))["logits"] == copies * 2 * (3 * 512) * 4001
    assert (
        terms(job(rollout=groups.get("rollout", {}) | {"engine": "in_process"}, grpo=groups.get("grpo", {})), "cpu")[
            "logits"
        ]
        == copies * 4 * (3 * 512) * 4001
    )


def test_a_micro_batch_is_of_one_device() -> None:
    assert longest_shape(job()).rows == 3
    assert longest_shape(job(optim={"micro_batch_size": 0})).rows == 12, "of 24 on two devices"
    assert longest_shape(job(4, optim={"micro_batch_size": 0})).rows == 6
    assert longest_shape(job(optim={"micro_batch_size": 0, "mini_batch_size": 8})).rows == 4
    limited = {"micro_batch_size": 0, "max_tokens_per_micro_batch": 5 * 512 + 511}
    assert longest_shape(job(optim=limited)).rows == 5
    many = {"prompts_per_step": 64}
    assert longest_shape(job(optim={"micro_batch_size": 0}, rollout=many)).rows == 32, "verl's 16,384 tokens"


def test_the_sampler_sleeps_while_the_model_learns() -> None:
    config = job(vllm={"gpu_memory_share": 0.5, "sleep": False})
    found, table = need(config), terms(config)
    assert table["vllm"] == PROGRAM["cuda"] and table["vllm_awake"] == found.device.bytes // 2
    assert (
        found.learning
        + table["vllm_awake"]
        - found.bytes_of("gradients", "activations", "head", "logits", "gathered", "reduced")
        == found.sampling
    )
    two = terms(job(vllm={"gpu_memory_share": 0.01, "tensor_parallel": 2}), "t=0.05")
    one = terms(job(vllm={"gpu_memory_share": 0.01}), "t=0.05")
    assert one["vllm_awake"] == pytest.approx(2 * two["vllm_awake"], rel=1e-3), "its weights are divided, too"


def test_processes_on_a_processor_share_its_memory() -> None:
    config = job(rollout={"engine": "in_process"})
    found, whole = need(config, "cpu"), device_named("cpu").bytes
    assert found.device.bytes == whole // 2 and found.devices == 2
    table = {term.key: term for term in found.terms}
    assert table["sampler"].bytes == 4 * model().parameters + PROGRAM["cpu"] and table["sampler"].part == "kept"
    assert table["cache"].bytes == 12 * (table["cache"].bytes - table["cache"].spare), "each has half of the rollouts"
    assert "vllm" not in table and table["holes"].bytes > 0


def test_a_device_that_only_trains_has_no_sampler() -> None:
    """A micro batch is of those that train; the verdict is of one that samples where that lacks memory."""
    apart = {"sampler_devices": 2, "devices": 3, "hosts": 2}
    alone, shared = need(job(hardware=apart)), need(job(hardware={"devices": 3, "hosts": 2}))
    assert {term.key for term in alone.terms} == {term.key for term in shared.terms} - {"vllm", "vllm_awake"}
    assert alone.devices == 6 and alone.bytes_of("weights") == shared.bytes_of("weights")
    assert longest_shape(job(optim={"micro_batch_size": 0}, hardware=apart)).rows == 4, "of 24 on six devices"
    large = job(
        hardware=apart, model={"lora_rank": 1}, vllm={"gpu_memory_share": 0.95}, rollout={"prompts_per_step": 30}
    )
    short = need(large, f"x={(need(large).whole + 2**20) / GIB}")
    assert [term.key for term in short.terms] == ["vllm", "program"] and short.devices == 4
    assert not short.fits


def test_processes_that_only_train_share_a_processor_with_those_that_sample() -> None:
    config = job(hardware={"devices": 1, "sampler_devices": 2}, rollout={"engine": "in_process"})
    found, whole = need(config, "cpu"), device_named("cpu").bytes
    assert found.device.bytes == whole // 3 and found.devices == 1
    assert {"sampler", "cache"}.isdisjoint(term.key for term in found.terms)
    cache = {term.key: term for term in sampler_on_cpu(config, model())}["cache"]
    assert cache.bytes == 12 * (cache.bytes - cache.spare), "each sampler has half of the rollouts"


def test_a_verdict_is_of_each_device_and_says_how_far_it_was_checked() -> None:
    found = judge(job(8), model(), device_named("h100"))
    assert found.fits and str(found.sentence).endswith("of the 79.6 GiB of each of 8 × NVIDIA H100 80 GB.")
    assert str(found.note).startswith("Weights, gradients and optimiser are counted as verl divides them; all else")
    answer = json.loads(as_json(found))
    assert answer["devices"] == 8 and answer["note"]["template"] == str(found.note)
    alone = judge(job(1, hardware={"backend": "trl"}), model(), device_named("h100"))
    assert not alone.note and "each of" not in alone.sentence and json.loads(as_json(alone))["devices"] == 1


def test_the_smallest_change_is_one_that_verl_takes() -> None:
    """Fewer tokens where micro batches are limited by them, and neither 4 bits nor a sampler that sleeps."""
    long: dict[str, Any] = {"rollout": {"max_completion_tokens": 3996}, "vllm": {"gpu_memory_share": 0.05}}
    device = device_named(f"x={need(job(**long, optim={'micro_batch_size': 1})).learning * 1.05 / GIB}")
    shy = judge(job(**long), model(), device)
    assert shy.change is not None and shy.change.values == {"optim.micro_batch_size": 1}
    tokens = judge(job(**long, optim={"micro_batch_size": 0}), model(), device)
    assert tokens.change is not None and tokens.change.values == {"optim.max_tokens_per_micro_batch": 4096}
    never = judge(job(), model(), device_named("x=0.01"))
    assert never.change is None and not never.fits


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text("kind: grpo\nmodel: {source: Qwen/Qwen3-0.6B}\nhardware: {devices: 2}\n")
    assert main(["memory", str(tmp_path / "job.yaml"), "--device", "h100"]) == 0
    text = capsys.readouterr().out
    assert "Gathered weights" in text and "of each of 2 × NVIDIA H100 80 GB" in text and "not measured on GPUs" in text
