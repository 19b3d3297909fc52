"""No update from a loss or gradient that is not finite, and no checkpoint of weights that are not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import events, of_type, scripted_server
from training.algorithms.grpo import run_grpo
from training.algorithms.sft import run_sft
from training.algorithms.updates import FiniteUpdates, Still
from training.errors import NoGradient, NotFinite
from training.rewards.base import Episode, Score

SFT = {"kind": "sft", "sft": {"batch_size": 8, "max_length": 256}, "optim": {"learning_rate": 3e-3}}


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``poison(what, steps)``: in these steps the loss, or one parameter's gradient, becomes NaN."""
    original = FiniteUpdates.training_step

    def set_up(what: str, steps: set[int]) -> None:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step + 1 not in steps:
                return original(self, *args, **kwargs)
            if what == "gradient":
                loss = original(self, *args, **kwargs)
                next(p for p in self.model.parameters() if p.grad is not None).grad[0] = math.nan
                return loss
            compute = self.compute_loss
            monkeypatch.setattr(self, "compute_loss", lambda *a, **k: compute(*a, **k) * math.nan)
            try:
                return original(self, *args, **kwargs)
            finally:
                monkeypatch.setattr(self, "compute_loss", compute)

        monkeypatch.setattr(FiniteUpdates, "training_step", wrapped)

    return set_up


def finite(folder: Path) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in parameters_of(folder).values())


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_one_nan_skips_one_update_of_sft(make_job: MakeJob, poison: Any, what: str) -> None:
    """One NaN gradient gave a checkpoint of NaN weights, and every loss after it was NaN."""
    poison(what, {2})
    job = make_job(**SFT, run={"max_steps": 4, "save_every": 1})
    run_sft(job)
    for step in (1, 2, 3, 4):
        if (folder := job.run_dir / f"checkpoint-{step}").is_dir():
            assert finite(folder)
    assert finite(job.run_dir / "model")
    skipped = of_type(job.run_dir, "update_skipped")
    assert [(event.step, event.what, event.in_a_row) for event in skipped] == [(2, what, 1)]
    metrics = {event.step: event.values for event in of_type(job.run_dir, "metrics")}
    assert [step for step, values in metrics.items() if "updates/skipped" in values] == [2]
    assert math.isnan(metrics[2]["loss"]) == (what == "loss")
    assert all(math.isfinite(metrics[step][name]) for step in (1, 3, 4) for name in ("loss", "grad_norm"))


def test_a_skipped_update_of_grpo_moves_neither_weights_nor_momentum(
    make_job: MakeJob, poison: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.algorithms.grpo.check_environment", lambda config: None)
    poison("gradient", {2})
    with scripted_server() as url:
        job = make_job(
            environment={"url": url},
            rewards={"components": COMPONENTS},
            run={"max_steps": 2, "save_every": 1},
        )
        run_grpo(job, scorer=by_length)
    one, two = (job.run_dir / f"checkpoint-{step}" for step in (1, 2))
    before, after = parameters_of(one), parameters_of(two)
    assert all(torch.equal(before[name], after[name]) for name in before)
    states = [torch.load(folder / "optimizer.pt", weights_only=True)["state"] for folder in (one, two)]
    assert all(torch.equal(states[0][i]["exp_avg"], states[1][i]["exp_avg"]) for i in states[0])


def test_three_in_a_row_pause_the_run_and_name_the_last_good_checkpoint(make_job: MakeJob, poison: Any) -> None:
    poison("loss", {3, 4, 5, 6})
    job = make_job(**SFT, run={"max_steps": 9, "save_every": 2})
    with pytest.raises(NotFinite) as caught:
        run_sft(job)
    assert "steps 3 to 5" in caught.value.message and "checkpoint-4" in caught.value.message and caught.value.pauses
    assert [event.in_a_row for event in of_type(job.run_dir, "update_skipped")] == [1, 2, 3]
    assert finite(job.run_dir / "checkpoint-4") and not (job.run_dir / "model").exists()


def test_two_in_a_row_and_a_good_one_go_on(make_job: MakeJob, poison: Any) -> None:
    poison("gradient", {1, 2, 4, 5})
    job = make_job(**SFT, run={"max_steps": 6})
    run_sft(job)
    assert [event.in_a_row for event in of_type(job.run_dir, "update_skipped")] == [1, 2, 1, 2]


@pytest.mark.parametrize("at", [2, 3])
def test_weights_that_are_not_finite_are_never_saved(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """At a checkpoint, and at the end, where the run said that it had succeeded."""
    job = make_job(**SFT, run={"max_steps": 3, "save_every": 1 if at == 2 else 0, "save_every_minutes": 0})
    write = job.journal.write

    def ruin(event: Any) -> None:
        write(event)
        if event.type == "phase" and event.phase == "training":
            monkeypatch.setattr(torch.optim.AdamW, "step", wrecked(torch.optim.AdamW.step, at))

    monkeypatch.setattr(job.journal, "write", ruin)
    with pytest.raises(NotFinite) as caught:
        run_sft(job)
    good = "checkpoint-1" if at == 2 else "The base model"
    assert good in caught.value.message and f"step {at}" in caught.value.message
    assert not (job.run_dir / "model").exists() and not (job.run_dir / f"checkpoint-{at}").exists()
    assert [event.step for event in events(job.run_dir) if event.type == "checkpoint"] == ([1] if at == 2 else [])


def wrecked(step: Any, at: int) -> Any:
    """AdamW's step, which leaves an infinite weight at its ``at``-th call."""
    calls = [0]

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        calls[0] += 1
        if calls[0] == at:
            with torch.no_grad():
                self.param_groups[0]["params"][0].view(-1)[0] = math.inf
        return result

    return run


# Finite, and exactly 0


def all_equal(_episode: Episode) -> Score:
    return Score(parts={"task_success": 0.5, "tool_call_correctness": 0.5}, total=0.5)


def still_job(make_job: MakeJob, url: str, **over: Any) -> Any:
    over["run"] = {"max_steps": 6, "no_gradient_updates": 4, "save_every": 1, **over.get("run", {})}
    return make_job(environment={"url": url}, rewards={"components": COMPONENTS}, **over)


@pytest.mark.usefixtures("no_health")
def test_updates_without_a_gradient_are_reported_and_then_pause_the_run(make_job: MakeJob) -> None:
    with scripted_server() as url:
        job = still_job(make_job, url)
        with pytest.raises(NoGradient) as caught:
            run_grpo(job, scorer=all_equal)
    assert caught.value.pauses and "4 updates in a row (steps 1 to 4)" in caught.value.message
    assert "rewards of every group are equal" in caught.value.message
    messages = [event.message for event in of_type(job.run_dir, "log") if "exactly 0" in event.message]
    assert len(messages) == 1 and "3 updates in a row (steps 1 to 3)" in messages[0]
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2, 3, 4]


@pytest.mark.usefixtures("no_health")
@pytest.mark.parametrize("run", [{"no_gradient_updates": 0}, {"no_gradient_updates": 7}, {"max_steps": 3}])
def test_fewer_than_the_limit_or_none_go_on(make_job: MakeJob, run: dict[str, int]) -> None:
    with scripted_server() as url:
        job = still_job(make_job, url, run=run)
        run_grpo(job, scorer=all_equal)
    assert len(of_type(job.run_dir, "metrics")) == run.get("max_steps", 6)


@pytest.mark.usefixtures("no_health")
def test_a_policy_that_a_large_update_destroyed_is_named(make_job: MakeJob) -> None:
    """A learning rate of 1 ended *succeeded* without a word."""
    with scripted_server() as url:
        job = still_job(make_job, url, optim={"learning_rate": 1.0}, run={"max_steps": 30, "save_every": 0})
        with pytest.raises(NoGradient) as caught:
            run_grpo(job, scorer=by_length)
    assert "has left it no choice" in caught.value.message and "(it is 1)" in caught.value.message


def test_only_exact_zeros_in_a_row_count() -> None:
    still = Still()
    zero = {"loss": 0.0, "grad_norm": 0.0}
    assert [still.saw(values) for values in (zero, zero, {"loss": 1e-12, "grad_norm": 0.0}, zero)] == [1, 2, 0, 1]
    assert still.saw({"loss": 0.0, "grad_norm": 1e-12}) == 0 and still.saw({"loss": 0.0}) == 0


def test_imitation_may_reach_a_loss_of_0(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Still, "saw", lambda self, figures: 100)
    run_sft(make_job(**SFT, run={"max_steps": 2}))
