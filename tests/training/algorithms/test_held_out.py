"""Held-out tasks: played with the current weights, never learned from, and the best weights are kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.algorithms.test_resume import figures, stop_after
from tests.training.helpers import demonstration_rows, observation, of_type, scripted_server, write_rows
from training.algorithms.checkpoints import verify
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.playing import run_evaluate
from training.config import JobConfig
from training.data.identity import split_rows
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, StopRequested
from training.rewards.base import Episode, Score

pytestmark = pytest.mark.usefixtures("no_health")


class Server:
    """An environment that solves or fails as set, and remembers the tasks it was asked for."""

    def __init__(self, solved: list[float] | None = None) -> None:
        self.solved = solved or []
        self.asked: list[tuple[str, int]] = []

    async def behave(self, socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            row = frame["data"]["task"]
            self.asked.append((json.dumps(row["messages"]), frame["data"]["seed"]))
            return observation(messages=row["messages"])
        success = self.solved[0] if self.solved else 1.0
        return observation(messages=[], done=True, reward=success, reward_parts={"task_success": success})


def grpo(make_job: MakeJob, url: str, name: str = "run", **groups: Any) -> Job:
    groups["evaluate"] = {"every": 2, "share": 0.3, **groups.get("evaluate", {})}
    return make_job(name, environment={"url": url}, rewards={"components": COMPONENTS}, **groups)


def played(job: Job) -> dict[bool, list[Any]]:
    found: dict[bool, list[Any]] = {True: [], False: []}
    for event in of_type(job.run_dir, "rollout_started"):
        found[event.held_out].append(event)
    return found


def test_held_out_tasks_are_played_before_between_and_after_and_never_trained_on(make_job: MakeJob) -> None:
    with scripted_server(Server().behave) as url:
        job = grpo(make_job, url, run={"max_steps": 3, "save_every": 0, "save_every_minutes": 0})
        run_grpo(job, scorer=by_length)
    rows = load_rows(Path(job.config.data.train))
    held = set(split_rows(rows, 0.3).held_out)
    split = of_type(job.run_dir, "tasks_held_out")[0]
    assert (split.source, set(split.rows), split.leaked) == ("share", held, 0) and 2 < len(held) < 15
    by = played(job)
    assert {event.row for event in by[True]} == held and held.isdisjoint(event.row for event in by[False])
    assert Counter(event.step for event in by[True]) == {0: len(held), 2: len(held), 3: len(held)}
    assert of_type(job.run_dir, "run_started")[0].rows == len(rows) - len(held)
    reports = of_type(job.run_dir, "held_out_evaluated")
    assert [event.step for event in reports] == [0, 2, 3]
    assert [event.best for event in reports] == [True, False, False]  # all are 1.0: only the first is news
    assert reports[0].report["tasks"] == len(held) and reports[0].report["figures"]["success"]["value"] == 1.0
    values = [event.values for event in of_type(job.run_dir, "metrics") if "heldout/success" in event.values]
    assert len(values) == 3 and all(each["heldout/success_low"] < 1.0 for each in values)
    groups = {(event.step, name) for event in of_type(job.run_dir, "group_scored") for name in event.rollouts}
    assert {name for _step, name in groups} == {event.rollout for event in by[False]}


def test_an_evaluation_changes_nothing_of_the_training(make_job: MakeJob) -> None:
    """The same seed, with and without: the same losses and the same weights."""
    with scripted_server(Server().behave) as url:
        with_it = grpo(make_job, url, "with", run={"max_steps": 3})
        run_grpo(with_it, scorer=by_length)
        without = grpo(make_job, url, "without", run={"max_steps": 3}, evaluate={"every": 0})
        run_grpo(without, scorer=by_length)
    steps = [event for event in of_type(with_it.run_dir, "metrics") if "loss" in event.values]
    losses = {event.step: event.values["loss"] for event in steps}
    assert losses == pytest.approx(figures(without, "loss"), rel=1e-6)
    one, other = parameters_of(with_it.run_dir / "model"), parameters_of(without.run_dir / "model")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_checkpoint_with_the_highest_held_out_success_is_kept(make_job: MakeJob) -> None:
    """Its reward is the lowest of all: it is kept for what it solves."""
    server = Server([0.0])

    with scripted_server(server.behave) as url:
        job = grpo(
            make_job,
            url,
            run={"max_steps": 6, "save_every": 1, "save_every_minutes": 0, "keep_last": 1},
            evaluate={"every": 1},
        )
        write = job.journal.write

        def watch(event: Any) -> None:
            write(event)
            if event.type == "phase" and event.phase == "evaluating":
                server.solved = [1.0 if event.step == 2 else 0.0]
            elif event.type == "phase":
                server.solved = [0.0 if event.step == 2 else 1.0]

        job.journal.write = watch  # type: ignore[method-assign]
        run_grpo(job)
    left = sorted(path.name for path in job.run_dir.glob("checkpoint-*"))
    assert left == ["checkpoint-2", "checkpoint-6"]
    manifest = verify(job.run_dir / "checkpoint-2")
    assert manifest is not None and manifest.held_out == 1.0
    assert [event.step for event in of_type(job.run_dir, "held_out_evaluated") if event.best] == [0, 2]


def test_a_new_best_is_saved_though_no_checkpoint_is_due(make_job: MakeJob) -> None:
    server = Server([0.0])
    with scripted_server(server.behave) as url:
        job = grpo(make_job, url, run={"max_steps": 4, "save_every": 0, "save_every_minutes": 0})
        write = job.journal.write

        def watch(event: Any) -> None:
            write(event)
            if event.type == "phase" and event.phase == "evaluating":
                server.solved = [1.0 if event.step == 2 else 0.0]

        job.journal.write = watch  # type: ignore[method-assign]
        run_grpo(job)
    saved = [(event.step, event.held_out) for event in of_type(job.run_dir, "checkpoint") if not event.final]
    assert saved == [(2, 1.0)]


def test_a_resumed_run_evaluates_what_is_left_and_remembers_the_best(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server(Server().behave) as url:
        options: dict[str, Any] = {"run": {"max_steps": 6, "save_every": 3}}
        first = grpo(make_job, url, "1", **options)
        stop_after(first, 3, monkeypatch)
        with pytest.raises(StopRequested):
            run_grpo(first, scorer=by_length)
        second = grpo(make_job, url, "2", **options, resume_from=first.run_dir / "checkpoint-3")
        second.earlier, second.attempt = (first.run_dir,), 2
        run_grpo(second, scorer=by_length)
    assert [event.step for event in of_type(first.run_dir, "held_out_evaluated")] == [0, 2]
    again = of_type(second.run_dir, "held_out_evaluated")
    assert [(event.step, event.best) for event in again] == [(4, False), (6, False)]


def test_a_stop_in_the_middle_of_an_evaluation_keeps_what_was_trained(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server(Server().behave) as url:
        job = grpo(make_job, url, run={"max_steps": 4, "save_every": 0, "save_every_minutes": 60})
        write = job.journal.write

        def watch(event: Any) -> None:
            write(event)
            if event.type == "phase" and event.phase == "evaluating" and event.step == 2:
                job.stop.set()

        monkeypatch.setattr(job.journal, "write", watch)
        with pytest.raises(StopRequested):
            run_grpo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "held_out_evaluated")] == [0]
    saved = of_type(job.run_dir, "checkpoint")
    assert [(event.step, event.held_out) for event in saved] == [(2, None)]


def test_another_dataset_is_played_without_what_is_trained_on(make_job: MakeJob, tmp_path: Path) -> None:
    new = [Row(messages=[Message(role="user", content=f"Say {word} please.")]) for word in ("seven", "eight", "nine")]
    other = write_rows(tmp_path / "other.jsonl", [demonstration_rows()[3], *new], prompts_only=True)
    with scripted_server(Server().behave) as url:
        job = grpo(
            make_job,
            url,
            run={"max_steps": 1},
            evaluate={"every": 5, "share": 0.0, "data": str(other), "samples": 2},
        )
        run_grpo(job, scorer=by_length)
    split = of_type(job.run_dir, "tasks_held_out")[0]
    assert split.source == "dataset" and (split.leaked, split.rows) == (1, [1, 2, 3])
    assert Counter(event.row for event in played(job)[True]) == dict.fromkeys(split.rows, 4)  # 2 tries, 2 steps


def test_nothing_left_on_a_side_is_refused_before_training(make_job: MakeJob, tmp_path: Path) -> None:
    same = write_rows(tmp_path / "same.jsonl", demonstration_rows(), prompts_only=True)
    with scripted_server(Server().behave) as url:
        job = grpo(make_job, url, evaluate={"share": 0.0, "data": str(same)})
        with pytest.raises(ConfigError, match="Every task of the held-out dataset"):
            run_grpo(job, scorer=by_length)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({"every": 5}, "say what is held out"), ({"every": 5, "share": 0.1, "data": "x.jsonl"}, "not both")],
)
def test_what_is_held_out_must_be_given_once(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        JobConfig.model_validate({"evaluate": options})


def test_an_evaluation_of_the_same_share_plays_the_same_tasks(make_job: MakeJob) -> None:
    """So the final model can be evaluated on what its training held out, paired with the evaluations within it."""
    server = Server()
    with scripted_server(server.behave) as url:
        job = grpo(make_job, url, "same", run={"max_steps": 1}, evaluate={"every": 5})
        run_grpo(job, scorer=by_length)
        within = set(server.asked[: len(played(job)[True]) // 2])
        server.asked.clear()
        job = make_job(
            "same", kind="evaluate", environment={"url": url}, rollout={"num_generations": 1}, evaluate={"share": 0.3}
        )
        run_evaluate(job)
    assert set(server.asked) == within


def test_a_refill_draws_from_all_tasks_and_never_from_those_held_out(make_job: MakeJob) -> None:
    """Of a short run too: its order reaches two tasks alone, and each resumed run must draw the same."""

    def flat(_episode: Episode) -> Score:
        return Score(parts={"env_success": 0.5}, total=0.5)

    with scripted_server() as url:
        over = {"evaluate": {"every": 1, "share": 0.25}, "rollout": {"refill_rounds": 3}, "run": {"max_steps": 1}}
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, **over)
        run_grpo(job, scorer=flat)
    (held,) = of_type(job.run_dir, "tasks_held_out")
    played = {e.group: e.row for e in of_type(job.run_dir, "rollout_started") if not e.held_out}
    assert sorted(played) == list(range(8))  # two places, and three rounds of two
    assert len(set(played.values())) == 8 and not set(played.values()) & set(held.rows)
