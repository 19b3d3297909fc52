"""What every server must bear alike: unknown tasks, malformed and huge actions, paths, floods and vanishing clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.envs.client import TEST_TIMEOUT_S, Server, error_code, run, running_server, session

NAMES = ("tools", "toolbench", "bfcl", "webshop")
UNKNOWN: dict[str, dict[str, Any]] = {
    "tools": {"conversation": "nothing"},
    "toolbench": {"query_id": 999_999_999},
    "bfcl": {"id": "multi_turn_base_9999"},
    "webshop": {"session_id": 10**9},
}
PATHS = ("../../../../etc/passwd", "/etc/passwd", "..\\..\\etc\\passwd", "file:///etc/passwd", "%2e%2e%2fetc%2fpasswd")
FLOOD, HELD = 5000, 512


@pytest.fixture(scope="module", params=NAMES)
def any_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Server]]:
    folder = tmp_path_factory.mktemp(request.param)
    with running_server(folder, "--slots", "4", module=f"envs.{request.param}") as started:
        yield request.param, started


def test_an_unknown_task_is_a_sentence_and_the_session_lives(any_server: tuple[str, Server]) -> None:
    name, server = any_server

    async def ask() -> None:
        async with session(server) as client:
            for task in (UNKNOWN[name], {"id": None}, {"session_id": "../x"}, {"query_id": [1]}):
                answer = await client.send({"type": "reset", "data": {"task": task}})
                if task == UNKNOWN[name]:
                    assert error_code(answer) == "EXECUTION_ERROR"
                    assert len(answer["data"]["message"]) > 20
            first = await client.reset({}, 3)
            assert first["observation"]["messages"] and not first["done"]

    run(ask())


def test_paths_in_arguments_are_only_text(any_server: tuple[str, Server]) -> None:
    _name, server = any_server

    async def ask() -> None:
        async with session(server) as client:
            tools = (await client.reset({}, 1))["observation"]["tools"]
            assert tools
            for tool in tools:
                function = tool["function"]
                fields = list(function["parameters"]["properties"])
                for path in PATHS:
                    await client.reset({}, 1)
                    answer = await client.step("", (function["name"], dict.fromkeys(fields, path)))
                    assert "root:" not in json.dumps(answer)

    run(ask())


def test_malformed_actions_are_answers_to_the_model(any_server: tuple[str, Server]) -> None:
    _name, server = any_server

    async def ask() -> None:
        async with session(server) as client:
            for calls in (
                [("no_such_tool", {})],
                [("x" * 10_000, {"a": "b"})],
                [("__class__", {"__init__": 1})],
                [("eval", {"": None, "x": [[[[1]]]]})] * 40,
            ):
                await client.reset({}, 2)
                answer = await client.step("", *calls)
                assert answer["observation"]["messages"] or answer["done"]
                assert answer["reward"] in (None, 0.0)

    run(ask())


def test_ten_megabytes_end_their_own_session_only(any_server: tuple[str, Server]) -> None:
    _name, server = any_server

    async def ask() -> None:
        async with session(server) as other:
            await other.reset({}, 4)
            async with session(server) as client:
                await client.reset({}, 4)
                with pytest.raises(ConnectionClosed) as closed:
                    await client.step("", ("search", {"query": "a" * 10_000_000}))
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
            assert (await other.step("", ("no_such_tool", {})))["observation"]["messages"]

    run(ask())
    server.wait_for_sessions(0, 10)


def test_a_vanished_client_gives_its_slot_back(any_server: tuple[str, Server]) -> None:
    _name, server = any_server

    async def vanish() -> None:
        clients = [session(server) for _ in range(4)]
        opened = [await client.__aenter__() for client in clients]
        for client in opened:
            await client.reset({}, 1)
        async with session(server) as fifth:
            assert error_code(await fifth.receive()) == "CAPACITY_REACHED"
        for client in opened:
            client.websocket.transport.abort()

    run(vanish())
    server.wait_for_sessions(0, 10)


@pytest.mark.slow
def test_five_thousand_clients_ask_for_five_hundred_and_twelve_slots(server: Server) -> None:
    """All slots are held and play on; every other client hears at once that there is none."""
    refused: list[str] = []
    gate = asyncio.Semaphore(200)

    async def hold(ready: asyncio.Barrier, done: asyncio.Event) -> None:
        async with session(server) as client:
            await client.reset({}, 1)
            await ready.wait()
            await done.wait()
            await client.step("", ("calculator", {"expression": "1 + 1"}))

    async def knock() -> None:
        async with gate, session(server) as client:
            refused.append(error_code(await client.receive()))

    async def flood() -> None:
        ready, done = asyncio.Barrier(HELD + 1), asyncio.Event()
        held = [asyncio.create_task(hold(ready, done)) for _ in range(HELD)]
        await ready.wait()
        await asyncio.gather(*(knock() for _ in range(FLOOD - HELD)))
        assert server.health()["sessions"] == HELD
        done.set()
        await asyncio.gather(*held)

    run(flood(), 4 * TEST_TIMEOUT_S)  # five thousand clients of our own on a busy machine
    assert refused == ["CAPACITY_REACHED"] * (FLOOD - HELD)
    server.wait_for_sessions(0, 10)
