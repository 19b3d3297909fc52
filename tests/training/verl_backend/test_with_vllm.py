"""verl with the real vLLM: its build for processors takes the weights of each step, and samples with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import of_type, scripted_server
from tests.training.verl_backend.conftest import PYTHON, RunInVerl
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from training.model_check import check_model_folder
from training.policy.vllm_server import installed_version

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]
LORA = {"model": {"lora_rank": 4}, "optim": {"learning_rate": 1e-2}, "hardware": {"devices": 2}}
APART = {"hardware": {"sampler_devices": 1}}
STUCK = """
import asyncio, threading, time
import torch, zmq
from training.verl_backend import with_vllm
with_vllm.TAKE_S = 1
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender
place = "ipc:///tmp/stuck-" + str(time.time_ns())

def fails(weights, is_last):
    raise ValueError("vLLM refuses them")

def receive():
    try:
        BucketedWeightReceiver(place, torch.device("cpu"), use_shm=True).receive_weights(fails)
    except Exception as exc:
        print("RECEIVER", type(exc).__name__, flush=True)

threading.Thread(target=receive, daemon=True).start()
try:
    asyncio.run(BucketedWeightSender(place, 1, use_shm=True).async_send_weights(iter([("a", torch.ones(2))])))
except Exception as exc:
    print("SENDER", type(exc).__name__, exc, flush=True)
"""


@pytest.fixture(autouse=True)
def needs_vllm() -> None:
    if not PYTHON.exists() or installed_version(PYTHON) is None:
        pytest.skip("There is no vLLM in .venv-verl: run make setup-verl-vllm.")


@pytest.mark.parametrize(
    "groups",
    [{}, LORA, APART, LORA | APART],
    ids=["all weights", "LoRA on two devices", "all weights, apart", "LoRA, apart"],
)
def test_its_samplers_have_the_trainers_weights(
    groups: dict[str, Any], trained_folder: Path, tmp_path: Path, no_health: None
) -> None:
    """In the second step too, after the first weights were handed over."""
    run_dir = tmp_path / "run"
    with scripted_server(behave) as url:
        given = groups | {"rollout": {"engine": "vllm"}, "run": {"device": "cpu", "max_steps": 2}}
        assert run_by_verl(cpu_job(run_dir, trained_folder, url, **given)) == 0
    steps = of_type(run_dir, "metrics")
    assert [event.step for event in steps] == [1, 2]
    assert all(0 < event.values["sampling/logprob_gap_max"] < 1e-4 for event in steps)
    assert steps[0].values["grad_norm"] > 0, "the weights have moved"
    assert len({event.rollout for event in of_type(run_dir, "rollout_finished")}) == 16
    check_model_folder(run_dir / "model")


def test_a_vllm_that_fails_to_take_weights_is_not_waited_for_without_end(run_in_verl: RunInVerl) -> None:
    modules = "training.verl_backend.with_vllm,training.verl_backend.on_cpu"
    done = run_in_verl("-c", STUCK, VERL_PLATFORM="cpu", VERL_USE_EXTERNAL_MODULES=modules)
    assert "SENDER SamplerDied A vLLM did not take the new weights within 1 s." in done.stdout, done.stderr[-2000:]
