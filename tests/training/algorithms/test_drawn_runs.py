"""Runs whose tasks are drawn by their pass rate, on the real trainer: what they draw, say, keep and go on with."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.algorithms.test_held_out import Server
from tests.training.algorithms.test_resume import after_update, resumed_run, stop_after
from tests.training.algorithms.test_stages import asked, staged, tasks
from tests.training.algorithms.test_vllm import vllm_job
from tests.training.helpers import observation, of_type, scripted_server
from training.algorithms.checkpoints import numbered, verify
from training.algorithms.drawing import TASKS_NAME, Drawing, read_memory
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.data.reader import load_rows
from training.errors import StopRequested
from training.rewards.base import Score

pytestmark = pytest.mark.usefixtures("no_health")

PASS_RATE = {"draw": "pass_rate"}


def rows_by_step(*run_dirs: Path) -> dict[int, list[int | None]]:
    """By step the rows that were trained on; of attempts after one another, the last one's."""
    found: dict[int, list[int | None]] = {}
    for run_dir in run_dirs:
        own: dict[int, dict[str, int | None]] = {}
        for event in of_type(run_dir, "rollout_started"):
            if not event.held_out:
                own.setdefault(event.step, {})[event.rollout] = event.row
        found |= {step: [by_name[name] for name in sorted(by_name)] for step, by_name in own.items()}
    return found


class Verdicts:
    """An environment whose verdict depends on the task and the seed, and not on what is answered: "green" is always
    solved, "red" by every other seed, the others never."""

    def __init__(self) -> None:
        self._open: dict[Any, float] = {}

    async def behave(self, socket: Any, frame: dict[str, Any], _turn: int) -> str:
        if frame["type"] == "reset":
            messages, seed = frame["data"]["task"]["messages"], frame["data"]["seed"]
            word = messages[0]["content"].split()[1]
            self._open[socket] = float(word == "green" or (word == "red" and seed % 2 == 0))
            return observation(messages=messages)
        verdict = self._open[socket]
        return observation(messages=[], done=True, reward=verdict, reward_parts={"task_success": verdict})


def few(draws: int) -> str:
    return f"At most {draws} are drawn from here on, so hardly any comes twice, and little is gained by it."


def lines(job: Job) -> list[str]:
    return [event.message for event in of_type(job.run_dir, "log") if "pass rate" in event.message]


def test_a_run_draws_what_teaches_and_says_so(make_job: MakeJob) -> None:
    with scripted_server(Verdicts().behave) as url:
        run = {"max_steps": 5, "save_every": 5}
        evaluate = {"every": 5, "share": 0.25}
        data = {**PASS_RATE, "draw_even_share": 0.0}
        job = make_job(environment={"url": url}, run=run, data=data, evaluate=evaluate)
        run_grpo(job)
    assert lines(job) == [f"Tasks are drawn by their pass rate: 0 of 20 have been played before. {few(10)}"]
    figures = [event.values for event in of_type(job.run_dir, "metrics") if "loss" in event.values]
    assert figures[0]["tasks/new_share"] == 1.0
    distinct = [values["tasks/drawn_distinct"] for values in figures]
    assert distinct == sorted(distinct) and distinct[0] == 2.0 and len(figures) == 5
    (held,) = of_type(job.run_dir, "tasks_held_out")
    rows = {row for step in rows_by_step(job.run_dir).values() for row in step}
    assert len(held.rows) == 4 and not rows & set(held.rows) and len(rows) == distinct[-1]
    (folder,) = numbered(job.run_dir)
    assert verify(folder) is not None
    memory = read_memory(folder)
    assert memory is not None and (memory.samplings, len(memory.tasks)) == (5, distinct[-1])
    assert sum(each.rollouts for each in memory.tasks.values()) == pytest.approx(5 * 8, rel=0.2)


def test_a_run_in_order_keeps_no_memory_and_says_nothing(make_job: MakeJob) -> None:
    with scripted_server() as url:
        job = make_job(environment={"url": url}, run={"max_steps": 2, "save_every": 2})
        run_grpo(job, scorer=by_length)
        later = make_job(
            "later",
            environment={"url": url},
            run={"max_steps": 3, "save_every": 3},
            data=PASS_RATE,
            resume_from=job.run_dir / "checkpoint-2",
        )
        run_grpo(later, scorer=by_length)
    assert not (job.run_dir / "checkpoint-2" / TASKS_NAME).exists() and lines(job) == []
    assert not any(name.startswith("tasks/") for e in of_type(job.run_dir, "metrics") for name in e.values)
    message = "Tasks are drawn by their pass rate: 0 of 24 have been played before."
    assert lines(later) == [f"{message} {few(2)} checkpoint-2 remembers no tasks."]
    (warning,) = [e for e in of_type(later.run_dir, "log") if "pass rate" in e.message]
    assert warning.level == "warning"


def test_a_run_that_was_cut_draws_the_same_tasks_bitwise(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Four updates of a sampling; killed within one, and stopped while the next one was being trained on."""
    data = {**PASS_RATE, "draw_half_life": 3}
    optim = {"mini_batch_size": 4, "schedule": "cosine", "learning_rate": 3e-3}
    instants = [after_update(3, "kill"), after_update(5, "stop")]
    over = {"data": data, "optim": optim, "grpo": {"num_iterations": 1}, "run": {"max_steps": 8, "save_every": 2}}
    over["run"] |= {"threads": 1}  # type: ignore[operator]
    resumed_run(make_job, monkeypatch, instants, **over)
    attempts = sorted((tmp_path / "cut").iterdir())
    whole = rows_by_step(tmp_path / "whole")
    assert rows_by_step(*attempts) == whole and len(whole) == 4
    assert len({tuple(rows) for rows in whole.values()}) > 1
    assert [line for path in attempts for e in of_type(path, "log") if "pass rate" in (line := e.message)][1:] != []


@pytest.mark.slow
def test_tasks_played_ahead_are_the_same_after_a_break(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling k is drawn once k − 2 was taken; the checkpoint after 3 knows what was drawn for 4 and 5."""
    over: dict[str, Any] = {"rollout": {"max_staleness": 2}, "run": {"max_steps": 7, "save_every": 3}}
    over["data"] = {**PASS_RATE, "draw_even_share": 0.0}
    jobs = {}
    with scripted_server(Verdicts().behave) as url:
        for name in ("whole", "first", "second"):
            resume_from = jobs["first"].run_dir if name == "second" else None
            with vllm_job(make_job, starter_folder, name, resume_from=resume_from, **over) as (job, _stub, _behind):
                job.config.environment.url = url
                jobs[name] = job
                if name == "first":
                    stop_after(job, 3, monkeypatch)
                with contextlib.suppress(StopRequested):
                    run_grpo(job)
    memory = read_memory(jobs["whole"].run_dir / "checkpoint-3")
    assert memory is not None and sorted(memory.planned) == [4, 5] and memory.samplings == 3
    assert of_type(jobs["second"].run_dir, "run_started")[0].from_step == 3
    whole = rows_by_step(jobs["whole"].run_dir)
    assert rows_by_step(jobs["first"].run_dir, jobs["second"].run_dir) == whole and len(whole) == 7
    assert read_memory(jobs["second"].run_dir / "checkpoint-7") == read_memory(jobs["whole"].run_dir / "checkpoint-7")


def test_stages_share_what_is_known_of_the_tasks_they_share(make_job: MakeJob, tmp_path: Path) -> None:
    server = Server()
    with scripted_server(server.behave) as url:
        stages = [
            {"name": "first", "until_step": 3, "data": {"train": tasks(tmp_path, "few", ("red", "green"))}},
            {"name": "second", "data": {"train": tasks(tmp_path, "more", ("blue", "green", "red", "pink"))}},
        ]
        over = {"run": {"max_steps": 5, "save_every": 5}, "data": PASS_RATE}
        job = staged(make_job, url, stages, **over)
        run_grpo(job, scorer=by_length)
    assert lines(job) == [
        "Tasks are drawn by their pass rate: 0 of 2 have been played before.",
        f"Tasks are drawn by their pass rate: 2 of 4 have been played before. {few(4)}",
    ]
    memories = [read_memory(job.run_dir / f"checkpoint-{step}") for step in (3, 5)]
    assert [(m.stage, m.samplings, m.planned) for m in memories if m] == [("first", 3, {}), ("second", 5, {})]
    assert asked(server) >= {"red", "green"}


def test_refilled_groups_are_remembered(make_job: MakeJob) -> None:
    with scripted_server() as url:
        rollout = {"prompts_per_step": 2, "num_generations": 2, "refill_rounds": 2}
        job = make_job(
            environment={"url": url},
            rewards={"components": COMPONENTS},
            rollout=rollout,
            run={"max_steps": 1, "save_every": 1},
            data=PASS_RATE,
        )
        run_grpo(job, scorer=lambda _episode: Score(parts={"task_success": 1.0}, total=1.0))
    (metrics,) = [event.values for event in of_type(job.run_dir, "metrics")]
    assert metrics["rollouts/extra"] == 2 * 2 * 2 and metrics["tasks/drawn_distinct"] == 6.0
    played = {event.group: event.row for event in of_type(job.run_dir, "rollout_started")}
    config, rows = job.config, load_rows(Path(job.config.data.train))
    again = Drawing(config.data, rows, range(len(rows)), config.run.seed)
    assert [played[group] for group in sorted(played)] == again.tasks_of(1, 2, 4) + again.spare_of(1, 2)
