"""What the device of a real run did: every step of TRL's trainer is in the journal from its beginning to its end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_vllm import vllm_job
from tests.training.helpers import echo_behaviour, of_type, scripted_server
from tests.training.nvml import BUSY, GIB
from training import devices
from training.algorithms.grpo import run_grpo
from training.algorithms.rollouts import Rollouts
from training.algorithms.sft import run_sft
from training.lanes import Lane, Span
from training.rewards.base import Episode, Score
from training.rollout.trajectory import StepRollouts

AFTER = {"evaluating", "saving"}


def by_length(episode: Episode) -> Score:
    """A reward with variance."""
    value = sum(len(message.content) for message in episode.policy_messages) / 1000
    return Score(parts={"task_success": value}, total=value)


def assert_whole(run_dir: Path) -> list[Any]:
    """The steps of a run's journal, each without gaps and as long as its metrics say."""
    steps, figures = of_type(run_dir, "device_step"), of_type(run_dir, "metrics")
    took = {event.step: event.values["timing/step"] for event in figures if "timing/step" in event.values}
    assert [event.step for event in steps] == sorted(took)
    before = 0.0
    for event in steps:
        own = sum(seconds for phase, seconds in event.phases.items() if phase not in AFTER)
        assert sum(event.phases.values()) == pytest.approx(event.seconds, abs=0.001 * len(event.phases))
        # Both begin and end once the metrics are made, and the lane a moment later: with its own event.
        metrics = next(each for each in figures if each.step == event.step and "timing/step" in each.values)
        later = event.t - metrics.t
        assert took[event.step] - before - 0.01 <= own <= took[event.step] + later + 0.01, event
        before = later
        ends = [0.0, *(span.end for span in event.spans)]
        assert not event.left_out and max(
            span.begin - end for span, end in zip(event.spans, ends, strict=False)
        ) == pytest.approx(0.0, abs=0.005)
    return steps


@pytest.mark.usefixtures("no_health")
def test_a_run_says_what_its_device_did(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that takes its time is what the device waits for; each step ends with its checkpoint."""

    async def slow(socket: Any, frame: dict[str, Any], turn: int) -> Any:
        await asyncio.sleep(0.05)
        return await echo_behaviour(socket, frame, turn)

    def scored(episode: Episode) -> Score:
        time.sleep(0.03)
        return by_length(episode)

    monkeypatch.setattr(devices, "read_devices", lambda _ids: pytest.fail("processors have no driver"))
    with scripted_server(slow) as url:
        job = make_job(environment={"url": url}, run={"save_every": 1})
        run_grpo(job, scorer=scored)
    for event in assert_whole(job.run_dir):
        assert set(event.phases) == {"generation", "environment", "scoring", "training", "saving"}
        assert [span.phase for span in event.spans[-2:]] in (["training", "saving"], ["saving", "training"])
        assert event.phases["environment"] >= 0.05 and event.phases["scoring"] >= 0.02
        assert (event.device, event.busy, event.memory, event.power_w) == ("cpu", None, None, None) and event.host


def test_a_run_without_rollouts_trains_and_measures_its_device(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML in place of the driver; what it said is taken once a step, and a step without a reading has none."""
    monkeypatch.setattr("training.algorithms.base.own_device", lambda kind: {"cpu": "GPU-1b"}[kind])
    monkeypatch.setattr(devices, "MEASURE_EVERY_S", 0.0)
    answers = iter([[BUSY], [BUSY._replace(busy=0.43, memory_used=50 * GIB)]])
    monkeypatch.setattr(devices, "read_devices", lambda _ids: next(answers, None))
    job = make_job(kind="sft", sft={"batch_size": 2}, run={"save_every": 2, "max_steps": 2})
    run_sft(job)
    first, second = assert_whole(job.run_dir)
    assert set(first.phases) == {"training"} and set(second.phases) == {"training", "saving"}
    assert (first.device, first.busy, first.memory, first.power_w) == ("GPU-1b", 0.68, 50 * GIB, 312.4)
    assert (second.busy, second.memory, second.power_w) == (None, None, None)


@pytest.mark.usefixtures("no_health")
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_server_elsewhere_is_waited_for_and_handed_weights(
    make_job: MakeJob, starter_folder: Path, ahead: int
) -> None:
    with vllm_job(make_job, starter_folder, rollout={"max_staleness": ahead}) as (job, _stub, _behind):
        run_grpo(job, scorer=by_length)
    for event in assert_whole(job.run_dir):
        assert {"handover", "training"} <= set(event.phases) <= {"waiting", "handover", "training", "saving"}


@pytest.mark.parametrize(
    ("vllm", "phases"),
    [({}, ["generation"]), ({"mode": "managed"}, ["generation"]), ({"mode": "server"}, ["waiting"])],
)
def test_servers_elsewhere_leave_the_trainers_device_waiting(vllm: dict[str, str], phases: list[str]) -> None:
    clock = SimpleNamespace(at=0.0)
    lane = Lane(lambda: clock.at)
    config: Any = SimpleNamespace(samples_with_vllm=bool(vllm), vllm=SimpleNamespace(**vllm))
    lane.turn("waiting")
    clock.at = 2.0
    rollouts: Any = Rollouts.__new__(Rollouts)
    rollouts._job = SimpleNamespace(config=config, lane=lane)
    rollouts._fill_lane(StepRollouts([], [], spans=[Span("generation", 0.0, 2.0)]), "waiting")
    assert [span.phase for span in lane.finish()] == phases
