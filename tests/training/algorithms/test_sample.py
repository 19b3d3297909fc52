"""Sampling: rollouts, groups and figures by value, nothing trained; stop and a second attempt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import echo_behaviour, job_config, observation, of_type, scripted_server
from training.algorithms.job import Job
from training.algorithms.playing import run_sample
from training.errors import ConfigError, EnvironmentUnreachable, StopRequested
from training.journal import Event, Metrics
from training.rewards.combining import group_statistics

pytestmark = pytest.mark.usefixtures("no_health")

POLICIES = ["empty", "one_tool", "claim_success"]


async def believes_words(socket: Any, frame: dict[str, Any], turn: int) -> str:
    """An environment that takes a claim for the deed."""
    answer = await echo_behaviour(socket, frame, turn)
    claimed = "completed" in frame["data"].get("message", "")
    if frame["type"] == "reset" or frame["data"]["tool_calls"] or claimed:
        return answer
    return observation(messages=[], done=True, reward=0.0, reward_parts={"task_success": 0.0})


def sample(make_job: MakeJob, url: str, name: str = "run", **groups: Any) -> Job:
    groups = {"sample": {"policies": POLICIES}, "rollout": {"max_turns": 2, "max_turn_tokens": 48}, **groups}
    return make_job(name, kind="sample", environment={"url": url}, **groups)


def test_policies_play_their_groups_and_every_figure_follows(make_job: MakeJob, tmp_path: Path) -> None:
    with scripted_server(believes_words) as url:
        job = sample(make_job, url, rewards={"components": [{"name": "task_success", "weight": 2.0}]})
        run_sample(job)
    job.journal.close()
    started, finished = of_type(tmp_path / "run", "rollout_started"), of_type(tmp_path / "run", "rollout_finished")
    assert [(event.group, event.index, event.policy) for event in started[:6]] == [
        (group, index, POLICIES[index]) for group in (0, 1) for index in range(3)
    ]
    assert len(started) == len(finished) == 2 * 2 * 3 and all(event.row is not None for event in started)
    policy = {event.rollout: event.policy for event in started}
    rewards = {policy[event.rollout]: event.reward for event in finished}
    assert rewards == {"empty": 0.0, "one_tool": 0.0, "claim_success": 2.0}
    assert {policy[e.rollout]: e.status for e in finished} == {
        "empty": "completed",
        "one_tool": "truncated",
        "claim_success": "completed",
    }
    metrics = of_type(tmp_path / "run", "metrics")
    assert [event.step for event in metrics] == [1, 2]
    for event in metrics:
        values = event.values
        assert values["reward"] == pytest.approx(2 / 3)
        assert values["rewards/task_success/mean"] == pytest.approx(1 / 3)
        assert (values["groups/pass_share"], values["groups/best_reward_mean"]) == (1.0, 2.0)
        assert values["groups/zero_variance_share"] == 0.0 and values["rollouts/excluded"] == 0.0
        assert values["completions/min_length"] == 1.0
    groups = of_type(tmp_path / "run", "group_scored")
    assert groups[0].advantages == group_statistics([0.0, 0.0, 2.0]).advantages
    begun = of_type(tmp_path / "run", "run_started")[0]
    assert (begun.kind, begun.total_steps, begun.from_step, begun.device) == ("sample", 2, 0, "none")
    assert of_type(tmp_path / "run", "checkpoint") == []


def test_a_model_plays_without_being_trained(make_job: MakeJob, tmp_path: Path) -> None:
    with scripted_server() as url:
        short = {"prompts_per_step": 1, "max_turns": 2, "max_turn_tokens": 12}
        job = sample(make_job, url, sample={}, run={"max_steps": 1}, rollout=short)
        run_sample(job)
    job.journal.close()
    rollouts = of_type(tmp_path / "run", "rollout_finished")
    assert len(rollouts) == 4 and {event.policy for event in of_type(tmp_path / "run", "rollout_started")} == {""}
    assert all(event.tokens > 0 and event.status in ("completed", "truncated") for event in rollouts)
    assert {event.phase for event in of_type(tmp_path / "run", "phase")} == {"preparing", "generating", "scoring"}
    values = of_type(tmp_path / "run", "metrics")[0].values
    assert values["reward"] == pytest.approx(sum(event.reward for event in rollouts) / 4)
    assert not any(name.startswith(("loss", "kl", "timing/training")) for name in values)
    assert not (tmp_path / "run" / "model").exists()


def test_without_a_dataset_the_environment_draws_the_tasks(make_job: MakeJob, tmp_path: Path) -> None:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            asked.append((frame["data"]["task"], frame["data"]["seed"]))
            return observation(messages=[{"role": "user", "content": f"Task {frame['data']['seed']}"}])
        return await echo_behaviour(socket, frame, turn)

    asked: list[tuple[dict[str, Any], int]] = []
    with scripted_server(behave) as url:
        job = sample(make_job, url, data={"train": ""}, sample={"policies": ["beg", "empty"]})
        run_sample(job)
    assert {str(task) for task, _seed in asked} == {"{}"}
    seeds = [seed for _task, seed in asked]
    assert len(seeds) == 8 and len(set(seeds)) == 4, "a group shares its task"
    assert {event.row for event in of_type(tmp_path / "run", "rollout_started")} == {None}
    with pytest.raises(ConfigError, match="needs an environment"):
        run_sample(sample(make_job, "", "none", data={"train": ""}))
    with pytest.raises(ConfigError, match="no starter model"):
        run_sample(sample(make_job, url, "starter", data={"train": ""}, sample={}, model={"source": "starter"}))


def test_a_stopped_run_continues_after_its_last_step(make_job: MakeJob, tmp_path: Path) -> None:
    """Earlier attempts were guessed by folders named 1, 2, … next to the run's own."""
    with scripted_server() as url:
        first = sample(make_job, url, "first", run={"max_steps": 3})
        write = first.journal.write

        def stop_after_two(event: Event) -> None:
            write(event)
            if isinstance(event, Metrics) and event.step == 2:
                first.stop.set()

        first.journal.write = stop_after_two  # type: ignore[method-assign]
        with pytest.raises(StopRequested):
            run_sample(first)
        second = sample(make_job, url, "second", run={"max_steps": 3})
        second.attempt, second.earlier = 2, (tmp_path / "gone", first.run_dir)
        run_sample(second)
    assert [event.step for event in of_type(tmp_path / "first", "metrics")] == [1, 2]
    assert [event.step for event in of_type(tmp_path / "second", "metrics")] == [3]
    assert of_type(tmp_path / "second", "run_started")[0].from_step == 2


def test_a_dead_environment_ends_the_run_with_its_error(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(EnvironmentUnreachable):
        run_sample(
            make_job(
                kind="sample", environment={"url": "http://127.0.0.1:9", "patience_s": 0}, sample={"policies": POLICIES}
            )
        )


def test_scripted_policies_load_no_training_library() -> None:
    code = (
        "import sys, training.main, training.algorithms.playing, training.__main__; "
        "print(sorted({'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_group_has_one_rollout_of_each_policy() -> None:
    config = job_config(kind="sample", sample={"policies": ["beg"]}, rollout={"num_generations": 8})
    assert (config.group_size, config.rollouts_per_step) == (1, 2)
    assert job_config(sample={"policies": ["beg"]}).policies == [], "only a sample has policies"
    with pytest.raises(ValidationError, match="each policy may appear once"):
        job_config(kind="sample", sample={"policies": ["beg", "beg"]})
    with pytest.raises(ValidationError, match=r"sample\.policies\.0"):
        job_config(kind="sample", sample={"policies": ["win"]})
