"""New weights on their way to the sampler while the trainer continues: what waits for them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.algorithms.test_vllm import vllm_job
from training.algorithms.grpo import run_grpo
from training.algorithms.rollouts import Rollouts
from training.errors import SamplerDied
from training.policy.check import Probe

pytestmark = pytest.mark.usefixtures("no_health")

A_WHILE_S = 0.3
"""A sampling that does not wait has begun long before."""


def test_no_sampling_begins_before_its_weights_are_there(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, too_early = threading.Event(), []
    arrive, collect = Rollouts._arrive, Rollouts._collect

    def late(self: Rollouts, engine: Any, step: int, asked: list[list[int]]) -> list[Probe]:
        begun.clear()
        too_early.append(begun.wait(A_WHILE_S))
        return arrive(self, engine, step, asked)

    def noted(self: Rollouts, step: int, rows: Any) -> Any:
        begun.set()
        return collect(self, step, rows)

    monkeypatch.setattr(Rollouts, "_arrive", late)
    monkeypatch.setattr(Rollouts, "_collect", noted)
    with vllm_job(make_job, starter_folder, rollout={"max_staleness": 1}, run={"max_steps": 3}) as (
        job,
        _stub,
        _behind,
    ):
        run_grpo(job, scorer=by_length)
    assert too_early == [False] * 3


def test_a_handover_that_failed_plays_nothing(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the update made that it came before, nor is there a sampling after it."""
    played: list[int] = []
    arrive, collect = Rollouts._arrive, Rollouts._collect

    def fails(self: Rollouts, engine: Any, step: int, asked: list[list[int]]) -> list[Probe]:
        if step == 2:
            raise SamplerDied("on its way")
        return arrive(self, engine, step, asked)

    def noted(self: Rollouts, step: int, rows: Any) -> Any:
        played.append(step)
        return collect(self, step, rows)

    monkeypatch.setattr(Rollouts, "_arrive", fails)
    monkeypatch.setattr(Rollouts, "_collect", noted)
    with (
        vllm_job(make_job, starter_folder, rollout={"max_staleness": 1}, run={"max_steps": 4}) as (
            job,
            _stub,
            _behind,
        ),
        pytest.raises(SamplerDied, match="on its way"),
    ):
        run_grpo(job, scorer=by_length)
    assert played == [1, 2] and job.step == 1
