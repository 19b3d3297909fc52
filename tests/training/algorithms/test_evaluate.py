"""Evaluation: each task equally often, paired by its seeds, replayed where it failed; what is missing is never 0."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from envs.wire import Message, ResetRequest
from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import echo_behaviour, error, observation, of_type, scripted_server
from training.algorithms.job import Job
from training.algorithms.playing import run_evaluate
from training.errors import StopRequested, TooManyFailures
from training.journal import Event
from training.rollout.rewinding import Past, Recording, Taken, write_past

pytestmark = pytest.mark.usefixtures("no_health")


def evaluation(make_job: MakeJob, url: str, name: str = "run", **groups: Any) -> Job:
    groups["evaluate"] = {"policy": "claim_success", **groups.get("evaluate", {})}
    groups["rollout"] = {"prompts_per_step": 4, "num_generations": 3, "max_turns": 2, **groups.get("rollout", {})}
    return make_job(name, kind="evaluate", environment={"url": url}, **groups)


class Server:
    """An environment that remembers the episodes it was asked for, by the task's words."""

    def __init__(self) -> None:
        self.resets: dict[str, list[int]] = defaultdict(list)
        self.fails = 0
        self.slow = ""
        self.ends: list[str] = []

    async def behave(self, socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            task = frame["data"]["task"]["messages"][0]["content"] if "task" in frame["data"] else json.dumps(frame)
            socket.task = task
            self.resets[task].append(frame["data"]["seed"])
            return await echo_behaviour(socket, frame, turn)
        if self.fails:
            self.fails -= 1
            return error("EXECUTION_ERROR", "it broke")
        if socket.task == self.slow:
            await asyncio.sleep(1.0)
        self.ends.append(socket.task)
        return observation(messages=[], done=True, reward=1.0, reward_parts={"task_success": 1.0})


def test_every_task_is_played_the_same_number_of_times(make_job: MakeJob, tmp_path: Path) -> None:
    server = Server()
    with scripted_server(server.behave) as url:
        run_evaluate(evaluation(make_job, url, evaluate={"tasks": 10}))
    started, finished = of_type(tmp_path / "run", "rollout_started"), of_type(tmp_path / "run", "rollout_finished")
    tries = Counter(event.row for event in started)
    assert len(tries) == 10 and set(tries.values()) == {3} and len(finished) == 30
    assert list(tries) == sorted(tries) and tries.keys() < set(range(24))
    metrics = of_type(tmp_path / "run", "metrics")
    assert [event.step for event in metrics] == [1, 2, 3]
    assert [event.values["rollouts/task_success"] for event in metrics] == [1.0, 1.0, 1.0]
    begun = of_type(tmp_path / "run", "run_started")[0]
    assert (begun.kind, begun.total_steps, begun.rows, begun.device) == ("evaluate", 3, 10, "none")
    assert {event.policy for event in started} == {"claim_success"}


def test_contestants_meet_the_same_episodes_however_they_are_played(make_job: MakeJob, tmp_path: Path) -> None:
    """Paired: the same tasks, and for each try of a task the same seed, for any steps and any contestant."""
    rows, seeds = [], []
    for name, size, policy in (("a", 4, "claim_success"), ("b", 7, "empty"), ("c", 1, "claim_success")):
        server = Server()
        with scripted_server(server.behave) as url:
            groups = {"rollout": {"prompts_per_step": size}, "evaluate": {"tasks": 9, "policy": policy}}
            run_evaluate(evaluation(make_job, url, name, **groups))
        rows.append(sorted({event.row for event in of_type(tmp_path / name, "rollout_started")}))
        seeds.append({task: set(found) for task, found in server.resets.items()})
    assert rows[0] == rows[1] == rows[2] and seeds[0] == seeds[1] == seeds[2]
    of_rows = evaluation(make_job, "http://x", "d").config
    assert of_rows.policies == ["claim_success"] * 3


def test_what_fails_outside_the_policy_is_played_again(make_job: MakeJob, tmp_path: Path) -> None:
    server = Server()
    server.fails = 2
    with scripted_server(server.behave) as url:
        run_evaluate(evaluation(make_job, url, evaluate={"tasks": 4}))
    finished = of_type(tmp_path / "run", "rollout_finished")
    assert {event.status for event in finished} == {"completed"} and len(finished) == 12
    again = [event.again for event in of_type(tmp_path / "run", "rollout_started") if event.again]
    assert len(again) == 2


def test_what_fails_every_time_is_missing_and_not_zero(make_job: MakeJob, tmp_path: Path) -> None:
    server = Server()
    server.fails = 1
    with scripted_server(server.behave) as url:
        run_evaluate(evaluation(make_job, url, evaluate={"tasks": 4, "replays": 0}))
    missing = [event for event in of_type(tmp_path / "run", "rollout_finished") if event.status == "excluded"]
    assert [(event.reward, event.parts) for event in missing] == [(None, {})]
    assert of_type(tmp_path / "run", "metrics")[0].values["rollouts/task_success"] == 1.0


def test_an_environment_that_always_fails_pauses_the_run(make_job: MakeJob) -> None:
    server = Server()
    server.fails = 10_000
    with scripted_server(server.behave) as url, pytest.raises(TooManyFailures):
        run_evaluate(evaluation(make_job, url, evaluate={"replays": 1}))


def test_a_slow_rollout_delays_no_other_step(make_job: MakeJob, tmp_path: Path) -> None:
    """The slowest task of the first step ends after rollouts of the third have."""
    server = Server()
    server.slow = "Say red please."
    with scripted_server(server.behave) as url:
        run_evaluate(
            evaluation(make_job, url, rollout={"prompts_per_step": 2, "num_generations": 4}, evaluate={"tasks": 0})
        )
    first_slow = server.ends.index(server.slow)
    assert len(server.ends) == 96 and first_slow >= 12  # the first step has 8
    assert [event.step for event in of_type(tmp_path / "run", "metrics")] == list(range(1, 13))


class StopsAt:
    """Sets a job's stop flag once a step's figures are written."""

    def __init__(self, job: Job, step: int) -> None:
        self._job, self._step, self._write = job, step, job.journal.write

    def put(self) -> None:
        """Listen to the job's journal."""
        self._job.journal.write = self  # type: ignore[method-assign,assignment]

    def __call__(self, event: Event) -> None:
        self._write(event)
        if event.type == "metrics" and event.step == self._step:  # type: ignore[attr-defined]
            self._job.stop.set()


def test_a_second_attempt_continues_after_the_last_finished_step(make_job: MakeJob, tmp_path: Path) -> None:
    with scripted_server(Server().behave) as url:
        first = evaluation(make_job, url, "run/1")
        StopsAt(first, 2).put()
        with pytest.raises(StopRequested):
            run_evaluate(first)
        first.journal.close()
        second = evaluation(make_job, url, "run/2")
        second.attempt, second.earlier = 2, (tmp_path / "run" / "1",)
        run_evaluate(second)
    assert [event.step for event in of_type(tmp_path / "run" / "2", "metrics")] == [3, 4, 5, 6]
    begun = of_type(tmp_path / "run" / "2", "run_started")[0]
    assert (begun.from_step, begun.total_steps) == (2, 6)


def test_a_model_plays(make_job: MakeJob, tmp_path: Path) -> None:
    with scripted_server() as url:
        short = {"prompts_per_step": 2, "num_generations": 2, "max_turn_tokens": 12}
        run_evaluate(evaluation(make_job, url, rollout=short, evaluate={"tasks": 3, "policy": "none"}))
    finished = of_type(tmp_path / "run", "rollout_finished")
    assert len(finished) == 6 and all(event.tokens for event in finished)
    assert len(of_type(tmp_path / "run", "sampler_checked")) == 1


def test_what_came_out_is_left_as_json(make_job: MakeJob, tmp_path: Path) -> None:
    """Also what an earlier attempt played; by hand: 6 tasks, one of 18 tries missing."""
    server = Server()
    with scripted_server(server.behave) as url:
        groups: dict[str, Any] = {"evaluate": {"tasks": 6, "replays": 0}, "rollout": {"prompts_per_step": 3}}
        server.fails = 1
        first = evaluation(make_job, url, "run/1", **groups)
        StopsAt(first, 1).put()
        with pytest.raises(StopRequested):
            run_evaluate(first)
        first.journal.close()
        second = evaluation(make_job, url, "run/2", **groups)
        second.attempt, second.earlier = 2, (tmp_path / "run" / "1",)
        run_evaluate(second)
    report = json.loads((tmp_path / "run" / "2" / "evaluation.json").read_text())
    assert {name: report[name] for name in ("tasks", "missing_tasks", "tries", "excluded")} == {
        "tasks": 6,
        "missing_tasks": 0,
        "tries": 17,
        "excluded": 1,
    }
    success = report["figures"]["success"]
    assert (success["value"], success["tasks"], success["high"]) == (1.0, 6, 1.0)
    assert success["low"] == pytest.approx(6 / (6 + 1.959964**2))  # Wilson's for six of six
    assert report["figures"]["pass^3"]["tasks"] == 5 and report["figures"]["turns"]["value"] == 1.0
    messages = [event.message for event in of_type(tmp_path / "run" / "2", "log")]
    assert (
        messages[0].startswith("success: 1 (95%: 0.6097 to 1) over 6 tasks") and "1 tries are missing" in messages[-1]
    )


def test_a_task_that_does_not_fit_is_missing_and_not_left_out(make_job: MakeJob, tmp_path: Path) -> None:
    """Whose template needs more tokens than there are would otherwise be judged on the short tasks alone."""
    rows = [{"messages": [{"role": "user", "content": "word " * size}]} for size in (3, 400, 5)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": str(tmp_path / "long.jsonl")}
    with scripted_server(Server().behave) as url:
        run_evaluate(evaluation(make_job, url, data=data, rollout={"max_prompt_tokens": 100}))
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert (report["tasks"], report["missing_tasks"], report["tries"]) == (3, 1, 6)
    assert "1 tasks wholly" in of_type(tmp_path / "run", "log")[-1].message


def test_a_schedule_pays_what_it_ends_with(make_job: MakeJob, tmp_path: Path) -> None:
    """Weights followed the step that happened to be finished, so equal rollouts were paid unequally."""
    schedule = {"begin": 1, "end": 4, "last": 3.0}
    rewards = {"components": [{"name": "task_success", "weight": 1.0, "schedule": schedule}]}
    with scripted_server(Server().behave) as url:
        run_evaluate(evaluation(make_job, url, rewards=rewards))
    assert {event.reward for event in of_type(tmp_path / "run", "rollout_finished")} == {3.0}


def test_rollouts_that_continue_a_recorded_one_have_its_task_and_seed(make_job: MakeJob, tmp_path: Path) -> None:
    ask = Message(role="user", content="Say red please.")
    answer = Message(role="assistant", content="blue")
    reset = ResetRequest(task={"messages": []}, seed=4242, episode_id="recorded")
    past = Past(2, Recording(reset, [ask], [ask], [Taken(answer, [])]), [3])
    write_past(tmp_path / "past.json", past)
    server = Server()
    asked: list[dict[str, Any]] = []

    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] != "reset":
            asked.append(frame["data"])
            return observation(messages=[{"role": "user", "content": "again"}], done=len(asked) > 1, reward=1.0)
        return await server.behave(socket, frame, turn)

    with scripted_server(behave) as url:
        continued = {"continue_from": str(tmp_path / "past.json"), "tasks": 0}
        run_evaluate(evaluation(make_job, url, evaluate=continued, rollout={"num_generations": 1, "max_turns": 4}))
    assert list(server.resets.values()) == [[4242]] and asked[0]["message"] == "blue"
    started, finished = of_type(tmp_path / "run", "rollout_started"), of_type(tmp_path / "run", "rollout_finished")
    assert [event.row for event in started] == [2] and [(e.turns, e.status) for e in finished] == [(2, "completed")]
