"""A step of rollouts: masks by value, retries, exclusions, and that one bad environment never holds up the others."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import (
    Behaviour,
    ScriptedEngine,
    call_text,
    demonstration_rows,
    echo_behaviour,
    error,
    job_config,
    observation,
    of_type,
    scripted_server,
)
from training.config import JobConfig
from training.dialects import DIALECTS
from training.errors import RewardFault, StopRequested, TooManyFailures
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rollout.client import SocketSession
from training.rollout.collector import Collector
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player, StepRollouts

FAST = {"connect_timeout_s": 1.0, "reset_timeout_s": 0.5, "step_timeout_s": 0.5}


def success(episode: Episode) -> Score:
    value = episode.env_reward
    if value is None:
        raise RewardFault("no verdict")
    return Score(parts={"task_success": value}, total=value)


@pytest.fixture(autouse=True)
def _no_wait_after_bad_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_holding.py`` looks at the wait itself."""
    monkeypatch.setattr("training.rollout.holding.BAD_STEP_S", 0.0)


class Bench:
    """A collector with a scripted engine and, unless ``url`` is empty, an environment."""

    def __init__(self, tmp_path: Path, tokenizer: Any, url: str, **over: Any) -> None:
        groups: dict[str, Any] = over.pop("config", {})
        groups["environment"] = {"url": url, **FAST, **groups.get("environment", {})}
        self.config: JobConfig = job_config(**groups)
        self.engine = over.pop("engine", None) or ScriptedEngine(tokenizer, [call_text("hi"), "It is hi."])
        self.stop = threading.Event()
        self.journal = Journal(tmp_path)
        self.path = tmp_path
        player = Player(
            engine=self.engine,
            template=ChatTemplate(tokenizer),
            parse=DIALECTS["hermes"],
            rollout=self.config.rollout,
            environment=self.config.environment,
            open_session=self._open if url else None,
        )
        rows = [row.model_copy(update={"messages": row.messages[:1]}) for row in demonstration_rows(6)]
        scorer: Callable[[Episode], Score] = over.pop("scorer", success)
        self.collector = Collector(self.config, rows, player, scorer, self.journal, self.stop)

    async def _open(self) -> SocketSession:
        return await SocketSession(self.config.environment).__aenter__()

    def collect(self, step: int = 1) -> StepRollouts:
        size = self.config.rollout.num_generations
        return self.collector.collect(
            step, [i for i in range(self.config.rollout.prompts_per_step) for _ in range(size)]
        )

    def finished(self) -> list[Any]:
        self.journal.close()
        return of_type(self.path, "rollout_finished")


def test_returned_ids_are_the_sampled_ones_and_the_mask_marks_exactly_them(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url)
        result = bench.collect()
    first = result.rollouts[0].trajectory
    turns = {
        len(prompt): ids for prompt, ids in bench.engine.sampled if prompt[: len(first.prompt_ids)] == first.prompt_ids
    }
    sampled = [i for length in sorted(turns) for i in turns[length]]
    own = [i for i, mine in zip(first.completion_ids, first.mask, strict=True) if mine]
    others = [i for i, mine in zip(first.completion_ids, first.mask, strict=True) if not mine]
    assert own == sampled
    assert tokenizer.decode(own) == call_text("hi") + "<|im_end|>It is hi.<|im_end|>"
    assert tokenizer.decode(others) == "\n<|im_start|>tool\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [p == 0.0 for p in first.logprobs] == [not mine for mine in first.mask]
    assert len(first.completion_ids) == len(first.mask) == len(first.logprobs)
    # For its second turn the engine saw exactly the prompt and what was carried through.
    carried = first.prompt_ids + first.completion_ids[: -len(turns[max(turns)])]
    assert carried in [prompt for prompt, _ in bench.engine.sampled]


def test_events_tell_the_story_in_order(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url)
        bench.collect(step=5)
    ends = bench.finished()
    assert (
        len(ends) == 8
        and {e.status for e in ends} == {"completed"}
        and {e.parts["task_success"] for e in ends} == {1.0}
    )
    name = ends[0].rollout
    from tests.training.helpers import events

    story = [e for e in events(tmp_path) if getattr(e, "rollout", None) == name]
    assert [e.type for e in story] == ["rollout_started", "turn", "turn", "turn", "turn", "rollout_finished"]
    turns = story[1:-1]
    assert [t.turn for t in turns] == [0, 1, 2, 3]
    assert [[m.role for m in t.messages] for t in turns] == [["user"], ["assistant"], ["tool"], ["assistant"]]
    assert turns[1].tokens > 0 and turns[2].tokens == 0
    assert story[0].step == 5 and story[-1].turns == 2 and story[-1].tokens == turns[1].tokens + turns[3].tokens
    groups = of_type(tmp_path, "group_scored")
    assert sorted(g.group for g in groups) == [0, 1] and all(g.zero_variance for g in groups)
    phases = [e.phase for e in of_type(tmp_path, "phase")]
    assert phases == ["generating", "scoring"]


def test_a_turn_that_was_cut_ends_the_rollout_truncated(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server() as url:
        engine = ScriptedEngine(tokenizer, ["word " * 200])
        result = Bench(tmp_path, tokenizer, url, engine=engine).collect()
    trajectory = result.rollouts[0].trajectory
    assert trajectory.status == "truncated" and trajectory.turns == 1 and trajectory.sampled_tokens == 24
    assert trajectory.completion_ids[-1] != tokenizer.eos_token_id


def test_an_endless_caller_is_truncated_at_max_turns_and_still_gets_its_verdict(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server() as url:
        engine = ScriptedEngine(tokenizer, [call_text("again")])
        result = Bench(tmp_path, tokenizer, url, engine=engine).collect()
    assert {(r.trajectory.status, r.trajectory.turns) for r in result.rollouts} == {("truncated", 3)}
    assert result.figures["rollouts/excluded"] == 0


def test_the_token_budget_of_an_episode_is_never_exceeded(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server() as url:
        engine = ScriptedEngine(tokenizer, [call_text("again and again")])
        config = {"rollout": {"max_turns": 50, "max_completion_tokens": 100}}
        result = Bench(tmp_path, tokenizer, url, engine=engine, config=config).collect()
    lengths = [len(r.trajectory.completion_ids) for r in result.rollouts]
    assert max(lengths) <= 100 and {r.trajectory.status for r in result.rollouts} == {"truncated"}


def test_without_an_environment_an_episode_is_one_turn(tmp_path: Path, tokenizer: Any) -> None:
    def by_length(episode: Episode) -> Score:
        return Score(parts={"words": float(len(episode.final_answer))}, total=float(len(episode.final_answer)))

    bench = Bench(tmp_path, tokenizer, "", engine=ScriptedEngine(tokenizer, ["It is hi."]), scorer=by_length)
    result = bench.collect()
    assert {(r.trajectory.turns, r.trajectory.status, r.reward) for r in result.rollouts} == {(1, "completed", 9.0)}
    assert "env/latency_p50" not in result.figures and "rollouts/task_success" not in result.figures


async def hang(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
    if frame["type"] == "step":
        await asyncio.sleep(60)
    return observation(messages=[])


async def die(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
    if frame["type"] == "step":
        socket.transport.abort()
        return None
    return observation(messages=[])


def always(answer: str, on: str = "step") -> Behaviour:
    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return answer if frame["type"] == on else await echo_behaviour(socket, frame, turn)

    return behave


FAULTS: list[tuple[str, Behaviour, str]] = [
    ("hangs", hang, "environment_timeout"),
    ("dies", die, "environment_unreachable"),
    ("garbage", always("garbage"), "environment_protocol"),
    ("nan", always('{"type": "observation", "data": {"observation": {}, "reward": NaN}}'), "environment_protocol"),
    ("fault", always(error("EXECUTION_ERROR")), "environment_fault"),
]


@pytest.mark.parametrize(("name", "fault", "code"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_a_failing_environment_excludes_its_rollouts_and_spares_the_others(
    tmp_path: Path, tokenizer: Any, name: str, fault: Behaviour, code: str
) -> None:
    """Group 0's sessions misbehave, group 1's do not; the step is over as soon as the limits allow."""

    bad: set[int] = set()

    async def half(socket: Any, frame: dict[str, Any], turn: int) -> str | bytes | None:
        if frame["type"] == "reset" and "-g0-" in frame["data"]["episode_id"]:
            bad.add(id(socket))
        return await (fault if id(socket) in bad else echo_behaviour)(socket, frame, turn)

    began = time.monotonic()
    with scripted_server(half) as url:
        bench = Bench(tmp_path, tokenizer, url)
        result = bench.collect()
    assert time.monotonic() - began < 6
    ends = {e.rollout: e for e in bench.finished()}
    first, second = result.rollouts[:4], result.rollouts[4:]
    assert {ends[r.name].error.code for r in first} == {code}
    assert all(ends[r.name].reward is None and ends[r.name].parts == {} for r in first)
    assert {ends[r.name].status for r in second} == {"completed"}
    assert result.figures["rollouts/excluded"] == 4 and result.figures["env/errors"] >= 4
    groups = {g.group: g for g in of_type(tmp_path, "group_scored")}
    assert groups[0].advantages == [None] * 4 and groups[0].reward_mean is None and groups[0].zero_variance
    assert groups[1].advantages == [0.0] * 4


def test_the_begin_of_an_episode_is_tried_again(tmp_path: Path, tokenizer: Any) -> None:
    tries: dict[str, int] = {}

    async def second_time(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            name = frame["data"]["episode_id"]
            tries[name] = tries.get(name, 0) + 1
            if tries[name] == 1:
                return error("CAPACITY_REACHED")
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(second_time) as url:
        result = Bench(tmp_path, tokenizer, url).collect()
    assert set(tries.values()) == {2}
    assert result.figures["rollouts/excluded"] == 0 and result.figures["env/errors"] == 8


def test_same_group_same_episode_seed_and_task(tmp_path: Path, tokenizer: Any) -> None:
    seen: list[tuple[str, int]] = []

    async def look(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset":
            seen.append((frame["data"]["episode_id"].split("-")[2], frame["data"]["seed"]))
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(look) as url:
        Bench(tmp_path, tokenizer, url).collect()
    assert len(seen) == 8 and len(set(seen)) == 2


def raising(episode: Episode) -> Score:
    raise ZeroDivisionError("oops")


def hanging(episode: Episode) -> Score:
    time.sleep(30)
    return Score(parts={}, total=0.0)


def infinite(episode: Episode) -> Score:
    return Score(parts={"x": float("nan")}, total=float("nan"))


@pytest.mark.parametrize(
    ("scorer", "code"), [(raising, "reward_fault"), (hanging, "reward_timeout"), (infinite, "reward_fault")]
)
def test_a_reward_that_fails_excludes_the_rollout(
    tmp_path: Path, tokenizer: Any, scorer: Callable[[Episode], Score], code: str
) -> None:
    began = time.monotonic()
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=scorer, config={"rewards": {"score_timeout_s": 0.3}})
        result = bench.collect()
    assert time.monotonic() - began < 5
    assert {e.error.code for e in bench.finished()} == {code}
    assert result.figures["rollouts/excluded_share"] == 1.0
    assert "rollouts/turns_mean" not in result.figures  # nothing to take a mean of, so no figure


def test_an_engine_that_fails_is_a_typed_error_too(tmp_path: Path, tokenizer: Any) -> None:
    class Broken(ScriptedEngine):
        async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Any:
            raise RuntimeError("CUDA out of memory")

    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, engine=Broken(tokenizer, []))
        bench.collect()
    assert {(e.error.code, e.error.boundary) for e in bench.finished()} == {("policy_fault", "policy")}


def test_too_many_failures_in_a_row_end_the_run_with_the_boundary(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server(always(error("EXECUTION_ERROR", "disk gone"))) as url:
        bench = Bench(tmp_path, tokenizer, url, config={"rollout": {"failure_pause_steps": 2}})
        bench.collect(1)
        with pytest.raises(TooManyFailures, match="disk gone") as caught:
            bench.collect(2)
    assert caught.value.info.boundary == "environment"


def test_one_good_step_forgives_the_bad_ones(tmp_path: Path, tokenizer: Any) -> None:
    broken = {"on": True}

    async def sometimes(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if broken["on"] and frame["type"] == "step":
            return error("EXECUTION_ERROR")
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(sometimes) as url:
        bench = Bench(tmp_path, tokenizer, url, config={"rollout": {"failure_pause_steps": 2}})
        bench.collect(1)
        broken["on"] = False
        bench.collect(2)
        broken["on"] = True
        assert bench.collect(3).figures["rollouts/excluded_share"] == 1.0


def test_a_stop_ends_the_step_within_two_seconds(tmp_path: Path, tokenizer: Any) -> None:
    with scripted_server(hang) as url:
        bench = Bench(tmp_path, tokenizer, url, config={"environment": {"step_timeout_s": 60}})
        threading.Timer(0.5, bench.stop.set).start()
        began = time.monotonic()
        with pytest.raises(StopRequested):
            bench.collect()
    assert time.monotonic() - began < 2.5


def test_new_tools_mid_episode_reach_the_model(tmp_path: Path, tokenizer: Any) -> None:
    extra = {"type": "function", "function": {"name": "new_tool", "parameters": {"type": "object", "properties": {}}}}

    async def grow(socket: Any, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "step" and turn == 1:
            return observation(messages=[{"role": "user", "content": "Go on."}], tools=[extra])
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(grow) as url:
        result = Bench(tmp_path, tokenizer, url).collect()
    trajectory = result.rollouts[0].trajectory
    text = tokenizer.decode([i for i, mine in zip(trajectory.completion_ids, trajectory.mask, strict=True) if not mine])
    assert "Go on." in text and json.dumps(extra) in text
