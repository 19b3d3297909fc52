"""What a run asks of its worker: read off its config, kept as a text, compared with what workers have."""

from __future__ import annotations

from typing import Any

import pytest

from training.config import JobConfig
from webapp.common.workers.models import Needs, Worker

GB = 10**9


def job(**groups: Any) -> JobConfig:
    return JobConfig.model_validate({"data": {"train": "x"}, **groups})


def worker(gpus: int = 0, gb: float | None = None, model: str = "", **fields: Any) -> Worker:
    return Worker(name="train@a", gpus=gpus, gpu_bytes=None if gb is None else int(gb * GB), gpu=model, **fields)


VLLM = {"engine": "vllm"}


@pytest.mark.parametrize(
    ("groups", "needs"),
    [
        ({}, Needs()),
        ({"run": {"device": "cpu"}}, Needs()),
        ({"run": {"device": "cuda"}}, Needs(gpus=1)),
        ({"hardware": {"gpu_memory": 80}}, Needs(gpus=1, memory=80)),
        ({"hardware": {"gpu_model": " H100 "}}, Needs(gpus=1, model="H100")),
        ({"hardware": {"gpu_model": "  "}}, Needs()),
        ({"hardware": {"devices": 2}}, Needs(gpus=2, or_cpu=True, on_cluster=True)),
        ({"hardware": {"devices": 2}, "run": {"device": "cuda"}}, Needs(gpus=2, on_cluster=True)),
        ({"hardware": {"devices": 2}, "run": {"device": "cpu"}}, Needs()),
        ({"hardware": {"sampler_devices": 1}}, Needs(gpus=2, or_cpu=True, on_cluster=True)),
        (
            {"hardware": {"devices": 4, "sampler_devices": 3, "hosts": 2}, "run": {"device": "cuda"}},
            Needs(gpus=7, on_cluster=True, hosts=2),
        ),
        ({"hardware": {"devices": 2, "sharding": "megatron"}}, Needs(gpus=2, on_cluster=True)),
        ({"hardware": {"hosts": 2}}, Needs(gpus=1, or_cpu=True, on_cluster=True, hosts=2)),
        ({"hardware": {"hosts": 2}, "run": {"device": "cpu"}}, Needs(on_cluster=True, hosts=2)),
        ({"rollout": VLLM, "vllm": {"tensor_parallel": 2}}, Needs(gpus=2, or_cpu=True)),
        ({"rollout": VLLM, "vllm": {"tensor_parallel": 2, "mode": "server", "urls": ["http://a:1"]}}, Needs()),
        ({"kind": "evaluate", "hardware": {"devices": 4}, "run": {"device": "cuda"}}, Needs(gpus=1)),
        ({"kind": "evaluate", "hardware": {"sampler_devices": 4}, "run": {"device": "cuda"}}, Needs(gpus=1)),
    ],
)
def test_they_are_read_off_the_config(groups: dict[str, Any], needs: Needs) -> None:
    assert Needs.of(job(**groups)) == needs
    assert Needs.parse(needs.text) == needs and len(needs.text) <= 80
    assert (needs.text == "") == (needs == Needs())


def test_the_longest_text_fits_its_column() -> None:
    assert len(Needs(128, 10_000, "m" * 40, True, True, 1024).text) <= 80


@pytest.mark.parametrize("text", ["", "1", "1/2/3", "1/2/3/4/5/6/7"])
def test_a_text_that_is_none_asks_for_nothing(text: str) -> None:
    assert Needs.parse(text) == Needs()


@pytest.mark.parametrize(
    ("needs", "one", "met"),
    [
        (Needs(), worker(), True),
        (Needs(), worker(1), True),
        (Needs(gpus=1), worker(), False),
        (Needs(gpus=2), worker(1), False),
        (Needs(gpus=2), worker(2), True),
        (Needs(gpus=2), worker(3), True),
        (Needs(gpus=2, or_cpu=True), worker(), True),
        (Needs(gpus=2, or_cpu=True), worker(1), False),
        (Needs(gpus=1, memory=80), worker(1, 79.999), False),
        (Needs(gpus=1, memory=80), worker(1, 80), True),
        (Needs(gpus=1, memory=80), worker(1), False),
        (Needs(gpus=1, model="h100"), worker(1, 80, "NVIDIA H100 80GB HBM3"), True),
        (Needs(gpus=1, model="H100"), worker(1, 80, "NVIDIA A100"), False),
        (Needs(gpus=1, model="H100"), worker(1), False),
        (Needs(gpus=8, on_cluster=True), worker(cluster=True), True),
        (Needs(gpus=8), worker(cluster=True), False),
        (Needs(gpus=1, on_cluster=True, hosts=2), worker(8), False),
        (Needs(on_cluster=True, hosts=2), worker(), False),
        (Needs(on_cluster=True, hosts=2), worker(cluster=True), True),
    ],
)
def test_which_workers_meet_them(needs: Needs, one: Worker, met: bool) -> None:
    assert needs.met_by(one) is met


def test_a_run_on_the_cpu_cannot_ask_for_a_gpu() -> None:
    for option, value in (("gpu_memory", 24), ("gpu_model", "H100")):
        with pytest.raises(ValueError, match=f"hardware.{option}: a run on the CPU has no GPU"):
            job(run={"device": "cpu"}, hardware={option: value})
