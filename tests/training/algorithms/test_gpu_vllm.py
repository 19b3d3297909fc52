"""The real vLLM on the trainer's own CUDA device: it sleeps while the model learns, or has weights of few bits."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_real_vllm import _missing
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.helpers import of_type, scripted_server
from training.algorithms.base import JournalCallback
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job

pytestmark = [
    pytest.mark.usefixtures("no_health"),
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(bool(_missing()), reason=_missing() or "there"),
]
SHARE = 0.5


def played(make_job: MakeJob, folder: Path, **groups: Any) -> Job:
    """Three steps by a vLLM that the run starts on its own device."""
    sizes = {"max_turns": 2, "max_turn_tokens": 16, "max_prompt_tokens": 300, "max_completion_tokens": 120}
    groups["rollout"] = {"engine": "vllm", "temperature": 0.8, **sizes}
    groups["model"] = {"source": str(folder), **groups.get("model", {})}
    groups["vllm"] = {"gpu_memory_share": SHARE, **groups.get("vllm", {})}
    with scripted_server() as url:
        job = make_job(environment={"url": url}, run={"device": "cuda", "max_steps": 3}, **groups)
        run_grpo(job, scorer=by_length)
    steps = of_type(job.run_dir, "metrics")
    assert [event.step for event in steps] == [1, 2, 3]
    assert all(event.values["rollouts/excluded"] == 0 for event in steps)
    return job


def used() -> int:
    """MiB that all processes hold of the first device."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


@pytest.mark.parametrize("lora_rank", [0, 8], ids=["all weights", "adapters"])
def test_it_leaves_the_device_to_every_update(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch, lora_rank: int
) -> None:
    held: list[int] = []
    original = JournalCallback.on_pre_optimizer_step

    def update(self: Any, *given: Any, **named: Any) -> None:
        held.append(used())
        original(self, *given, **named)

    monkeypatch.setattr(JournalCallback, "on_pre_optimizer_step", update)
    before = used()
    played(make_job, starter_folder, model={"lora_rank": lora_rank}, vllm={"sleep": True})
    whole = torch.cuda.get_device_properties(0).total_memory >> 20
    assert len(held) == 3 and max(held) - before < 0.5 * SHARE * whole


@pytest.mark.parametrize("quantization", ["fp8", "bitsandbytes"])
def test_an_adapter_is_sampled_over_a_base_of_few_bits(
    make_job: MakeJob, starter_folder: Path, quantization: str
) -> None:
    job = played(make_job, starter_folder, model={"lora_rank": 8}, vllm={"quantization": quantization})
    (checked,) = of_type(job.run_dir, "sampler_checked")
    assert checked.tolerance == 20.0


def test_an_adapter_over_4_bits_is_sampled_over_the_base_as_it_is_stored(
    make_job: MakeJob, starter_folder: Path
) -> None:
    pytest.importorskip("bitsandbytes", reason="QLoRA's layers are installed by hand (docs/memory.md)")
    job = played(make_job, starter_folder, model={"lora_rank": 8, "quantization": "nf4"})
    steps = [event.values for event in of_type(job.run_dir, "metrics")]
    assert all("sampling/importance_sampling_ratio/mean" in step for step in steps)
