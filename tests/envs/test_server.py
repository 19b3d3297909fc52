from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from envs.tools.tasks import draw_task
from envs.wire import Health, Observation
from tests.envs.client import ROOT, Server, error_code, run, running_server, session
from tests.envs.conftest import TOKEN

GARBAGE: dict[str, tuple[str | bytes, str]] = {
    "not JSON": ("hello", "INVALID_JSON"),
    "empty": ("", "INVALID_JSON"),
    "cut off": ('{"type": "reset", "data": {', "INVALID_JSON"),
    "bytes": (b"\x00\xff", "INVALID_JSON"),
    "number": ("5", "VALIDATION_ERROR"),
    "null": ("null", "VALIDATION_ERROR"),
    "list": ("[1, 2]", "VALIDATION_ERROR"),
    "no type": ("{}", "UNKNOWN_TYPE"),
    "unknown type": ('{"type": "explode"}', "UNKNOWN_TYPE"),
    "type is a list": ('{"type": ["reset"]}', "UNKNOWN_TYPE"),
    "MCP": ('{"type": "mcp", "data": {"method": "tools/list"}}', "UNKNOWN_TYPE"),
    "data is a list": ('{"type": "step", "data": [1]}', "VALIDATION_ERROR"),
    "message is a number": ('{"type": "step", "data": {"message": 5}}', "VALIDATION_ERROR"),
    "calls are text": ('{"type": "step", "data": {"tool_calls": "calculator"}}', "VALIDATION_ERROR"),
    "call without name": ('{"type": "step", "data": {"tool_calls": [{"id": "1"}]}}', "VALIDATION_ERROR"),
    "arguments are text": (
        '{"type": "step", "data": {"tool_calls": [{"id": "1", "name": "x", "arguments": "{}"}]}}',
        "VALIDATION_ERROR",
    ),
    "seed is text": ('{"type": "reset", "data": {"seed": "abc"}}', "VALIDATION_ERROR"),
    "task is text": ('{"type": "reset", "data": {"task": "abc"}}', "VALIDATION_ERROR"),
    "unplayable task": ('{"type": "reset", "data": {"task": {"conversation": 5}}}', "EXECUTION_ERROR"),
    "deep list": ("[" * 100_000, "INVALID_JSON"),
    "deep object": ('{"type":"step","data":' + '{"a":' * 500 + "1" + "}" * 501, "INVALID_JSON"),
    "huge integer": ('{"type": "reset", "data": {"seed": ' + "9" * 5000 + "}}", "INVALID_JSON"),
}


def http(server: Server, path: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_health_is_exactly_the_wire_model(server: Server) -> None:
    health = server.health()
    assert health.keys() == Health.model_fields.keys()
    assert (health["name"], health["version"], health["slots"], health["status"]) == ("tools", "1.0.0", 512, "healthy")


def test_an_episode_works_by_value(server: Server) -> None:
    async def episode() -> None:
        row = {
            "conversation": [{"role": "user", "content": "帮我计算一下 25 * 37 + 128 等于多少？"}],
            "answer": {"contains": ["1053"], "tools": ["calculator"]},
        }
        async with session(server) as client:
            first = await client.reset(row)
            Observation.model_validate(first["observation"])
            assert first["observation"]["messages"][0]["content"] == row["conversation"][0]["content"]
            assert len(first["observation"]["tools"]) == 4
            assert (first["done"], first["reward"]) == (False, None)
            second = await client.step("", ("calculator", {"expression": "25 * 37 + 128"}))
            assert [message["content"] for message in second["observation"]["messages"]] == ["1053"]
            assert (second["done"], second["reward"], second["observation"]["tools"]) == (False, None, None)
            last = await client.step("答案是 1,053。")
            assert (last["done"], last["reward"]) == (True, 1.0)
            assert last["observation"]["reward_parts"] == {"task_success": 1.0}
            assert last["observation"]["info"]["turn"] == 2
            assert error_code(await client.send({"type": "step", "data": {}})) == "EXECUTION_ERROR"
            await client.reset(row)
            assert (await client.step("1053"))["reward"] == 0.0

    run(episode())


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_frame_gets_an_error_and_the_session_lives(server: Server, name: str) -> None:
    frame, code = GARBAGE[name]

    async def attack() -> None:
        async with session(server) as client:
            answer = await client.send(frame)
            assert error_code(answer) == code
            assert len(answer["data"]["message"]) <= 300
            assert (await client.reset(seed=1))["done"] is False

    run(attack())


def test_half_surrogates_from_a_model_do_not_break_the_episode(server: Server) -> None:
    async def attack() -> None:
        async with session(server) as client:
            await client.reset(seed=1)
            frame = '{"type":"step","data":{"tool_calls":[{"id":"1","name":"\\ud800","arguments":{"x":NaN}}]}}'
            assert (await client.send(frame))["type"] == "observation"

    run(attack())


def test_fields_of_a_newer_peer_are_tolerated(server: Server) -> None:
    async def talk() -> None:
        async with session(server) as client:
            data = {"task": {}, "seed": 1, "self": 1, "newer": {"a": 1}}
            assert (await client.send({"type": "reset", "data": data, "newer": True}))["type"] == "observation"
            assert (await client.send({"type": "step", "data": {"newer": 1}, "trace": "x"}))["type"] == "observation"
            assert (await client.send({"type": "state"}))["data"]["step_count"] == 1

    run(talk())


@pytest.mark.parametrize("size", [2 * 1024 * 1024, 10 * 1024 * 1024])
def test_frame_over_one_megabyte_closes_only_its_own_session(server: Server, size: int) -> None:
    async def attack() -> None:
        async with session(server) as other, session(server) as client:
            await client.reset()
            with pytest.raises(ConnectionClosed) as closed:
                await client.step("", ("calculator", {"expression": "1" * size}))
            assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
            assert (await other.reset())["done"] is False

    run(attack())


def test_long_argument_inside_a_frame_is_a_tool_error(server: Server) -> None:
    async def attack() -> None:
        async with session(server) as client:
            await client.reset({"conversation": [{"role": "user", "content": "hi"}]})
            answer = await client.step("", ("calculator", {"expression": "1" * 900_000}))
            assert answer["observation"]["messages"][0]["content"].startswith("Error: an argument is longer")

    run(attack())


def test_endless_garbage_is_cut_off(server: Server) -> None:
    async def attack() -> None:
        async with session(server) as client:
            with pytest.raises(ConnectionClosed) as closed:
                for _ in range(100):
                    await client.send("garbage")
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 4400

    run(attack())


def test_a_good_frame_forgives_the_bad_ones_before_it(server: Server) -> None:
    async def talk() -> None:
        async with session(server) as client:
            for _round in range(3):
                for _bad in range(31):  # the 32nd in a row would end the session
                    assert (await client.send("garbage"))["type"] == "error"
                assert (await client.reset(seed=1))["done"] is False

    run(talk())


def thread_count(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def test_five_hundred_and_twelve_sessions_play_and_the_next_is_refused(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2048, hard)), hard))

    async def play(client: Any, seed: int) -> float:
        task = draw_task(seed)
        await client.reset(task.row, seed)
        await client.step("", *[(call.name, call.arguments) for call in task.calls])
        return (await client.step(task.final))["reward"]

    async def load() -> None:
        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(16):
                opened = await asyncio.gather(*(stack.enter_async_context(session(server)) for _ in range(32)))
                clients += opened
            rewards = await asyncio.gather(*(play(client, seed) for seed, client in enumerate(clients)))
            assert rewards == [1.0] * 512
            assert (await asyncio.to_thread(server.health))["sessions"] == 512
            assert thread_count(server) < 64
            async with session(server) as refused:
                assert error_code(await refused.receive()) == "CAPACITY_REACHED"

    server.wait_for_sessions(0, within_s=5)
    run(load())
    server.wait_for_sessions(0, within_s=10)


def test_same_task_and_seed_give_the_same_episode_across_processes(server: Server, strict_server: Server) -> None:
    async def trace(of: Server) -> list[Any]:
        async with session(of) as client:
            frames = []
            for seed in range(50):
                frames.append(await client.reset({"language": "both", "difficulty": "mixed"}, seed))
                frames.append(await client.step("", ("get_current_time", {}), ("search", {"query": "born"})))
                frames.append(await client.step("85"))
            return frames

    assert run(trace(server)) == run(trace(strict_server))


@pytest.mark.parametrize(
    "headers",
    [
        {"X-None": "1"},
        {"Authorization": "Bearer wrong-token-0123456789"},
        {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
    ],
    ids=["none", "wrong", "no scheme", "longer", "basic"],
)
def test_wrong_token_is_refused_on_http_and_websocket(strict_server: Server, headers: dict[str, str]) -> None:
    async def connect() -> None:
        with pytest.raises(InvalidStatus) as refused:
            async with session(strict_server, **headers):
                pass
        assert refused.value.response.status_code == 401

    run(connect())
    status, body = http(strict_server, "/state", **headers)
    assert status == 401
    assert json.loads(body)["code"] == "UNAUTHORIZED"


def test_health_needs_no_token(strict_server: Server) -> None:
    assert http(strict_server, "/health")[0] == 200


def test_a_browser_is_refused_even_with_the_token(strict_server: Server) -> None:
    async def connect() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://127.0.0.1"}
        with pytest.raises(InvalidStatus) as refused:
            async with session(strict_server, **headers):
                pass
        assert refused.value.response.status_code == 403

    run(connect())


@pytest.mark.parametrize(
    "path",
    [
        "/reset",
        "/step",
        "/state",
        "/web",
        "/docs",
        "/redoc",
        "/x",
        "/health/",
    ],
)
def test_nothing_but_health_is_served_over_http(server: Server, path: str) -> None:
    status, body = http(server, path)
    assert status == 404
    assert json.loads(body).keys() == {"ok", "code", "message", "detail", "request_id"}


def test_no_cors_header_is_ever_sent(server: Server) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/health")
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def open_raw(server: Server) -> socket.socket:
    """A client that speaks the handshake and then nothing: it answers no ping."""
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /ws HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        f"Authorization: Bearer {server.token}",
    ]
    raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    assert b"101" in raw.recv(1024)
    return raw


def test_a_silent_client_gives_its_slot_back(strict_server: Server) -> None:
    strict_server.wait_for_sessions(0, within_s=10)
    with open_raw(strict_server), open_raw(strict_server):
        strict_server.wait_for_sessions(2, within_s=5)
        assert strict_server.wait_for_sessions(0, within_s=10) < 5


def test_a_killed_client_gives_its_slot_back(strict_server: Server) -> None:
    strict_server.wait_for_sessions(0, within_s=10)
    for _ in range(5):
        open_raw(strict_server).close()
    assert strict_server.wait_for_sessions(0, within_s=10) < 5


def test_an_idle_session_is_closed_with_its_own_code(strict_server: Server) -> None:
    async def idle() -> None:
        async with session(strict_server) as client:
            await client.reset()
            with pytest.raises(ConnectionClosed) as closed:
                await client.receive()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 4408

    strict_server.wait_for_sessions(0, within_s=10)
    run(idle())
    strict_server.wait_for_sessions(0, within_s=5)


def test_logs_are_json_lines_without_the_token(strict_server: Server) -> None:
    run(_one_refusal(strict_server))
    lines = strict_server.log.read_text().splitlines()
    assert all({"time", "level", "env", "action"} <= json.loads(line).keys() for line in lines)
    assert TOKEN not in strict_server.log.read_text()


async def _one_refusal(server: Server) -> None:
    with pytest.raises(InvalidStatus):
        async with session(server, Authorization=f"Bearer {TOKEN}!"):
            pass


def test_sigterm_ends_the_server_within_two_seconds_even_in_a_step(tmp_path: Path) -> None:
    async def step_and_wait(server: Server) -> float:
        async with session(server) as client:
            await client.reset()
            await client.websocket.send('{"type": "step", "data": {}}')
            await asyncio.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            await asyncio.to_thread(server.process.wait, 10)
            return time.monotonic() - started

    with running_server(tmp_path, "--delay-ms", "30000") as server:
        assert run(step_and_wait(server)) < 2


def test_delay_makes_a_step_take_that_long(tmp_path: Path) -> None:
    async def timed(server: Server) -> float:
        async with session(server) as client:
            await client.reset()
            started = time.monotonic()
            await client.step("x")
            return time.monotonic() - started

    with running_server(tmp_path, "--delay-ms", "150") as server:
        assert 0.15 <= run(timed(server)) < 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "--token-file"),
        (["--token-file", "/nowhere"], "cannot be read"),
        (["--slots", "0"], "--slots"),
        (["--port", "99999"], "Cannot listen"),
    ],
    ids=["host", "token", "slots", "port"],
)
def test_bad_options_end_with_a_sentence(words: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "envs.tools", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr
