"""Every way an environment can fail becomes its typed error, in time."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any

import pytest

from envs.wire import Observation, ResetRequest, StepRequest
from tests.training.helpers import echo_behaviour, error, observation, scripted_server
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.rollout.client import SocketSession, ask_health, parse_answer, socket_url


def settings(url: str, **over: Any) -> EnvironmentConfig:
    values = {"url": url, "connect_timeout_s": 1, "reset_timeout_s": 0.5, "step_timeout_s": 0.5, **over}
    return EnvironmentConfig(**values)


def play(url: str, steps: int = 1, **over: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        async with SocketSession(settings(url, **over)) as session:
            answers = [await session.reset(ResetRequest(seed=1))]
            for _ in range(steps):
                answers.append(await session.step(StepRequest(message="done")))
            return answers

    return asyncio.run(run())


def test_an_episode_goes_from_reset_to_its_reward() -> None:
    with scripted_server() as url:
        first, last = play(url)
    assert first.tools and not first.done
    assert (last.done, last.reward, last.reward_parts) == (True, 1.0, {"task_success": 1.0})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error("CAPACITY_REACHED"), EnvironmentFull),
        (error("EXECUTION_ERROR"), EnvironmentFault),
        (error("SESSION_ERROR"), EnvironmentFault),
        (error("FACTORY_ERROR"), EnvironmentFault),
        (error("VALIDATION_ERROR"), EnvironmentProtocolError),
        (error("INVALID_JSON"), EnvironmentProtocolError),
        ("not json", EnvironmentProtocolError),
        ("[]", EnvironmentProtocolError),
        ('"text"', EnvironmentProtocolError),
        ("{}", EnvironmentProtocolError),
        (b"\xff\xfe", EnvironmentProtocolError),
        ("[" * 100_000, EnvironmentProtocolError),
        ('{"type": "state", "data": {}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": 3}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {}, "reward": NaN}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {}, "reward": Infinity}}', EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {}, "reward": 1e999}}', EnvironmentProtocolError),
        (observation(reward="0.5"), EnvironmentProtocolError),
        (observation(reward=True), EnvironmentProtocolError),
        (observation(reward=[1]), EnvironmentProtocolError),
        (observation(reward_parts={"a": "x"}), EnvironmentProtocolError),
        (observation(reward_parts=[1]), EnvironmentProtocolError),
        (observation(messages=[{"role": "robot", "content": "x"}]), EnvironmentProtocolError),
        (observation(messages=[{"content": "no role"}]), EnvironmentProtocolError),
        (observation(messages="text"), EnvironmentProtocolError),
        (observation(messages=[{"role": "tool", "content": "\ud800"}]), EnvironmentProtocolError),
        (observation(tools=[{"name": "\udfff"}]), EnvironmentProtocolError),
        (observation(tools=json.loads("[" * 200 + "]" * 200)), EnvironmentProtocolError),
        ('{"type": "observation", "data": {"observation": {}, "done": "yes"}}', EnvironmentProtocolError),
    ],
)
def test_a_bad_answer_has_its_typed_error(answer: str | bytes, expected: type[TiltyardError]) -> None:
    with pytest.raises(expected):
        parse_answer(answer)


def test_unknown_fields_of_a_newer_server_are_tolerated() -> None:
    assert parse_answer(observation(messages=[], metadata={"a": 1}, future=3)).messages == []


def test_a_server_that_never_answers_is_a_timeout_within_its_limit() -> None:
    async def hang(*_: Any) -> None:
        await asyncio.sleep(60)

    began = time.monotonic()
    with scripted_server(hang) as url, pytest.raises(EnvironmentTimeout):
        play(url)
    assert time.monotonic() - began < 3


def test_a_server_that_drips_is_cut_off_by_the_overall_deadline() -> None:
    """A raw TCP server that completes the handshake and then sends one byte of a frame each 0.1 s."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            key = next(
                line.split(b": ")[1]
                for line in peer.recv(4096).split(b"\r\n")
                if line.lower().startswith(b"sec-websocket-key")
            )
            from websockets.utils import accept_key

            peer.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept_key(key.decode()).encode() + b"\r\n\r\n"
            )
            peer.sendall(b"\x81\x7d")  # a text frame of 125 bytes
            try:
                for _ in range(100):
                    peer.sendall(b" ")
                    time.sleep(0.1)
            except OSError:
                return

    threading.Thread(target=drip, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(EnvironmentTimeout):
        play(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert time.monotonic() - began < 3
    listener.close()


def test_a_server_that_never_shakes_hands_is_a_connect_timeout() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match="connection"):
        play(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.5)
    assert time.monotonic() - began < 2
    listener.close()


def test_a_server_that_dies_mid_episode_is_unreachable() -> None:
    async def die(connection: Any, frame: dict[str, Any], turn: int) -> str | None:
        if turn:
            connection.transport.abort()
            return None
        return observation(messages=[])

    with scripted_server(die) as url, pytest.raises(EnvironmentUnreachable):
        play(url)


def test_an_answer_above_four_megabytes_is_refused() -> None:
    async def flood(*_: Any) -> str:
        return observation(messages=[{"role": "tool", "content": "x" * (5 << 20)}])

    with scripted_server(flood) as url, pytest.raises(EnvironmentProtocolError, match="4 MB"):
        play(url, reset_timeout_s=5)


def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(EnvironmentUnreachable):
        play(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("url", ["", "ftp://x", "file:///etc/passwd", "http://", "localhost:80"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(EnvironmentUnreachable):
        socket_url(url)


def test_the_address_keeps_its_base_path() -> None:
    assert socket_url("https://h:8/env/") == "wss://h:8/env/ws"


def test_the_episode_limit_counts_waits_over_all_turns() -> None:
    async def slow(connection: Any, frame: dict[str, Any], turn: int) -> str:
        await asyncio.sleep(0.2)
        return observation(messages=[])

    with scripted_server(slow) as url, pytest.raises(EnvironmentTimeout, match="episode"):
        play(url, steps=5, episode_timeout_s=0.5)


def test_the_bearer_token_is_sent_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def look(connection: Any, frame: dict[str, Any], turn: int) -> str:
        seen.append(connection.request.headers.get("Authorization"))
        return await echo_behaviour(connection, frame, turn)

    monkeypatch.setenv("TILTYARD_ENV_TOKEN", "s3cret")
    with scripted_server(look) as url:
        play(url)
    assert set(seen) == {"Bearer s3cret"}


def test_a_token_that_the_server_repeats_is_in_no_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server says goes into rollouts, errors and logs."""

    async def repeat(connection: Any, frame: dict[str, Any], turn: int) -> str:
        shown = connection.request.headers.get("Authorization")
        return error("EXECUTION_ERROR", f"refused {shown}, sorry")

    monkeypatch.setenv("TILTYARD_ENV_TOKEN", "s3cret-of-the-site")
    with scripted_server(repeat) as url, pytest.raises(EnvironmentFault) as caught:
        play(url)
    assert "refused Bearer ***, sorry" in caught.value.message


def _http_server(answer: bytes, *, delay_s: float = 0) -> tuple[socket.socket, str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def reply() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(4096)
                for start in range(0, len(answer), max(1, len(answer) // 20)):
                    try:
                        peer.sendall(answer[start : start + max(1, len(answer) // 20)])
                    except OSError:
                        break
                    time.sleep(delay_s)

    threading.Thread(target=reply, daemon=True).start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def _http(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{extra}\r\n"
    return head.encode() + body


HEALTHY = json.dumps({"status": "healthy", "name": "tools", "version": "1", "sessions": 0, "slots": 8}).encode()


def test_health_says_who_the_server_is() -> None:
    listener, url = _http_server(_http(HEALTHY))
    assert asyncio.run(ask_health(settings(url, name="tools"))).slots == 8
    with pytest.raises(EnvironmentProtocolError, match="'tools', not 'bfcl'"):
        asyncio.run(ask_health(settings(url, name="bfcl")))
    listener.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_http(b"{}"), EnvironmentProtocolError),
        (_http(b"<html>"), EnvironmentProtocolError),
        (_http(b"", "503 Busy"), EnvironmentFull),
        (_http(b"", "403 No"), EnvironmentUnreachable),
        (_http(b"", "302 Found", "Location: http://169.254.169.254/\r\n"), EnvironmentUnreachable),
        (_http(b" " * (1 << 20)), EnvironmentProtocolError),
        (b"garbage", EnvironmentUnreachable),
    ],
)
def test_a_bad_health_answer_has_its_typed_error(answer: bytes, expected: type[TiltyardError]) -> None:
    listener, url = _http_server(answer)
    with pytest.raises(expected):
        asyncio.run(ask_health(settings(url)))
    listener.close()


def test_a_dripping_health_answer_is_cut_off() -> None:
    listener, url = _http_server(_http(HEALTHY), delay_s=0.2)
    began = time.monotonic()
    with pytest.raises(EnvironmentTimeout):
        asyncio.run(ask_health(settings(url, connect_timeout_s=0.5)))
    assert time.monotonic() - began < 2
    listener.close()
