"""The check before a launch says whether a living worker has the devices that a run asks for."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from webapp.common.pools import TRAIN
from webapp.common.workers.models import Worker
from webapp.environments.models import Environment, Kind
from webapp.launch.findings import Check
from webapp.launch.preflight import _asked_devices, _check_other_hosts, _check_workers

pytestmark = pytest.mark.django_db


def worker(name: str, *, silent_s: float = 0, **fields: Any) -> None:
    at = timezone.now() - timedelta(seconds=silent_s)
    Worker.objects.create(name=name, queues=[TRAIN], started_at=at, beat_at=at, **fields)


def found(**groups: Any) -> list[Check]:
    return list(_check_workers(JobConfig.model_validate({"data": {"train": "x"}, **groups})))


def test_a_run_that_any_device_trains_gets_no_finding() -> None:
    assert found() == found(run={"device": "cpu"}) == []
    asks = {"kind": "evaluate", "endpoint": {"url": "http://192.0.2.7/v1", "model": "m"}, "run": {"device": "cuda"}}
    assert found(**asks) == []


def test_a_missing_gpu_is_a_problem_that_a_person_may_override() -> None:
    worker("small@a", gpus=1, gpu="NVIDIA T4", gpu_bytes=16 * 10**9)
    worker("gone@b", gpus=8, gpu="NVIDIA H100", gpu_bytes=85 * 10**9, silent_s=60)
    (check,) = found(hardware={"devices": 2, "gpu_memory": 80})
    assert (check.level, check.hard, check.path) == ("problem", False, "hardware.devices")
    assert check.message == (
        "No worker that is alive has what the run asks for: 2 GPUs of 80 GB or more. "
        "The run would wait until one has it."
    )
    assert check.detail == "small@a has 1 GPU: NVIDIA T4, 16 GB."
    worker("big@c", gpus=2, gpu="NVIDIA H100", gpu_bytes=85 * 10**9)
    (check,) = found(hardware={"devices": 2, "gpu_memory": 80})
    assert (check.ok, check.message) == (True, "big@c has what the run asks for: 2 GPUs of 80 GB or more.")
    assert found(run={"device": "cuda"})[0].ok


def test_the_finding_lies_next_to_its_option() -> None:
    assert found(run={"device": "cuda"})[0].path == "run.device"
    assert found(hardware={"gpu_model": "H100"})[0].path == "hardware.gpu_model"
    apart = {"sampler_devices": 1}
    assert found(hardware=apart, run={"device": "cuda"})[0].path == "hardware.sampler_devices"
    assert found(hardware=apart | {"devices": 2}, run={"device": "cuda"})[0].path == "hardware.devices"
    assert found(hardware={"gpu_memory": 80})[0].path == "hardware.gpu_memory"


VLLM = {"rollout": {"engine": "vllm"}}
SERVER = {"mode": "server", "urls": ["http://192.0.2.7:8000"]}


@pytest.mark.parametrize(
    ("groups", "asked"),
    [
        ({}, []),
        ({"hardware": {"backend": "verl"}}, []),
        ({"hardware": {"hosts": 2}}, ["hosts"]),
        ({"hardware": {"devices": 2}}, ["devices"]),
        ({"hardware": {"sampler_devices": 1}}, ["sampler_devices"]),
        ({"hardware": {"hosts": 2, "devices": 2, "sampler_devices": 1}}, ["hosts", "devices", "sampler_devices"]),
        ({"kind": "evaluate", "hardware": {"hosts": 2, "devices": 2, "sampler_devices": 1}}, []),
        ({"hardware": {"gpu_memory": 1}}, ["gpu_memory"]),
        ({"hardware": {"gpu_model": "H100"}}, ["gpu_model"]),
        ({"hardware": {"gpu_model": " "}}, []),
        ({**VLLM, "vllm": {"tensor_parallel": 1}}, []),
        ({**VLLM, "vllm": {"tensor_parallel": 2}}, ["tensor_parallel"]),
        ({"vllm": {"tensor_parallel": 2}}, []),
        ({**VLLM, "vllm": {"tensor_parallel": 2, **SERVER}}, []),  # those devices are not ours
    ],
)
def test_each_option_that_asks_for_devices_is_known(groups: dict[str, Any], asked: list[str]) -> None:
    config = JobConfig.model_validate({"data": {"train": "x"}, **groups})
    assert [path.rpartition(".")[2] for path, asks in _asked_devices(config) if asks] == asked


# --- Environments that listen on loopback -----------------------------------------------------------------------------


def reached(kind: str = Kind.PROCESS, options: dict[str, Any] | None = None, **environment: Any) -> list[Check]:
    config = JobConfig.model_validate(
        {"data": {"train": "x"}, "environment": {"url": "http://127.0.0.1:1"}} | (options or {})
    )
    playing = config.environment.model_copy(update=environment)
    return list(
        _check_other_hosts(config.model_copy(update={"environment": playing}), Environment(name="e", kind=kind))
    )


def test_a_worker_of_another_host_cannot_reach_loopback() -> None:
    here = socket.gethostname()
    assert reached() == [], "no worker is alive: another check says so"
    worker(f"train@{here}")
    assert reached() == []
    worker("gone@gpu-0", silent_s=60)
    worker("train@gpu-1")
    (check,) = reached()
    assert (check.level, check.path) == ("remark", "environment.name"), "one of them reaches it"
    assert check.message == "train@gpu-1 is on another host, and cannot reach http://127.0.0.1:1: only this host can."
    assert "TILTYARD_REPLICA_HOST" in check.hint
    Worker.objects.filter(name=f"train@{here}").delete()
    assert reached()[0].level == "problem" and not reached()[0].hard
    assert "Register the environment" in reached(Kind.URL)[0].hint
    assert reached(url="http://10.8.0.1:8200") == []
    (check,) = reached(url="http://10.8.0.1:8200", replicas=["http://10.8.0.1:8201", "http://localhost:8202"])
    assert "http://localhost:8202" in check.message


def test_only_workers_that_can_take_the_run_have_to_reach_its_servers() -> None:
    worker("small@gpu-1")
    assert reached() and reached(options={"hardware": {"gpu_memory": 80}}) == []
    worker("big@gpu-2", gpus=1, gpu="NVIDIA H100", gpu_bytes=85 * 10**9)
    (check,) = reached(options={"hardware": {"gpu_memory": 80}})
    assert check.message.startswith("big@gpu-2 is on another host") and check.level == "problem"
    asking = {"kind": "evaluate", "endpoint": {"url": "http://127.0.0.1:2/v1", "model": "m"}}
    assert reached(options=asking) == [], "what asks an endpoint takes none of these workers"
