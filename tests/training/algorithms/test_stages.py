"""Stages of one run on the real trainer: own tasks, rewards and options, and a cut run continues in its stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from envs.wire import Message
from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length
from tests.training.algorithms.test_held_out import Server
from tests.training.algorithms.test_resume import after_update, figures, resumed_run, stop_after
from tests.training.helpers import of_type, scripted_server, write_rows
from training.algorithms.checkpoints import StageMark, outdated, verify, write_whole
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.stages import StageProgress
from training.data.schema import Row
from training.errors import ConfigError, DataError, StopRequested

pytestmark = pytest.mark.usefixtures("no_health")

COLOURS, NUMBERS = ("red", "green", "blue"), ("12", "345", "6")
NO_SAVES = {"save_every": 0, "save_every_minutes": 0}


def tasks(folder: Path, name: str, words: tuple[str, ...]) -> str:
    rows = [Row(messages=[Message(role="user", content=f"Say {word} please.")]) for word in words]
    return str(write_rows(folder / f"{name}.jsonl", rows, prompts_only=True))


def staged(make_job: MakeJob, url: str, stages: list[dict[str, Any]], name: str = "run", **groups: Any) -> Job:
    groups = {"environment": {"url": url}, "rewards": {"components": COMPONENTS}, **groups}
    return make_job(name, curriculum={"stages": stages}, **groups)


def begun(job: Job) -> list[tuple[int, str, int, int, str]]:
    found = of_type(job.run_dir, "stage_started")
    return [(each.stage, each.name, each.began, each.step, each.why) for each in found]


def asked(server: Server) -> set[str]:
    return {json.loads(messages)[0]["content"].split()[1] for messages, _seed in server.asked}


def test_each_stage_has_its_own_tasks_environment_rewards_and_options(make_job: MakeJob, tmp_path: Path) -> None:
    one, two = Server(), Server()
    with scripted_server(one.behave) as first, scripted_server(two.behave) as second:
        stages = [
            {"name": "colours", "until_step": 2, "data": {"train": tasks(tmp_path, "colours", COLOURS)}},
            {
                "name": "numbers",
                "data": {"train": tasks(tmp_path, "numbers", NUMBERS)},
                "environment": {"url": second},
                "rewards": {"components": [{"name": "task_success", "weight": 1.0}]},
                "rollout": {"prompts_per_step": 3, "num_generations": 2},
                "optim": {"learning_rate": 1e-4, "weight_decay": 0.1},
            },
        ]
        held_out = {"every": 9, "share": 0.0, "data": tasks(tmp_path, "held-out", ("new", NUMBERS[0]))}
        job = staged(make_job, first, stages, run={"max_steps": 4, **NO_SAVES}, evaluate=held_out)
        run_grpo(job)
    assert asked(one) == {*COLOURS, "new"} and asked(two) == {*NUMBERS, "new"}
    assert [event.leaked for event in of_type(job.run_dir, "tasks_held_out")] == [1, 1]  # in stage 1 that of stage 2
    assert begun(job) == [(1, "colours", 0, 0, "first"), (2, "numbers", 2, 2, "steps")]
    sizes = dict.fromkeys(range(1, 5), 0)
    for event in of_type(job.run_dir, "rollout_started"):
        if not event.held_out:
            sizes[event.step] += 1
    assert sizes == {1: 8, 2: 8, 3: 6, 4: 6}
    values = {event.step: event.values for event in of_type(job.run_dir, "metrics") if "loss" in event.values}
    assert [values[step]["learning_rate"] for step in (1, 2, 3, 4)] == [1e-3, 1e-3, 1e-4, 1e-4]
    named = {step: "rewards/tool_call_correctness/mean" in found for step, found in values.items()}
    assert named == {1: True, 2: True, 3: False, 4: False}
    assert [event.from_step for event in of_type(job.run_dir, "run_started")] == [0]
    saved = [(event.step, event.final) for event in of_type(job.run_dir, "checkpoint")]
    assert saved == [(2, False), (4, False), (4, True)]  # where a stage ends, and the best evaluation of the last one
    manifest = verify(job.run_dir / "checkpoint-2")
    assert manifest is not None and manifest.stage == StageMark(number=1, name="colours", began=0, ended=True)


def test_moments_and_schedule_go_on_while_rate_and_decay_are_the_stages(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run was stopped in its second stage."""
    run, optim = {"max_steps": 4, "save_every": 1, "keep_last": 0}, {"schedule": "linear", "learning_rate": 1e-3}
    stages = [{"name": "a", "until_step": 2}, {"name": "b", "optim": {"learning_rate": 1e-4, "weight_decay": 0.25}}]
    with scripted_server() as url:
        first = staged(make_job, url, stages, "1", run=run, optim=optim)
        stop_after(first, 3, monkeypatch)
        with pytest.raises(StopRequested):
            run_grpo(first, scorer=by_length)
        second = staged(make_job, url, stages, "2", run=run, optim=optim, resume_from=first.run_dir)
        run_grpo(second, scorer=by_length)
    assert begun(first) == [(1, "a", 0, 0, "first"), (2, "b", 2, 2, "steps")]
    assert begun(second) == [(2, "b", 2, 3, "resumed")]
    rates = figures(first, "learning_rate") | figures(second, "learning_rate")
    assert rates == pytest.approx({1: 1e-3, 2: 0.75e-3, 3: 0.5e-4, 4: 0.25e-4})
    folders = [first.run_dir / "checkpoint-2", first.run_dir / "checkpoint-3", second.run_dir / "checkpoint-4"]
    states = [torch.load(folder / "optimizer.pt", weights_only=True) for folder in folders]
    assert [state["param_groups"][0]["weight_decay"] for state in states] == [0.0, 0.25, 0.25]
    assert {state["param_groups"][1]["weight_decay"] for state in states} == {0.0}
    steps = [{int(moment["step"]) for moment in state["state"].values()} for state in states]
    assert steps == [{2}, {3}, {4}]


@pytest.mark.slow
def test_a_run_cut_in_any_stage_is_bitwise_the_same(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four updates a sampling, then two: killed right after the change, within a sampling, and at its border."""
    stages = [
        {"name": "a", "until_step": 3},
        {
            "name": "b",
            "rollout": {"prompts_per_step": 3},
            "optim": {"mini_batch_size": 6, "learning_rate": 1e-3},
            "grpo": {"num_iterations": 1, "beta": 0.0},
        },
    ]
    instants = [after_update(2, "kill"), after_update(5, "kill"), after_update(7, "kill"), after_update(9, "stop")]
    over = {"curriculum": {"stages": stages}, "run": {"max_steps": 12, "save_every": 2, "threads": 1}}
    last = resumed_run(make_job, monkeypatch, instants, **over)
    attempts = sorted(last.run_dir.parent.iterdir())
    found = [[(each.name, each.began, each.why) for each in of_type(each, "stage_started")] for each in attempts]
    assert found == [
        [("a", 0, "first")],
        [("a", 0, "first"), ("b", 4, "steps")],  # until_step 3 is within a sampling: it ends at its border
        [("b", 4, "resumed")],
        [("b", 4, "resumed")],
        [("b", 4, "resumed")],
    ]


def by_step(server: Server, job: Job, successes: dict[int, float]) -> None:
    """Have the held-out tasks played after a step end with its success."""
    write = job.journal.write

    def watch(event: Any) -> None:
        write(event)
        if event.type == "phase":
            server.solved = [successes.get(event.step, 0.0) if event.phase == "evaluating" else 0.5]

    job.journal.write = watch  # type: ignore[method-assign]


GOAL = {"name": "a", "until": {"figure": "success", "at_least": 0.5, "times": 2}}
HELD_OUT = {"every": 1, "share": 0.3}


def test_a_held_out_figure_ends_a_stage_once_it_is_reached_often_enough(make_job: MakeJob) -> None:
    server = Server([0.0])
    with scripted_server(server.behave) as url:
        job = staged(
            make_job,
            url,
            [GOAL, {"name": "b"}],
            evaluate=HELD_OUT,
            run={"max_steps": 5, "keep_last": 0, **NO_SAVES},
        )
        by_step(server, job, {0: 1.0, 1: 1.0, 2: 0.4, 3: 0.5, 4: 0.6, 5: 0.3})
        run_grpo(job, scorer=by_length)
    assert begun(job) == [(1, "a", 0, 0, "first"), (2, "b", 4, 4, "figure")]
    best = [event.step for event in of_type(job.run_dir, "held_out_evaluated") if event.best]
    assert best == [0, 5]  # figures of another stage are no measure for this one
    manifest = verify(job.run_dir / "checkpoint-4")
    assert manifest is not None and manifest.stage == StageMark(number=1, name="a", began=0, streak=2, ended=True)


@pytest.mark.slow
def test_evaluations_in_a_row_are_counted_across_attempts(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    server, options = Server([0.0]), {"evaluate": HELD_OUT, "run": {"max_steps": 4, "save_every": 1}}
    with scripted_server(server.behave) as url:
        first = staged(make_job, url, [GOAL, {"name": "b"}], "1", **options)
        by_step(server, first, {1: 1.0})
        stop_after(first, 1, monkeypatch)
        with pytest.raises(StopRequested):
            run_grpo(first, scorer=by_length)
        second = staged(make_job, url, [GOAL, {"name": "b"}], "2", **options, resume_from=first.run_dir)
        second.earlier, second.attempt = (first.run_dir,), 2
        by_step(server, second, dict.fromkeys(range(5), 1.0))
        run_grpo(second, scorer=by_length)
    assert begun(second) == [(1, "a", 0, 1, "resumed"), (2, "b", 2, 2, "figure")]


def test_a_figure_that_is_never_reached_keeps_the_run_in_its_stage_and_says_so(make_job: MakeJob) -> None:
    server = Server([0.0])
    with scripted_server(server.behave) as url:
        job = staged(make_job, url, [GOAL, {"name": "b"}], evaluate=HELD_OUT, run={"max_steps": 2, **NO_SAVES})
        run_grpo(job, scorer=by_length)
    assert begun(job) == [(1, "a", 0, 0, "first")] and (job.run_dir / "model" / "manifest.json").exists()
    assert "The run ended in stage a; not reached: b." in [event.message for event in of_type(job.run_dir, "log")]


def test_what_is_wrong_with_the_last_stage_is_reported_before_the_first(make_job: MakeJob, tmp_path: Path) -> None:
    lost = {"name": "b", "data": {"train": str(tmp_path / "none.jsonl")}}
    job = staged(make_job, "", [{"name": "a", "until_step": 1}, lost])
    with pytest.raises(DataError):
        run_grpo(job)
    unknown = {"name": "b", "rewards": {"components": [{"name": "no_such_reward", "weight": 1.0}]}}
    with pytest.raises(ConfigError, match="no_such_reward"):
        run_grpo(staged(make_job, "", [{"name": "a", "until_step": 1}, unknown], "other"))
    assert of_type(job.run_dir, "rollout_started") == []


THREE = [{"name": "a", "until_step": 3}, {"name": "b", "until_step": 6}, {"name": "c"}]


@pytest.mark.parametrize(
    ("step", "mark", "stage_after"),
    [
        (2, StageMark(number=1, name="a", began=0), ("a", 0)),
        (3, StageMark(number=1, name="a", began=0, ended=True), ("b", 3)),
        (5, StageMark(number=2, name="b", began=3), ("b", 3)),
        (5, StageMark(number=7, name="c", began=4), ("c", 4)),  # the config had other stages before it
        (5, StageMark(number=1, name="b", began=3), ("b", 3)),  # the config had none before it
        (5, StageMark(number=1, name="gone", began=0), ("b", 5)),
        (5, None, ("b", 5)),  # a checkpoint of a run without stages
        (8, None, ("c", 8)),
        (7, StageMark(number=2, name="b", began=3), ("c", 7)),  # its end was earlier than it is now
    ],
)
def test_a_run_finds_its_stage_by_name_and_else_by_step(
    make_job: MakeJob, step: int, mark: StageMark | None, stage_after: tuple[str, int]
) -> None:
    job = staged(make_job, "", THREE, run={"max_steps": 10})
    folder = job.run_dir / f"checkpoint-{step}"
    write_whole(folder, step, lambda folder: None, stage=mark)
    StageProgress(job, folder)
    assert job.stage is not None and (job.stage.name, job.stage.began, job.stage.ended) == (*stage_after, False)


def test_the_best_checkpoint_is_one_of_the_latest_stage(tmp_path: Path) -> None:
    """Rewards of two stages do not compare: a format reward of 2 would always stay the best."""
    for step, number, reward in [(1, 1, 2.0), (2, 1, 1.0), (3, 2, 0.2), (4, 2, 0.5), (5, 2, 0.1)]:
        mark = StageMark(number=number, name=str(number), began=0)
        write_whole(tmp_path / f"checkpoint-{step}", step, lambda folder: None, reward, stage=mark)
    old, best = outdated(tmp_path, 1)
    assert best == tmp_path / "checkpoint-4" and sorted(path.name[-1] for path in old) == ["1", "2", "3"]
