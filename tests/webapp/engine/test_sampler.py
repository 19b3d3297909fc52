"""A small model is sampled in a place without a device while runs have every device."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.training.helpers import write_weights
from training.config import JobConfig, ModelConfig
from webapp.common.pools import ENDPOINT, TRAIN, device_env
from webapp.common.workers.models import Worker
from webapp.engine.sampler import BYTES_PER_PARAMETER, has_room, is_small, pool_of_model
from webapp.engine.services import _pool_of
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
ELEMENTS = 6


@pytest.fixture
def small(tmp_path: Path) -> ModelConfig:
    """A folder with six parameters in two files."""
    write_weights(tmp_path / "one.safetensors", 4)
    write_weights(tmp_path / "two.safetensors", 2)
    return ModelConfig(source=str(tmp_path))


@pytest.fixture
def worker() -> Callable[..., Worker]:
    """``worker(queue)``: a living worker of it, with ``places``."""

    def make(queue: str, places: int = 1) -> Worker:
        at = timezone.now()
        return Worker.objects.create(name=f"{queue}@a", queues=[queue], places=places, started_at=at, beat_at=at)

    return make


def test_a_model_up_to_the_limit_is_small(small: ModelConfig, settings: Any) -> None:
    for limit, expected in ((ELEMENTS + 1, True), (ELEMENTS, True), (ELEMENTS - 1, False), (0, False)):
        settings.CPU_SAMPLER_PARAMETERS = limit
        assert is_small(small) is expected, limit
    settings.CPU_SAMPLER_PARAMETERS = 1_000_000_000
    named = {"org/Qwen3-0.6B": True, "org/llama-1B": True, "org/Qwen2.5-1.5B": False, "org/nameless": False}
    assert {name: is_small(ModelConfig(source=name)) for name in named} == named, "its size is that of its name"


def test_it_takes_a_place_without_a_device_only_while_runs_have_the_devices(
    small: ModelConfig, worker: Callable[..., Worker], make_run: Any, settings: Any
) -> None:
    assert pool_of_model(small) == TRAIN, "no worker at all: nothing is won"
    worker(TRAIN, 2)
    run = make_run(name="one", state=RunState.RUNNING)
    Run.objects.filter(pk=run.pk).update(lease_worker="train@a")
    worker(ENDPOINT)
    assert pool_of_model(small) == TRAIN, "one of two devices is free"
    other = make_run(name="two", state=RunState.RUNNING)
    Run.objects.filter(pk=other.pk).update(lease_worker="train@a")
    assert pool_of_model(small) == ENDPOINT
    assert pool_of_model(ModelConfig(source="org/large-7B")) == TRAIN
    settings.CPU_SAMPLER_PARAMETERS = 0
    assert pool_of_model(small) == TRAIN


def test_a_run_that_waits_for_the_device_gets_it(
    small: ModelConfig, worker: Callable[..., Worker], make_run: Any
) -> None:
    worker(TRAIN)
    worker(ENDPOINT)
    before = make_run(name="before", state=RunState.PAUSED)
    blocked = make_run(name="blocked", state=RunState.QUEUED, after=before)
    assert pool_of_model(small) == TRAIN, "it waits for another run, not for a device"
    Run.objects.filter(pk=blocked.pk).update(after=None)
    assert pool_of_model(small) == ENDPOINT


def test_without_a_living_place_for_it_it_waits_for_a_device(
    small: ModelConfig, worker: Callable[..., Worker], make_run: Any
) -> None:
    make_run(name="waits", state=RunState.QUEUED)
    worker(TRAIN)
    other = worker(ENDPOINT)
    assert pool_of_model(small) == ENDPOINT
    Worker.objects.filter(pk=other.pk).update(beat_at=timezone.now() - timedelta(minutes=5))
    assert pool_of_model(small) == TRAIN


@pytest.mark.parametrize(
    ("over", "pool"),
    [
        ({}, ENDPOINT),
        ({"evaluate": {}}, TRAIN),  # a whole evaluation
        ({"rollout": {"engine": "vllm"}}, TRAIN),
        ({"run": {"device": "cuda"}}, TRAIN),
        ({"run": {"device": "cpu"}}, ENDPOINT),
        ({"model": {"source": "org/large-7B"}}, TRAIN),
        ({"kind": "grpo"}, TRAIN),
        ({"kind": "grpo", "evaluate": {}}, TRAIN),
        ({"endpoint": {"url": "https://api.example.com/v1", "model": "gpt"}, "run": {"device": "cuda"}}, ENDPOINT),
    ],
)
def test_a_job_that_continues_a_rollout_takes_a_place_without_a_device_unless_it_needs_one(
    small: ModelConfig, worker: Callable[..., Worker], make_run: Any, over: dict[str, Any], pool: str
) -> None:
    worker(TRAIN)
    worker(ENDPOINT)
    make_run(name="waits", state=RunState.QUEUED)
    known = {"kind": "evaluate", "model": {"source": small.source}, "evaluate": {"continue_from": "/data/turn.json"}}
    assert _pool_of(JobConfig.model_validate(known | over)) == pool


def test_memory_that_is_free_is_enough_or_not(small: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    need = ELEMENTS * BYTES_PER_PARAMETER
    for left, expected in ((need, True), (need - 1, False), (None, True)):
        monkeypatch.setattr("webapp.engine.sampler.memory_left", lambda left=left: left)
        assert has_room(small) is expected, left
    assert has_room(ModelConfig(source="org/nameless")), "of an unknown size nothing can be said"


def test_a_place_of_endpoint_sees_no_device() -> None:
    assert (device_env(ENDPOINT), device_env(TRAIN)) == ({"CUDA_VISIBLE_DEVICES": ""}, {})
