"""An environment that is away: the step waits for it, and nothing is lost, excluded or scored 0.

All options of the environment are the defaults; where minutes must pass, the clock is moved instead.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import (
    ScriptedEngine,
    echo_behaviour,
    events,
    observation,
    of_type,
    scripted_server,
)
from tests.training.rollout.bench import Bench, Clock, free_port, tools_server
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    StopRequested,
)
from training.journal import Journal
from training.rollout import holding
from training.rollout.holding import wait_for_environment
from training.rollout.protocols import check_environment

STEPS = 6


class KillsAt(ScriptedEngine):
    """An engine that kills a server while it samples the first turn of a step."""

    def __init__(self, tokenizer: Any, texts: list[str]) -> None:
        super().__init__(tokenizer, texts, delay_s=0.02)
        self.victim: subprocess.Popen[bytes] | None = None
        self.killed = threading.Event()

    async def generate(self, prompt_ids: list[int], **more: Any) -> Any:
        sample = await super().generate(prompt_ids, **more)
        if self.victim is not None:
            self.victim.kill()
            self.victim.wait(10)
            self.victim = None
            self.killed.set()
        return sample


def test_a_server_that_is_killed_in_mid_step_and_started_again_costs_nothing(tmp_path: Path, tokenizer: Any) -> None:
    """Three steps that were not answered took no time, and the run had failed for good in 5 s."""
    port, restarted = free_port(), threading.Event()
    url, answers = f"http://127.0.0.1:{port}", ["It is 42."]
    engine = KillsAt(tokenizer, answers)
    bench = Bench(tmp_path, tokenizer, url, engine=engine)

    def restart() -> None:
        engine.killed.wait(20)
        time.sleep(1.5)
        with tools_server(port):
            restarted.wait(60)

    thread = threading.Thread(target=restart)
    with tools_server(port) as first:
        calm = Bench(tmp_path / "calm", tokenizer, url, engine=ScriptedEngine(tokenizer, answers))
        undisturbed = [calm.collect(step) for step in range(1, STEPS + 1)]
        results = [bench.collect(1)]
        engine.victim = first
        thread.start()
        try:
            results += [bench.collect(step) for step in range(2, STEPS + 1)]
        finally:
            restarted.set()
            thread.join()
    bench.journal.close()
    assert len(results) == STEPS
    assert [result.figures["rollouts/excluded"] for result in results] == [0.0] * STEPS
    ends = of_type(tmp_path, "rollout_finished")
    assert len(ends) == 8 * STEPS == len({end.rollout for end in ends})
    assert {end.status for end in ends} == {"completed"} and None not in {end.reward for end in ends}
    held = bench.held()
    assert held and held[0].error.code == "environment_unreachable" and held[0].step == 2
    assert held[-1].error is None, "the page must learn that it continues"
    # The same rollouts: tasks and rewards depend on nothing but the seeds.
    assert [[(r.name, r.reward) for r in result.rollouts] for result in results] == [
        [(r.name, r.reward) for r in result.rollouts] for result in undisturbed
    ]


def test_an_environment_that_never_comes_back_pauses_the_run_after_the_patience(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """By default the step is held for ten minutes, with growing pauses, then the run pauses with its reason."""
    bench = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(EnvironmentUnreachable, match=r"could not be reached for 10 min \(\d+ tries\)") as caught:
        bench.collect()
    assert caught.value.pauses
    assert caught.value.hint == "Start the environment again, then press Resume."
    held = bench.held()
    assert held[-1].patience_left_s == pytest.approx(0.0, abs=1e-6) and held[0].patience_left_s > 590
    assert [event.tries for event in held] == list(range(1, len(held) + 1))
    pauses = [event.next_try_s for event in held]
    assert pauses[0] <= 0.5 and max(pauses) <= 30.0 and sum(pauses) == pytest.approx(600.0)
    assert 20 <= len(held) <= 40, "one event a try, however many rollouts wait"
    assert of_type(tmp_path, "rollout_finished") == [], "nothing is excluded, nothing is scored 0"


def test_without_patience_the_run_pauses_at_once(tmp_path: Path, tokenizer: Any) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    bench = Bench(tmp_path, tokenizer, url, config={"environment": {"patience_s": 0}})
    began = time.monotonic()
    with pytest.raises(EnvironmentUnreachable, match="patience is 0"):
        bench.collect()
    assert time.monotonic() - began < 3 and bench.held() == []


def test_a_stop_ends_a_hold_at_once(tmp_path: Path, tokenizer: Any) -> None:
    bench = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{free_port()}")
    threading.Timer(1.5, bench.stop.set).start()
    began = time.monotonic()
    with pytest.raises(StopRequested):
        bench.collect()
    assert 1.4 < time.monotonic() - began < 2.5


def test_a_rollout_that_lost_its_server_begins_again_with_the_same_seeds(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    lost: set[str] = set()
    resets: dict[str, list[int]] = {}
    current: dict[int, str] = {}

    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
        if frame["type"] == "reset":
            name = frame["data"]["episode_id"]
            current[id(socket)] = name
            resets.setdefault(name, []).append(frame["data"]["seed"])
        elif turn == 2 and current[id(socket)] not in lost:
            lost.add(current[id(socket)])
            socket.transport.abort()
            return None
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(behave) as url:
        result = Bench(tmp_path, tokenizer, url).collect()
    assert result.figures["rollouts/excluded"] == 0 and result.figures["env/errors"] == 8
    assert len(resets) == 8 and all(len(seeds) == 2 and len(set(seeds)) == 1 for seeds in resets.values())
    for name in resets:
        story = [e for e in events(tmp_path) if getattr(e, "rollout", None) == name]
        kinds = [(e.type, getattr(e, "again", None), getattr(e, "turn", None)) for e in story]
        assert [k for k in kinds if k[0] == "rollout_started"] == [
            ("rollout_started", 0, None),
            ("rollout_started", 1, None),
        ]
        second = kinds.index(("rollout_started", 1, None))
        assert [turn for _, _, turn in kinds[second + 1 : -1]] == [0, 1, 2, 3] and kinds[-1][0] == "rollout_finished"


def test_an_episode_that_kills_its_server_each_time_is_its_own_fault(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """A server that dies of one episode must not be asked for it without end."""
    begun: list[str] = []

    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
        if frame["type"] == "reset" and "g1-i2" in frame["data"]["episode_id"]:
            begun.append(frame["data"]["episode_id"])
            socket.bad = True
        elif frame["type"] == "step" and getattr(socket, "bad", False):
            socket.transport.abort()
            return None
        return await echo_behaviour(socket, frame, turn)

    with scripted_server(behave) as url:
        result = Bench(tmp_path, tokenizer, url).collect()
    assert [r.name for r in result.rollouts if r.parts is None] == ["a1-s1-g1-i2"] and len(begun) == 4


def test_a_server_that_hangs_whole_is_held_and_one_slow_call_is_not(
    tmp_path: Path, tokenizer: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
        if frame["type"] == "step":
            await asyncio.sleep(60)
        return observation(messages=[])

    async def silent(config: EnvironmentConfig, url: str) -> None:
        raise EnvironmentTimeout("No health answer within 10 s.")

    fast = {"environment": {"step_timeout_s": 0.2}}
    with scripted_server(hang) as url:
        slow = Bench(tmp_path / "slow", tokenizer, url, config=dict(fast))
        monkeypatch.setattr("training.rollout.holding.BAD_STEP_S", 0.0)
        slow.collect()
        assert {e.error.code for e in of_type(tmp_path / "slow", "rollout_finished")} == {"environment_timeout"}
        monkeypatch.setattr(holding, "ask_server", silent)
        with pytest.raises(EnvironmentUnreachable, match="No answer to step"):
            Bench(tmp_path / "hung", tokenizer, url, config=dict(fast)).collect()


def test_a_start_waits_for_its_environment_too(tmp_path: Path) -> None:
    port = free_port()
    config = EnvironmentConfig(url=f"http://127.0.0.1:{port}")
    journal, stop = Journal(tmp_path), threading.Event()
    up, done = threading.Event(), threading.Event()

    def later() -> None:
        up.wait(5)
        time.sleep(0.3)
        with tools_server(port):
            done.wait(60)

    thread = threading.Thread(target=later)
    thread.start()
    up.set()
    try:
        wait_for_environment(lambda: check_environment(config), config, journal.write, stop)
    finally:
        done.set()
        thread.join()
    journal.close()
    held = of_type(tmp_path, "held")
    assert held[0].error.code == "environment_unreachable" and held[-1].error is None


def test_what_waiting_cannot_change_is_not_waited_for(tmp_path: Path) -> None:
    """A wrong token stays wrong until a person changes it: the run pauses at once."""
    journal, stop = Journal(tmp_path), threading.Event()
    config = EnvironmentConfig(url="http://127.0.0.1:1")

    def refused() -> None:
        raise EnvironmentRefused("The environment refused us (HTTP 401).")

    began = time.monotonic()
    with pytest.raises(EnvironmentRefused) as caught:
        wait_for_environment(refused, config, journal.write, stop)
    assert caught.value.pauses and caught.value.code == "environment_unreachable" and time.monotonic() - began < 1
    stop.set()

    def away() -> None:
        raise EnvironmentUnreachable("nobody")

    with pytest.raises(StopRequested):
        wait_for_environment(away, config, journal.write, stop)
