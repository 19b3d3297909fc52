"""``run.max_hours``: a run ends in order once its time is over, counted over its attempts. No test waits: the clock is
a list of numbers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.algorithms import test_dpo
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.algorithms.test_resume import stop_after
from tests.training.helpers import job_config, of_type, scripted_server
from training.algorithms.grpo import run_grpo, run_ppo, run_rloo
from training.algorithms.job import HOURS, Job
from training.algorithms.playing import run_sample
from training.config import JobConfig
from training.errors import StopRequested
from training.journal import Journal, Metrics
from training.main import _Ending, _train, progress_line
from training.words import complaint_of, option_of

pytestmark = pytest.mark.usefixtures("no_health")

NO_SAVES = {"save_every": 0, "save_every_minutes": 0}
PLAYED: dict[str, Any] = {"rewards": {"components": COMPONENTS}}


def clock() -> Callable[[], float]:
    """A quarter of an hour passes from one look to the next: at the start, then at each step."""
    looks = iter(range(1000))
    return lambda: 900.0 * next(looks)


def timed(job: Job, **changes: Any) -> Job:
    return replace(job, clock=clock(), **changes)


def hours(job: Job) -> dict[int, float]:
    return {event.step: event.values[HOURS] for event in of_type(job.run_dir, "metrics") if HOURS in event.values}


def messages_of(job: Job) -> list[str]:
    return [event.message for event in of_type(job.run_dir, "log") if "time budget" in event.message]


def saved(job: Job) -> list[str]:
    return [event.path for event in of_type(job.run_dir, "checkpoint")]


@pytest.mark.parametrize(("most", "last"), [(0.5, 2), (0.51, 3)])
def test_it_ends_after_the_step_in_which_the_time_is_over(make_job: MakeJob, most: float, last: int) -> None:
    """Succeeded, with a checkpoint and the model; the learning rate is that of a run of six steps."""
    with scripted_server() as url:
        run = {"max_steps": 6, "max_hours": most, **NO_SAVES}
        optim = {"learning_rate": 6e-4, "schedule": "linear"}
        job = timed(make_job(**PLAYED, environment={"url": url}, run=run, optim=optim))
        ending = _Ending(job.journal)
        assert _train(job, ending) == 0
    assert hours(job) == {step: 0.25 * step for step in range(1, last + 1)}
    assert saved(job) == [f"checkpoint-{last}", "model"] and (job.run_dir / "model" / "model.safetensors").is_file()
    (end,) = of_type(job.run_dir, "run_finished")
    assert (end.status, end.step, end.hours) == ("succeeded", last, most)
    assert progress_line(end) == f"succeeded at step {last} (its time budget of {most:g} hours is over)"
    assert messages_of(job) == [
        f"The time budget of {most:g} hours is over after {0.25 * last:.2f}: the run ends after step {last} of 6."
    ]
    rates = [event.values["learning_rate"] for event in of_type(job.run_dir, "metrics")]
    assert rates == [pytest.approx(6e-4 - 1e-4 * step) for step in range(last)]


def test_one_that_is_done_in_time_says_nothing_of_it(make_job: MakeJob) -> None:
    """Over at the last step is in time. Without a budget nothing is counted."""
    for most in (0.5, 0.0):
        with scripted_server() as url:
            run = {"max_steps": 2, "max_hours": most, **NO_SAVES}
            job = timed(make_job(f"run-{most}", **PLAYED, environment={"url": url}, run=run))
            assert _train(job, _Ending(job.journal)) == 0
        (end,) = of_type(job.run_dir, "run_finished")
        assert (end.step, end.hours, messages_of(job)) == (2, None, []) and "hours" not in json.loads(
            end.model_dump_json()
        )
        assert hours(job) == ({1: 0.25, 2: 0.5} if most else {})
        assert progress_line(end) == "succeeded at step 2"


def test_the_updates_of_a_sampling_are_finished_first(make_job: MakeJob) -> None:
    with scripted_server() as url:
        over = {"optim": {"mini_batch_size": 2}, "run": {"max_steps": 12, "max_hours": 0.25, **NO_SAVES}}
        job = timed(make_job(**PLAYED, environment={"url": url}, **over))
        run_grpo(job, scorer=by_length)
    updates = job.config.updates_per_step
    assert updates > 1 and list(hours(job)) == list(range(1, updates + 1))
    assert saved(job) == [f"checkpoint-{updates}", "model"] and job.out_of_time


def test_time_is_counted_over_attempts(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps, a stop, and two more: the hour is over. In a folder of its own or in the same one."""
    with scripted_server() as url:
        for name, again in (("one/1", "one/2"), ("two", "two")):
            run = {"max_steps": 9, "max_hours": 1.0, **NO_SAVES}
            given: dict[str, Any] = {**PLAYED, "environment": {"url": url}, "run": run}
            first = timed(make_job(name, **given))
            with monkeypatch.context() as patch:
                stop_after(first, 2, patch)
                with pytest.raises(StopRequested):
                    run_grpo(first, scorer=by_length)
            assert hours(first) == {1: 0.25, 2: 0.5} and not first.out_of_time
            first.journal.close()
            made = make_job(again, **given, resume_from=first.run_dir)
            second = timed(made, attempt=2, earlier=(first.run_dir,) if name != again else ())
            run_grpo(second, scorer=by_length)
            assert {step: hours(second)[step] for step in (3, 4)} == {3: 0.75, 4: 1.0} and 5 not in hours(second)
            assert saved(second)[-2:] == ["checkpoint-4", "model"]


def test_an_attempt_without_a_step_leaves_the_count_of_those_before(make_job: MakeJob, tmp_path: Path) -> None:
    """Their journals may hold other figures, and the last one none at all."""
    folders = [tmp_path / str(number) for number in (1, 2, 3)]
    for folder, values in zip(folders, ({HOURS: 1.0}, {HOURS: 2.5}, {"loss": 1.0}), strict=True):
        journal = Journal(folder)
        journal.write(Metrics(step=1, values=values))
        journal.write(Metrics(step=1, values={"reward": 1.0}))
        journal.close()
    job = timed(make_job(run={"max_hours": 9.0}), earlier=tuple(folders))
    assert job.time_figures() == {HOURS: 2.75} and job.time_figures() == {HOURS: 3.0}
    assert timed(make_job("other", run={"max_hours": 9.0})).time_figures() == {HOURS: 0.25}


def test_a_stage_is_not_ended_by_it_and_none_follows(make_job: MakeJob) -> None:
    """Also where the stage's own steps are done at that very step."""
    for ends in (2, 5):
        stages = [{"name": "one", "until_step": ends}, {"name": "two"}]
        with scripted_server() as url:
            run = {"max_steps": 8, "max_hours": 0.5, **NO_SAVES}
            given = {"environment": {"url": url}, "run": run, "curriculum": {"stages": stages}}
            job = timed(make_job(f"until-{ends}", **PLAYED, **given))
            run_grpo(job, scorer=by_length)
        assert list(hours(job)) == [1, 2] and saved(job) == ["checkpoint-2", "model"]
        assert [event.name for event in of_type(job.run_dir, "stage_started")] == ["one"]
        assert job.stage is not None and not job.stage.ended
        left = [event.message for event in of_type(job.run_dir, "log") if "not reached: two" in event.message]
        assert len(left) == 1


@pytest.mark.parametrize("kind", ["rloo", "ppo", "sample"])
def test_every_kind_that_plays_ends_so(make_job: MakeJob, kind: str) -> None:
    with scripted_server() as url:
        run = {"max_steps": 6, "max_hours": 0.5, **NO_SAVES}
        job = timed(make_job(kind=kind, **PLAYED, environment={"url": url}, run=run))
        {"rloo": run_rloo, "ppo": run_ppo, "sample": run_sample}[kind](job)
    assert hours(job) == {1: 0.25, 2: 0.5} and job.out_of_time and len(messages_of(job)) == 1
    assert saved(job) == ([] if kind == "sample" else ["checkpoint-2", "model"])


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_every_kind_that_shows_ends_so(make_job: MakeJob, tmp_path: Path, starter_folder: Path, kind: str) -> None:
    run = {"max_steps": 6, "max_hours": 0.5, **NO_SAVES}
    if kind == "sft":
        made = make_job(kind="sft", sft={"batch_size": 4}, run=run)
    else:
        made = test_dpo.make_job(tmp_path, "dpo", starter_folder, test_dpo.pair_rows(), run=run)
    job = timed(made)
    job.config.method.load()(job)
    assert hours(job) == {1: 0.25, 2: 0.5} and saved(job) == ["checkpoint-2", "model"] and job.out_of_time


def test_a_stop_at_that_step_is_no_success_that_was_not_saved(make_job: MakeJob) -> None:
    """Both at once: the run has its model, and says that it succeeded."""
    with scripted_server() as url:
        run = {"max_steps": 6, "max_hours": 0.25, **NO_SAVES}
        made = make_job(**PLAYED, environment={"url": url}, run=run)
        job = timed(made, stop=threading.Event())
        looks = job.clock

        def stops() -> float:
            job.stop.set()
            return looks()

        job.clock = stops
        assert _train(job, _Ending(job.journal)) == 0
    assert saved(job) == ["checkpoint-1", "model"] and of_type(job.run_dir, "run_finished")[0].hours == 0.25


def test_an_evaluation_has_no_time_budget() -> None:
    with pytest.raises(ValidationError) as found:
        JobConfig.model_validate({"kind": "evaluate", "run": {"max_hours": 1}})
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == "run.max_hours" and "all its tasks" in complaint_of(error)
    JobConfig.model_validate({"kind": "sample", "run": {"max_hours": 1}})
    assert job_config(kind="evaluate").run.max_hours == 0
