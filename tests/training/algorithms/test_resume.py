"""A run that was cut in two gives the figures of one that was not."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.sft import run_sft
from training.errors import RewardFault, StopRequested
from training.rewards.base import Episode, Score

SFT = {
    "kind": "sft",
    "sft": {"batch_size": 8, "max_length": 256},
    "optim": {"schedule": "cosine", "learning_rate": 3e-3},
}


def figures(job: Job, name: str) -> dict[int, float]:
    return {event.step: event.values[name] for event in of_type(job.run_dir, "metrics")}


def stop_after(job: Job, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the stop flag when the metrics of ``step`` are written."""
    write = job.journal.write

    def watch(event: Any) -> None:
        write(event)
        if event.type == "metrics" and event.step == step:
            job.stop.set()

    monkeypatch.setattr(job.journal, "write", watch)


def test_sft_of_three_plus_three_steps_equals_six(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"max_steps": 6, "save_every": 3}
    whole = make_job("whole", **SFT, run=run)
    run_sft(whole)
    first = make_job("first", **SFT, run=run)
    stop_after(first, 3, monkeypatch)
    with pytest.raises(StopRequested):
        run_sft(first)
    second = make_job("second", **SFT, run=run, resume_from=first.run_dir)
    run_sft(second)
    assert of_type(second.run_dir, "run_started")[0].from_step == 3
    for name in ("loss", "grad_norm", "learning_rate"):
        joined = figures(first, name) | figures(second, name)
        assert joined == pytest.approx(figures(whole, name), rel=1e-5, abs=1e-9)


def test_grpo_of_three_plus_three_steps_equals_six(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling is fixed by seed, step and position, so even the rollouts of a resumed run are the same."""
    with scripted_server() as url:
        monkeypatch.setattr("training.algorithms.grpo.check_environment", lambda config: None)
        groups = {
            "environment": {"url": url},
            "rewards": {"components": COMPONENTS},
            "run": {"max_steps": 6, "save_every": 3},
        }
        whole = make_job("whole", **groups)
        run_grpo(whole, scorer=by_length)
        first = make_job("first", **groups)
        stop_after(first, 3, monkeypatch)
        with pytest.raises(StopRequested):
            run_grpo(first, scorer=by_length)
        second = make_job("second", **groups, resume_from=first.run_dir / "checkpoint-3")
        run_grpo(second, scorer=by_length)
    for name in ("loss", "reward", "completions/mean_length"):
        joined = figures(first, name) | figures(second, name)
        assert joined == pytest.approx(figures(whole, name), rel=1e-3, abs=1e-5)


def test_without_a_whole_checkpoint_a_run_starts_again_with_a_message(make_job: MakeJob) -> None:
    job = make_job(**SFT, run={"max_steps": 4, "save_every": 2})
    run_sft(job)
    for step in (2, 4):
        (job.run_dir / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"torn")
    again = make_job("again", **SFT, run={"max_steps": 4, "save_every": 2}, resume_from=job.run_dir)
    run_sft(again)
    assert of_type(again.run_dir, "run_started")[0].from_step == 0
    lines = [event.message for event in of_type(again.run_dir, "log")]
    assert any("not whole" in line for line in lines) and any("starts from step 0" in line for line in lines)
    resumed = of_type(again.run_dir, "resumed")[0]
    assert (resumed.source, resumed.step, resumed.lost_steps, len(resumed.set_aside)) == ("", 0, 4, 2)


class Cut(BaseException):
    """Ends a trainer without a word, as a kill does."""


Instant = Callable[[Any], Literal["kill", "stop", ""]]
"""What happens to the trainer right after its journal takes an event."""


def cut_when(job: Job, instant: Instant, monkeypatch: pytest.MonkeyPatch) -> None:
    write = job.journal.write

    def watch(event: Any) -> None:
        write(event)
        how = instant(event)
        if how == "kill":
            raise Cut
        if how == "stop":
            job.stop.set()

    monkeypatch.setattr(job.journal, "write", watch)


def at_line(line: int) -> Instant:
    return lambda event: "" if event.n != line else "kill" if line % 2 else "stop"


def after_update(step: int, how: Literal["kill", "stop"]) -> Instant:
    return lambda event: how if event.type == "metrics" and event.step == step else ""


def uneven(episode: Episode) -> Score:
    """Every fifth task is excluded, so that rows are taken out of batches as well."""
    if episode.messages[0].content.startswith("Say 345"):
        raise RewardFault("no")
    return by_length(episode)


def resumed_run(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, instants: list[Instant], **over: Any) -> Job:
    """An uninterrupted run, and one that is cut at each instant in turn: bitwise the same. Returns the last attempt."""
    monkeypatch.setattr("training.algorithms.grpo.check_environment", lambda config: None)
    with scripted_server() as url:
        groups = {
            "environment": {"url": url},
            "rewards": {"components": COMPONENTS},
            "grpo": {"num_iterations": 2, "beta": 0.02, "loss_type": "grpo"},
            "optim": {"mini_batch_size": 4, "micro_batch_size": 2, "schedule": "cosine", "learning_rate": 3e-3},
            "run": {"max_steps": 12, "save_every": 4, "keep_last": 2, "threads": 1},
            **over,
        }
        whole = make_job("whole", **groups)
        run_grpo(whole, scorer=uneven)
        seen: dict[str, dict[int, float]] = {name: {} for name in ("loss", "grad_norm", "reward")}
        for number, instant in enumerate([*instants, None], start=1):
            job = make_job(f"cut/{number}", **groups, resume_from=whole.run_dir.parent / "cut")
            job.attempt = number
            if instant is not None:
                cut_when(job, instant, monkeypatch)
            with contextlib.suppress(Cut, StopRequested):
                run_grpo(job, scorer=uneven)
            for name, values in seen.items():
                found = {e.step: e.values[name] for e in of_type(job.run_dir, "metrics") if name in e.values}
                values.update(found)
    for name, values in seen.items():
        expected = {e.step: e.values[name] for e in of_type(whole.run_dir, "metrics") if name in e.values}
        assert values == expected, name
    last, same = parameters_of(whole.run_dir / "model"), parameters_of(job.run_dir / "model")
    assert all(torch.equal(last[name], same[name]) for name in last)
    return job


@pytest.mark.slow
def test_a_run_cut_within_its_updates_is_bitwise_the_same(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four updates a sampling: a checkpoint within them restarted misaligned, the loss differing by 0.79."""
    instants = [after_update(2, "kill"), after_update(2, "stop"), after_update(7, "kill"), after_update(11, "stop")]
    last = resumed_run(make_job, monkeypatch, instants)
    assert of_type(last.run_dir, "run_started")[0].from_step == 12  # finished before its stop


@pytest.mark.slow
def test_resumed_at_twenty_random_instants_a_run_is_bitwise_the_same(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    for round_ in range(4):
        instants = [at_line(rng.randrange(5, 150)) for _ in range(5)]
        over = {"model": {"source": str(make_job(f"m{round_}").config.model.source), "lora_rank": 4 * (round_ % 2)}}
        with monkeypatch.context() as patch:
            resumed_run(lambda name, **k: make_job(f"r{round_}/{name}", **k), patch, instants, **over)  # noqa: B023


def test_a_reference_that_follows_the_policy_is_resumed_too(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it in the checkpoint the KL term would pull towards the base model again."""
    grpo = {"beta": 1.0, "loss_type": "grpo", "ref_sync_steps": 1, "ref_sync_share": 1.0}
    over = {"grpo": grpo, "optim": {"learning_rate": 3e-3}, "run": {"max_steps": 5, "save_every": 3, "threads": 1}}
    last = resumed_run(make_job, monkeypatch, [after_update(4, "kill")], **over)
    assert of_type(last.run_dir, "run_started")[0].from_step == 3
