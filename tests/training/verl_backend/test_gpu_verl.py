"""verl with vLLM on CUDA devices: a run trains to its end, and its samplers have the trainer's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.helpers import of_type, scripted_server
from tests.training.verl_backend.conftest import PYTHON
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from training.model_check import check_model_folder
from training.policy.check import HALF
from training.policy.vllm_server import installed_version

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


JOBS: dict[str, dict[str, Any]] = {
    "one device": {"backend": "verl"},
    "two devices": {"devices": 2},
    "a sampler apart": {"sampler_devices": 1},
    "Megatron": {
        "devices": 2,
        "sharding": "megatron",
        "verl_options": ["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"],
    },
}


@pytest.mark.parametrize("hardware", JOBS.values(), ids=JOBS)
def test_three_steps(hardware: dict[str, Any], trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    needed = hardware.get("devices", 1) + hardware.get("sampler_devices", 0)
    if torch.cuda.device_count() < needed:
        pytest.skip(f"needs {needed} CUDA devices")
    packages = ["vllm"] + (["megatron-core"] if "sharding" in hardware else [])
    if not PYTHON.exists() or any(installed_version(PYTHON, name) is None for name in packages):
        pytest.skip(f"There is no {' or '.join(packages)} in .venv-verl: docs/verl.md says how it gets there.")
    groups = {
        "hardware": hardware,
        "rollout": {"engine": "vllm", "prompts_per_step": 4, "num_generations": 4},
        "run": {"device": "cuda", "max_steps": 3, "save_every": 1},
        "model": {"dtype": "bfloat16"},
        "vllm": {"gpu_memory_share": 0.3},
    }
    with scripted_server(behave) as url:
        assert run_by_verl(cpu_job(tmp_path / "run", trained_folder, url, **groups)) == 0
    steps = of_type(tmp_path / "run", "metrics")
    assert [event.step for event in steps] == [1, 2, 3]
    for event in steps:
        print({name: value for name, value in event.values.items() if name.startswith(("timing/", "sampling/"))})
        assert event.values["sampling/logprob_gap_mean"] < HALF.mean
    assert {event.path for event in of_type(tmp_path / "run", "checkpoint")} >= {"checkpoint-3", "model"}
    check_model_folder(tmp_path / "run" / "model")
