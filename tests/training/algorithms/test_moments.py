"""Optimisers whose moments take less room: the same update, and runs that train with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import parameters_of
from tests.training.algorithms.test_resume import SFT, after_update, resumed_run
from tests.training.helpers import job_config, of_type
from training.algorithms import updates as updates_module
from training.algorithms.sft import run_sft
from training.algorithms.updates import SmallAdamW, optimizer_arguments, rounded_at_random
from training.errors import ConfigError

SETTINGS: dict[str, Any] = {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6}


def updated(optimizer: Any, weight: torch.nn.Parameter, updates: int = 20) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    for _ in range(updates):
        weight.grad = torch.randn(weight.shape, generator=draw)
        optimizer.step()
    return weight.detach().clone()


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_in_float32_it_is_adamw(offload: bool, decay: float) -> None:
    start = torch.randn(7, 5)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    made = SmallAdamW([ours], **SETTINGS, weight_decay=decay, offload=offload)
    found = updated(made, ours)
    wanted = updated(torch.optim.AdamW([theirs], **SETTINGS, weight_decay=decay), theirs)
    assert torch.allclose(found, wanted, atol=1e-6) and not torch.allclose(found, start, atol=1e-2)


def test_in_bfloat16_the_moments_are_and_the_way_is_nearly_the_same() -> None:
    start = torch.randn(64, 64)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    made = SmallAdamW([ours], **SETTINGS, dtype=torch.bfloat16)
    found, wanted = updated(made, ours), updated(torch.optim.AdamW([theirs], **SETTINGS, weight_decay=0.0), theirs)
    assert {made.state[ours][name].dtype for name in ("exp_avg", "exp_avg_sq")} == {torch.bfloat16}
    assert float((found - wanted).norm() / (wanted - start).norm()) < 0.02


def test_a_second_moment_of_bfloat16_keeps_moving() -> None:
    """A thousandth of it is less than half of bfloat16's step: rounded to the nearest it never moved."""
    weight = torch.nn.Parameter(torch.zeros(4096))
    made = SmallAdamW([weight], lr=0.0, betas=(0.9, 0.999), eps=1e-8, dtype=torch.bfloat16)
    made.state[weight] = {
        "step": 10_000,
        **{n: torch.ones(4096, dtype=torch.bfloat16) for n in ("exp_avg", "exp_avg_sq")},
    }
    torch.manual_seed(0)
    for _ in range(500):
        weight.grad = torch.zeros(4096)
        made.step()
    assert float(made.state[weight]["exp_avg_sq"].float().mean()) == pytest.approx(0.999**500, rel=0.02)


def test_rounding_at_random_keeps_the_mean_and_what_bfloat16_holds() -> None:
    torch.manual_seed(0)
    held = torch.tensor([0.0, 1.0, -2.5, 3e38, 1e-30]).to(torch.bfloat16).float()
    assert torch.equal(rounded_at_random(held).float(), held)
    between = torch.full((100_000,), 1 + 0.25 / 128)
    found = rounded_at_random(between).float()
    assert set(found.tolist()) == {1.0, 1 + 1 / 128} and float(found.mean()) == pytest.approx(1 + 0.25 / 128, abs=1e-4)


@pytest.mark.parametrize("name", ["adamw_bf16", "adamw_offload", "adafactor"])
def test_a_run_learns_with_it_and_continues_from_its_checkpoint(make_job: MakeJob, name: str) -> None:
    optim = {"learning_rate": 3e-3, "optimizer": name}
    if name != "adafactor":
        optim |= {"beta1": 0.85, "beta2": 0.99, "epsilon": 1e-7}
    run = {"max_steps": 8, "save_every": 4, "threads": 1}
    whole = make_job("whole", kind="sft", sft=SFT["sft"], optim=optim, run=run)
    run_sft(whole)
    losses = [event.values["loss"] for event in of_type(whole.run_dir, "metrics")]
    assert losses[-1] < 0.8 * losses[0]
    groups = torch.load(whole.run_dir / "checkpoint-4" / "optimizer.pt", weights_only=True)
    kept = {key: value.dtype for key, value in groups["state"][0].items() if torch.is_tensor(value) and value.ndim}
    wanted = {"adamw_bf16": torch.bfloat16, "adamw_offload": torch.float32, "adafactor": torch.float32}[name]
    assert set(kept.values()) == {wanted} and ("exp_avg" in kept) == (name != "adafactor")
    if name != "adafactor":
        assert groups["param_groups"][0]["betas"] == (0.85, 0.99) and groups["param_groups"][0]["eps"] == 1e-7
    again = make_job(
        "again", kind="sft", sft=SFT["sft"], optim=optim, run=run, resume_from=whole.run_dir / "checkpoint-4"
    )
    run_sft(again)
    first, second = parameters_of(whole.run_dir / "model"), parameters_of(again.run_dir / "model")
    assert all(torch.equal(first[each], second[each]) for each in first)


def test_grpo_with_moments_in_bfloat16_resumes_bitwise(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    optim = {"mini_batch_size": 4, "learning_rate": 3e-3, "optimizer": "adamw_bf16"}
    over = {"optim": optim, "run": {"max_steps": 8, "save_every": 4, "threads": 1}}
    resumed_run(make_job, monkeypatch, [after_update(6, "kill")], **over)


def test_betas_reach_the_usual_optimiser(make_job: MakeJob) -> None:
    optim = {"beta1": 0.7, "beta2": 0.9, "epsilon": 1e-5}
    job = make_job(kind="sft", sft=SFT["sft"], optim=optim, run={"max_steps": 1, "save_every": 1})
    run_sft(job)
    (group, *_rest) = torch.load(job.run_dir / "checkpoint-1" / "optimizer.pt", weights_only=True)["param_groups"]
    assert (group["betas"], group["eps"]) == ((0.7, 0.9), 1e-5)


@pytest.mark.parametrize("name", ["adamw_8bit", "paged_adamw", "paged_adamw_8bit"])
def test_what_is_bitsandbytes_is_refused_by_name_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=rf"optim\.optimizer.*{name} is bitsandbytes"):
        job_config(optim={"optimizer": name})
    config = job_config(optim={"optimizer": name}, run={"device": "auto"})
    with pytest.raises(ConfigError, match=f"{name} is bitsandbytes") as found:
        optimizer_arguments(config, "cpu")
    assert found.value.option == "optim.optimizer"
    monkeypatch.setattr(updates_module, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="not installed"):
        optimizer_arguments(config, "cuda")
    monkeypatch.setattr(updates_module, "find_spec", lambda _name: object())
    assert optimizer_arguments(config, "cuda")["optim"] == updates_module.OF_TRANSFORMERS[name]


@pytest.mark.parametrize("option", ["beta1", "beta2", "epsilon"])
def test_adafactor_has_no_betas(option: str) -> None:
    with pytest.raises(ValueError, match=rf"optim\.{option}.*Adafactor has neither"):
        job_config(optim={"optimizer": "adafactor", option: 0.5})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["adamw_8bit", "paged_adamw", "paged_adamw_8bit", "adamw_offload"])
def test_a_gpu_learns_with_it(make_job: MakeJob, name: str) -> None:
    if name != "adamw_offload":
        pytest.importorskip("bitsandbytes")
    run = {"max_steps": 8, "device": "cuda"}
    job = make_job(kind="sft", sft=SFT["sft"], optim={"learning_rate": 3e-3, "optimizer": name}, run=run)
    run_sft(job)
    losses = [event.values["loss"] for event in of_type(job.run_dir, "metrics")]
    assert losses[-1] < 0.8 * losses[0]
