"""An environment that is away or full: the step waits for it, and nothing is lost, excluded or scored 0.

All options of the environment are the defaults; where minutes must pass, the clock is moved instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.training.helpers import (
    ScriptedEngine,
    call_text,
    demonstration_rows,
    echo_behaviour,
    error,
    events,
    job_config,
    observation,
    of_type,
    scripted_server,
)
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentFull,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    RewardFault,
    StopRequested,
    TooManyFailures,
)
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rollout import holding
from training.rollout.collector import Collector, StepRollouts
from training.rollout.dialects import DIALECTS
from training.rollout.holding import wait_for_environment
from training.rollout.protocols import check_environment
from training.rollout.replicas import Replicas
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player

ROOT = Path(__file__).resolve().parents[3]
STEPS = 6


def verdict(episode: Episode) -> Score:
    if episode.env_reward is None:
        raise RewardFault("no verdict")
    return Score(parts={"task_success": episode.env_reward}, total=episode.env_reward)


class Bench:
    """A collector as ``run_grpo`` makes it, with a scripted engine."""

    def __init__(self, folder: Path, tokenizer: Any, url: str, **over: Any) -> None:
        groups: dict[str, Any] = over.pop("config", {})
        groups["environment"] = {"url": url, **groups.get("environment", {})}
        self.config = job_config(**groups)
        self.engine = over.pop("engine", None) or ScriptedEngine(tokenizer, [call_text("hi"), "It is hi."])
        self.stop, self.journal, self.path = threading.Event(), Journal(folder), folder
        player = Player(
            engine=self.engine,
            template=ChatTemplate(tokenizer),
            parse=DIALECTS["hermes"],
            rollout=self.config.rollout,
            environment=self.config.environment,
            open_session=Replicas(self.config.environment).open,
        )
        rows = [row.model_copy(update={"messages": row.messages[:1]}) for row in demonstration_rows(6)]
        scorer = over.pop("scorer", verdict)
        self.collector = Collector(self.config, rows, player, scorer, self.journal, self.stop)

    def collect(self, step: int = 1) -> StepRollouts:
        rollout = self.config.rollout
        rows = [row for row in range(rollout.prompts_per_step) for _ in range(rollout.num_generations)]
        return self.collector.collect(step, rows)

    def held(self) -> list[Any]:
        return of_type(self.path, "held")


class Clock:
    """Time that passes only where ``holding`` sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        target = self.now + seconds
        await asyncio.sleep(0.05)  # so that those who fail together also wait together
        self.now = max(self.now, target)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(holding, "_now", lambda: made.now)
    monkeypatch.setattr(holding, "_sleep", made.sleep)
    return made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def tools_server(port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "envs.tools", "--port", str(port), "--log-level", "error", *options]
    server = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).status_code == 200:
                    break
            time.sleep(0.05)
        yield server
    finally:
        server.kill()
        server.wait(10)


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
    """R1: three steps that nobody answered took no time, and the run had failed for good in 5 s."""
    port, restarted = free_port(), threading.Event()
    url, said = f"http://127.0.0.1:{port}", ["It is 42."]
    engine = KillsAt(tokenizer, said)
    bench = Bench(tmp_path, tokenizer, url, engine=engine)

    def restart() -> None:
        engine.killed.wait(20)
        time.sleep(1.5)
        with tools_server(port):
            restarted.wait(60)

    thread = threading.Thread(target=restart)
    with tools_server(port) as first:
        calm = Bench(tmp_path / "calm", tokenizer, url, engine=ScriptedEngine(tokenizer, said))
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
    assert held[-1].error is None, "the page must learn that it goes on"
    # The same rollouts: tasks and rewards hang on nothing but the seeds.
    assert [[(r.name, r.reward) for r in result.rollouts] for result in results] == [
        [(r.name, r.reward) for r in result.rollouts] for result in undisturbed
    ]


def test_an_environment_that_never_comes_back_pauses_the_run_after_the_patience(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """R1: by default the step is held for ten minutes, with growing pauses, then the run pauses with its reason."""
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
    """A server that dies of one episode must not be asked for it for ever."""
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


@pytest.mark.parametrize("sessions", [0, 1])
def test_eight_rollouts_are_played_on_one_slot_one_after_another(tmp_path: Path, tokenizer: Any, sessions: int) -> None:
    """V2: OpenEnv's own servers take one session; 6 of 8 rollouts were excluded."""
    port = free_port()
    with tools_server(port, "--slots", "1"):
        url = f"http://127.0.0.1:{port}"
        bench = Bench(tmp_path, tokenizer, url, config={"environment": {"sessions": sessions}})
        results = [bench.collect(step) for step in (1, 2)]
    assert [result.figures["rollouts/excluded"] for result in results] == [0.0, 0.0]
    assert [result.figures["env/errors"] for result in results] == [0.0, 0.0], "waiting costs no attempt"
    assert bench.held() == []


def test_a_server_that_does_not_tell_its_slots_shows_them_by_refusing(tmp_path: Path, tokenizer: Any) -> None:
    """V2, V3: as OpenEnv's own servers do it, the refusal comes before the first word and the socket is closed."""
    port = free_port()
    taken: list[int] = []
    refused: list[int] = []

    async def one_slot(socket: Any) -> None:
        if taken:
            refused.append(1)
            await socket.send(error("CAPACITY_REACHED", "Server at capacity: 1/1 sessions active."))
            await socket.close()
            return
        taken.append(1)
        try:
            turn = 0
            async for text in socket:
                frame = json.loads(text)
                if frame["type"] == "close":
                    return
                await socket.send(await echo_behaviour(socket, frame, turn))
                turn += 1
        finally:
            taken.clear()

    with raw_server(one_slot, port):
        result = Bench(tmp_path, tokenizer, f"http://127.0.0.1:{port}").collect()
    assert result.figures["rollouts/excluded"] == 0 and 1 <= len(refused) <= 16


@contextlib.contextmanager
def raw_server(session: Any, port: int) -> Iterator[None]:
    from websockets.asyncio.server import serve

    loop, ready, stopped = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def run() -> None:
        async with serve(session, "127.0.0.1", port, close_timeout=0.2):
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(5)


def test_a_server_that_is_full_of_others_is_waited_for_and_named_full(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """V3: 74 of 76 refusals were told as "hung up"."""

    async def full(socket: Any) -> None:
        await socket.send(error("CAPACITY_REACHED", "Server at capacity"))
        await socket.close()

    port = free_port()
    with raw_server(full, port), pytest.raises(EnvironmentFull, match="was full for 10 min") as caught:
        Bench(tmp_path, tokenizer, f"http://127.0.0.1:{port}").collect()
    assert caught.value.pauses and "at capacity" in caught.value.message
    assert {event.error.code for event in of_type(tmp_path, "held")} == {"environment_full"}


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
        monkeypatch.setattr("training.rollout.collector.BAD_STEP_S", 0.0)
        slow.collect()
        assert {e.error.code for e in of_type(tmp_path / "slow", "rollout_finished")} == {"environment_timeout"}
        monkeypatch.setattr(holding, "ask_server", silent)
        with pytest.raises(EnvironmentUnreachable, match="No answer to step"):
            Bench(tmp_path / "hung", tokenizer, url, config=dict(fast)).collect()


def test_three_bad_steps_take_a_minute_and_then_the_run_pauses(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: steps that took no time burnt the three of ``failure_pause_steps`` in 5 s. A judge may be back by then."""

    def no_judge(episode: Episode) -> Score:
        raise RewardFault("The judge cannot be reached.")

    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=no_judge)
        waited: list[float] = []
        monkeypatch.setattr(bench.stop, "wait", lambda seconds: bool(waited.append(seconds)))
        bench.collect(1)
        bench.collect(2)
        with pytest.raises(
            TooManyFailures, match="in 3 steps in a row; 24 failures at the boundary 'reward'"
        ) as caught:
            bench.collect(3)
    assert caught.value.pauses and caught.value.boundary == "reward"
    assert len(waited) == 2 and all(15 < seconds <= 20 for seconds in waited)
    held = bench.held()
    assert [event.error.code if event.error else None for event in held] == ["reward_fault", None] * 2


@pytest.mark.parametrize(("share", "bad"), [(0.5, False), (0.49, True)])
def test_exactly_the_failure_share_is_not_more_than_it(tmp_path: Path, tokenizer: Any, share: float, bad: bool) -> None:
    """H1: "more than this share" was never tried at equality."""

    def first_group_fails(episode: Episode) -> Score:
        if "red" in episode.messages[0].content:
            raise RewardFault("no")
        return Score(parts={"task_success": 1.0}, total=1.0)

    limits = {"rollout": {"failure_pause_share": share, "failure_pause_steps": 1}}
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url, scorer=first_group_fails, config=limits)
        if bad:
            with pytest.raises(TooManyFailures):
                bench.collect()
        else:
            assert bench.collect().figures["rollouts/excluded_share"] == 0.5


def test_the_tokens_of_a_finished_rollout_are_those_that_were_sampled(tmp_path: Path, tokenizer: Any) -> None:
    """H1: the journal's last word on a rollout's tokens could be anything."""
    with scripted_server() as url:
        bench = Bench(tmp_path, tokenizer, url)
        result = bench.collect()
    texts = [call_text("hi") + "<|im_end|>", "It is hi.<|im_end|>"]
    sampled = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    assert sampled > 0
    assert {end.tokens for end in of_type(tmp_path, "rollout_finished")} == {sampled}
    assert {rollout.trajectory.sampled_tokens for rollout in result.rollouts} == {sampled}


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
    """A wrong token stands until a person changes it: the run pauses at once."""
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
