"""Several servers of one environment: where episodes go, and what becomes of them when a server dies."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from benchmarks.environment import environment_server
from envs.wire import Observation, ResetRequest, StepRequest, ToolCall
from tests.training.helpers import TOOLS, error, observation, scripted_server
from tests.training.rollout.foreign import Reply, http_server
from training.config import EnvironmentConfig
from training.errors import EnvironmentFault, EnvironmentFull, EnvironmentUnreachable
from training.rollout import replicas as module
from training.rollout.protocols import check_environment
from training.rollout.protocols.base import ServerFacts
from training.rollout.replicas import Replica, Replicas, ReplicaSession

CLOSED = "http://127.0.0.1:9"
CALC = StepRequest(tool_calls=[ToolCall(id="c1", name="calculator", arguments={"expression": "6*7"})])
DONE = StepRequest(message="It is 42.")


def config_of(*urls: str, **over: Any) -> EnvironmentConfig:
    values = {"connect_timeout_s": 2, "reset_timeout_s": 5, "step_timeout_s": 5, "deterministic": True, **over}
    return EnvironmentConfig(url=urls[0], replicas=list(urls[1:]), **values)


async def begin(replicas: Replicas, seed: int = 1) -> tuple[ReplicaSession, Observation]:
    session = await replicas.open()
    assert isinstance(session, ReplicaSession)
    return session, await session.reset(ResetRequest(seed=seed, episode_id=f"e{seed}"))


def test_episodes_of_a_killed_server_finish_on_the_other_with_the_same_rewards() -> None:
    async def episodes(replicas: Replicas, kill: int | None) -> list[tuple[Any, ...]]:
        begun = [await begin(replicas, seed) for seed in range(8)]
        for session, _first in begun:
            await session.step(CALC)
        if kill is not None:
            on_first = [session for session, _ in begun if session._replica is replicas.all[0]]
            assert len(on_first) == 4
            os.kill(kill, signal.SIGKILL)
        played = []
        for session, first in begun:
            second = await session.step(CALC)
            last = await session.step(DONE)
            played.append((first, second, last.done, last.reward, last.reward_parts))
            await session.close()
        if kill is not None:
            assert sum(session.failures for session, _ in begun) == 4
        assert [replica.in_flight for replica in replicas.all] == [0] * len(replicas.all)
        return played

    with environment_server("tools") as one:
        with environment_server("tools") as other:
            undisturbed = asyncio.run(episodes(Replicas(config_of(one.url)), None))
            disturbed = asyncio.run(episodes(Replicas(config_of(other.url, one.url)), other.pid))
        assert disturbed == undisturbed and all(done and reward is not None for _, _, done, reward, _ in disturbed)

        async def alone(kill: int) -> None:
            session, _ = await begin(Replicas(config_of(one.url)))
            await session.step(CALC)
            os.kill(kill, signal.SIGKILL)
            with pytest.raises(EnvironmentUnreachable) as caught:
                await session.step(CALC)
            assert caught.value.hint == "No other replica took the episode over." and session.failures == 2
            await session.close()

        asyncio.run(alone(one.pid))


def forgetful(marks: list[str], name: str, *, lose_at: int = -1, code: str = "SESSION_ERROR", lie: bool = False) -> Any:
    """A server that notes what it hears, and at turn ``lose_at`` no longer knows the session."""

    async def behave(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
        marks.append(f"{name}:{frame['type']}")
        if turn == lose_at:
            return error(code)
        text = f"turn {turn}" + (" differs" if lie else "")
        return observation(messages=[{"role": "user", "content": text}], tools=TOOLS, info={"server": name})

    return behave


async def _play(config: EnvironmentConfig, turns: int) -> tuple[list[str], ReplicaSession]:
    session, first = await begin(Replicas(config))
    seen = [first]
    try:
        for _ in range(turns):
            seen.append(await session.step(DONE))
    finally:
        await session.close()
    return [answer.messages[0].content for answer in seen], session


def test_a_lost_session_is_replayed_and_continues() -> None:
    marks: list[str] = []
    with scripted_server(forgetful(marks, "a", lose_at=2)) as a, scripted_server(forgetful(marks, "b")) as b:
        texts, session = asyncio.run(_play(config_of(a, b), 3))
    assert texts == ["turn 0", "turn 1", "turn 2", "turn 3"] and session.failures == 1
    moved = marks.index("b:reset")
    assert marks[:moved] == ["a:reset", "a:step", "a:step"] and marks[moved:] == [
        "b:reset",
        "b:step",
        "b:step",
        "b:step",
    ]
    assert len(session.latencies) == 7  # three on the first, a reset and three turns on the second


@pytest.mark.parametrize(
    ("deterministic", "lie", "code", "hint", "heard"),
    [
        (False, False, "SESSION_ERROR", "not marked as deterministic", 0),
        (True, True, "SESSION_ERROR", "gave other answers", 1),
        (True, False, "EXECUTION_ERROR", "", 0),
    ],
)
def test_the_loss_stays_where_no_replay_can_make_it_good(
    deterministic: bool, lie: bool, code: str, hint: str, heard: int
) -> None:
    marks: list[str] = []
    first = forgetful(marks, "a", lose_at=2, code=code)
    with (
        scripted_server(first) as a,
        scripted_server(forgetful(marks, "b", lie=lie)) as b,
        pytest.raises(EnvironmentFault) as caught,
    ):
        asyncio.run(_play(config_of(a, b, deterministic=deterministic), 2))
    assert hint in caught.value.hint and bool(caught.value.hint) == bool(hint)
    assert [mark for mark in marks if mark.startswith("b")] == ["b:reset"] * heard


def test_replays_are_bounded_by_the_attempts() -> None:
    marks: list[str] = []
    with scripted_server(forgetful(marks, "a", lose_at=2)) as a, pytest.raises(EnvironmentFault) as caught:
        asyncio.run(_play(config_of(a, attempts=3), 2))
    assert marks.count("a:reset") == 4 and "No other replica" in caught.value.hint


def test_a_dead_or_full_replica_is_passed_over_and_rests() -> None:
    async def run(url: str, full: str) -> None:
        replicas = Replicas(config_of(CLOSED, full, url))
        for _ in range(3):
            session, first = await begin(replicas)
            assert first.messages[0].content == "turn 0" and session.failures == 0
            await session.close()
        assert [replica.failures for replica in replicas.all] == [1, 1, 0]
        assert replicas.pick(set()) is replicas.all[2]

    async def no_room(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return error("CAPACITY_REACHED")

    marks: list[str] = []
    with scripted_server(forgetful(marks, "b")) as url, scripted_server(no_room) as full:
        asyncio.run(run(url, full))


def test_when_none_can_be_reached_the_error_is_typed() -> None:
    async def run(*urls: str) -> None:
        await begin(Replicas(config_of(*urls)))

    with pytest.raises(EnvironmentUnreachable):
        asyncio.run(run(CLOSED, "http://127.0.0.1:7"))

    async def no_room(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return error("CAPACITY_REACHED")

    with scripted_server(no_room) as url, pytest.raises(EnvironmentFull):
        asyncio.run(run(url))


def test_a_failure_names_the_environment_and_the_server() -> None:
    async def hang_up(socket: Any, frame: dict[str, Any], turn: int) -> str | None:
        if turn == 0:
            return observation()
        await socket.close()
        return None

    async def lose(url: str) -> tuple[str, str]:
        with pytest.raises(EnvironmentUnreachable) as opening:
            await Replicas(config_of(CLOSED, name="webshop")).open()
        session = await Replicas(config_of(url, name="shop", deterministic=False)).open()
        await session.reset(ResetRequest())
        with pytest.raises(EnvironmentUnreachable) as playing:
            await session.step(CALC)
        await session.close()
        return opening.value.info.message, playing.value.info.message

    with scripted_server(hang_up) as url:
        opening, playing = asyncio.run(lose(url))
    assert opening.startswith(f"webshop at {CLOSED}: The environment cannot be reached")
    assert playing.startswith(f"shop at {url}: The environment hung up during step")


def test_episodes_go_where_most_slots_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def facts(config: EnvironmentConfig, url: str) -> ServerFacts:
        asked.append(url)
        return ServerFacts("x", "1", slots=10, free={"a": 2, "b": 9}[url[-1]])

    async def opened(config: EnvironmentConfig, url: str) -> Any:
        class Nothing:
            latencies: list[float] = []
            failures = 0

            async def close(self) -> None:
                return

        return Nothing()

    async def run() -> list[str]:
        replicas = Replicas(config_of("http://x/a", "http://x/b"))
        sessions = [await replicas.open()]
        await asyncio.sleep(0.01)  # the background asks meanwhile
        sessions += [await replicas.open() for _ in range(7)]
        return [session._replica.url[-1] for session in sessions]  # type: ignore[attr-defined]

    monkeypatch.setattr(module, "ask_server", facts)
    monkeypatch.setattr(module, "open_session", opened)
    assert sorted(asyncio.run(run())) == ["a", *"b" * 7] and len(asked) == 2


@pytest.mark.parametrize(("sessions", "asked"), [(0, 1), (3, 0)])
def test_one_replica_is_asked_for_its_slots_once_and_only_if_the_config_does_not_say(
    monkeypatch: pytest.MonkeyPatch, sessions: int, asked: int
) -> None:
    seen: list[str] = []

    async def facts(config: EnvironmentConfig, url: str) -> ServerFacts:
        seen.append(url)
        return ServerFacts("x", "1", slots=10, free=2)

    monkeypatch.setattr(module, "ask_server", facts)

    async def run(url: str) -> None:
        replicas = Replicas(config_of(url, sessions=sessions))
        for _ in range(2):
            session, _first = await begin(replicas)
            await session.close()

    with scripted_server(forgetful([], "a")) as url:
        asyncio.run(run(url))
    assert len(seen) == asked


@pytest.mark.parametrize(
    ("known", "sessions"),
    [({"slots": 4, "others": 1}, 0), ({}, 3), ({"learned": 3, "learned_until": 9.0}, 0)],
    ids=["its slots less those of others", "the config", "what it has shown"],
)
def test_a_server_gets_as_many_sessions_as_it_has_room_for(known: dict[str, Any], sessions: int) -> None:
    takes = [Replica("x", **known, in_flight=count).takes(8.0, sessions) for count in range(5)]
    assert takes == [True, True, True, False, False]
    assert Replica("x", learned=3, learned_until=8.0, in_flight=3).takes(8.0, 0), "that was too long ago"


def test_rests_grow_and_failures_at_once_count_once() -> None:
    replica = Replica("x")
    for now in (0.0, 0.1, 0.2):
        replica.failed(now)
    assert (replica.failures, replica.rests_until) == (1, 0.5)
    replica.failed(0.6)
    assert replica.rests_until == 1.6
    replica.answered()
    assert (replica.failures, replica.rests_until) == (0, 0.0)


def test_a_job_may_begin_while_one_replica_answers() -> None:
    health = {"name": "tools", "version": "2", "sessions": 3, "slots": 8, "deterministic": True}
    with http_server(lambda asked: Reply(200, health)) as url:
        answers = check_environment(config_of(CLOSED, url, name="tools"))
    assert isinstance(answers[0], EnvironmentUnreachable)
    assert answers[1] == ServerFacts("tools", "2", slots=8, free=5, deterministic=True)
    with pytest.raises(EnvironmentUnreachable):
        check_environment(config_of(CLOSED, "http://127.0.0.1:7"))
