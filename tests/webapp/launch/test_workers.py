"""The check before a launch says whether a living worker has the devices that a run asks for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from webapp.common.pools import TRAIN
from webapp.common.workers.models import Worker
from webapp.launch.findings import Check
from webapp.launch.preflight import _check_workers

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
    assert found(hardware={"gpu_memory": 80})[0].path == "hardware.gpu_memory"
