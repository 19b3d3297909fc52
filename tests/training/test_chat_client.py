"""Requests of one event loop to an endpoint share its connections, where the loop says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from training.addresses import AllowList
from training.chat_client import Endpoint, complete, drop_clients, keep_clients
from training.connections import Access, reaching
from training.errors import EndpointFault

ANSWER = json.dumps({"choices": [{"message": {"content": "OK"}}]}).encode()
ASKED = {"messages": [{"role": "user", "content": "Say OK."}]}


class Server:
    """Answers on connections that it keeps, and counts them. ``open`` are those that are not closed."""

    def __init__(self) -> None:
        self.opened, self.open, self.url = 0, 0, ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened, self.open = self.opened + 1, self.open + 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[Server]:
    server = Server()
    made = await asyncio.start_server(server.serve, "127.0.0.1", port)
    server.url = f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/v1"
    async with made:
        yield server
        await drop_clients()


def endpoint(server: Server, **over: Any) -> Endpoint:
    return Endpoint(**{"url": server.url, "model": "m", "timeout_s": 10.0, **over})


async def ask(server: Server, times: int = 1, **over: Any) -> None:
    for _ in range(times):
        assert (await complete(endpoint(server, **over), ASKED)).text == "OK"


async def test_a_loop_that_keeps_nothing_has_a_connection_for_each_request() -> None:
    async with serving() as server:
        await ask(server, 3)
        assert server.opened == 3


async def test_a_loop_that_keeps_clients_shares_them_until_it_drops_them() -> None:
    async with serving() as server:
        keep_clients(asyncio.get_running_loop())
        await ask(server, 3)
        assert (server.opened, server.open) == (1, 1)
        await drop_clients()
        await asyncio.sleep(0.05)
        assert server.open == 0
        await ask(server, 2)
        assert server.opened == 3


async def test_another_key_has_a_client_of_its_own() -> None:
    async with serving() as server:
        keep_clients(asyncio.get_running_loop())
        await ask(server, 2)
        for key in ("the-first-key-of-ours", "the-second-key-of-ours", "the-first-key-of-ours"):
            await ask(server, key=key)
        assert server.opened == 3


async def test_a_context_with_an_access_of_its_own_shares_nothing() -> None:
    async with serving() as server:
        keep_clients(asyncio.get_running_loop())
        await ask(server)
        port = server.url.rpartition(":")[2].partition("/")[0]
        with reaching(Access(AllowList([f"127.0.0.1:{port}"]))):
            await ask(server, 2)
        with reaching(Access(AllowList([]))), pytest.raises(EndpointFault):
            await ask(server)
        await ask(server)
        assert server.opened == 3
