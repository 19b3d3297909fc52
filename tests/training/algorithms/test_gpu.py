"""GRPO on a CUDA device: what is trained moves, in the number format that is meant, and a run resumes there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.algorithms.test_resume import SFT, figures, stop_after
from tests.training.helpers import of_type, scripted_server
from training.algorithms import base
from training.algorithms.grpo import run_grpo
from training.algorithms.sft import run_sft
from training.errors import StopRequested
from training.main import run_job
from training.memory import running

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("no_health"),
]
CUDA = {"device": "cuda", "max_steps": 3}


@pytest.mark.parametrize("lora_rank", [0, 8])
def test_three_steps_on_the_device_move_the_weights(make_job: MakeJob, starter_folder: object, lora_rank: int) -> None:
    model = {"source": str(starter_folder), "lora_rank": lora_rank}
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, model=model, run=CUDA)
        run_grpo(job, scorer=by_length)
    assert torch.cuda.max_memory_allocated() > 0
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")  # type: ignore[arg-type]
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)
    steps = of_type(job.run_dir, "metrics")
    assert [event.step for event in steps] == [1, 2, 3]
    assert all(event.values["rollouts/excluded"] == 0 and event.values["grad_norm"] > 0 for event in steps)


def test_a_run_on_the_device_continues_from_its_checkpoint(make_job: MakeJob) -> None:
    with scripted_server() as url:
        shared = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}}
        first = make_job("first", **shared, run={**CUDA, "save_every": 2})
        run_grpo(first, scorer=by_length)
        second = make_job("second", resume_from=first.run_dir / "checkpoint-2", **shared, run={**CUDA, "max_steps": 4})
        run_grpo(second, scorer=by_length)
    assert [event.step for event in of_type(second.run_dir, "metrics")] == [3, 4]


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_rollouts_that_follow_each_other_learn_the_same(make_job: MakeJob, attention: str) -> None:
    if attention == "flash_attention_2":
        pytest.importorskip("flash_attn", reason="flash-attn is installed by hand (docs/configuration.md)")
    norms = {}
    for packing in (False, True):
        with scripted_server() as url:
            shared = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}}
            optim, model = {"packing": packing}, {"attention": attention}
            job = make_job(f"packing{packing}", **shared, optim=optim, model=model, run={**CUDA, "max_steps": 1})
            run_grpo(job, scorer=by_length)
        (step,) = of_type(job.run_dir, "metrics")
        norms[packing] = step.values["grad_norm"]
    assert norms[True] == pytest.approx(norms[False], rel=0.05)  # bfloat16


def test_an_adapter_is_trained_over_a_base_of_4_bits(make_job: MakeJob, starter_folder: object) -> None:
    pytest.importorskip("bitsandbytes", reason="QLoRA's layers are installed by hand (docs/memory.md)")
    model = {"source": str(starter_folder), "lora_rank": 8, "quantization": "nf4"}
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, model=model, run=CUDA)
        run_grpo(job, scorer=by_length)
    assert all(event.values["grad_norm"] > 0 for event in of_type(job.run_dir, "metrics"))
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")  # type: ignore[arg-type]
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_was_stopped_learns_what_one_that_was_not_learns(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"max_steps": 6, "save_every": 3, "device": "cuda"}
    whole, first = make_job("whole", **SFT, run=run), make_job("first", **SFT, run=run)
    run_sft(whole)
    stop_after(first, 3, monkeypatch)
    with pytest.raises(StopRequested):
        run_sft(first)
    second = make_job("second", **SFT, run=run, resume_from=first.run_dir)
    run_sft(second)
    joined = figures(first, "loss") | figures(second, "loss")
    assert joined == pytest.approx(figures(whole, "loss"), rel=1e-3)


def test_the_dry_step_measures_the_device_and_changes_nothing(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_job("plain", **SFT, run=CUDA)
    run_sft(plain)
    monkeypatch.setattr(running, "SURE", 0.0)
    monkeypatch.setattr(running, "plainly_fits", lambda *_args: False)
    tried = make_job("tried", **SFT, run=CUDA)
    run_sft(tried)
    lines = [event.message for event in of_type(tried.run_dir, "log")]
    assert any("A dry step over the longest rows (8 × 256 tokens)" in line and " at most" in line for line in lines)
    assert figures(tried, "loss") == figures(plain, "loss")


@pytest.fixture
def little_room() -> Iterator[Any]:
    """A function that leaves this process only so many MiB of the device beyond what its tensors hold."""
    whole = torch.cuda.get_device_properties(0).total_memory

    def leave(mib: int) -> None:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (mib << 20)) / whole)

    yield leave
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_device_that_is_full_in_a_step_pauses_the_run(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, little_room: Any
) -> None:
    begin = base.JournalCallback.on_step_begin

    def short(self: Any, args: Any, state: Any, *given: Any, **named: Any) -> Any:
        if state.global_step == 1:
            little_room(1)
        return begin(self, args, state, *given, **named)

    monkeypatch.setattr(base.JournalCallback, "on_step_begin", short)
    job = make_job(**SFT, run=CUDA)
    assert run_job(job.config, job.run_dir.with_name("paused")) == 5
    error = of_type(job.run_dir.with_name("paused"), "run_finished")[-1].error
    assert error.code == "out_of_memory" and "while the model was learning" in error.message


def test_a_device_without_room_for_the_model_pauses_the_run(make_job: MakeJob, little_room: Any) -> None:
    little_room(0)
    job = make_job(**SFT, run=CUDA)
    assert run_job(job.config, job.run_dir.with_name("paused")) == 5
    assert of_type(job.run_dir.with_name("paused"), "run_finished")[-1].error.code == "out_of_memory"
