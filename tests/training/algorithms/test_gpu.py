"""GRPO on a CUDA device: what is trained moves, in the number format that is meant, and a run resumes there."""

from __future__ import annotations

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo

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


def test_a_run_on_the_device_goes_on_from_its_checkpoint(make_job: MakeJob) -> None:
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
