"""A run that was cut in two gives the figures of one that was not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.sft import run_sft
from training.errors import StopRequested

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


def test_a_torn_checkpoint_is_passed_over_with_a_word(make_job: MakeJob) -> None:
    job = make_job(**SFT, run={"max_steps": 4, "save_every": 2})
    run_sft(job)
    (job.run_dir / "checkpoint-2" / "optimizer.pt").write_bytes(b"torn")
    again = make_job("again", **SFT, run={"max_steps": 4, "save_every": 2}, resume_from=job.run_dir)
    run_sft(again)
    assert of_type(again.run_dir, "run_started")[0].from_step == 0
    lines = [event.message for event in of_type(again.run_dir, "log")]
    assert any("not whole" in line for line in lines) and any("starts from step 0" in line for line in lines)
