"""The connections of a client: taken again, bounded, and never used in a state that they should not be in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from training.connections import HttpClient, HttpFailed, KeptConnections, TooLarge, Why, tls


class Server:
    """Answers what the path says, and counts the connections."""

    def __init__(self) -> None:
        self.opened, self.open, self.most_open = 0, 0, 0
        self.go = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened, self.open = self.opened + 1, self.open + 1
        self.most_open = max(self.most_open, self.open)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split()[1].decode()
                if path == "/wait":
                    await self.go.wait()
                more = b"Connection: close\r\n" if path == "/close" else b""
                body = b"x" * (200_000 if path == "/long" else 2)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body) + (path == "/cut"), more))
                writer.write(body)
                await writer.drain()
                if path in {"/close", "/cut", "/gone"}:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    made = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}"
    async with made:
        yield server


@asynccontextmanager
async def client(**over: Any) -> AsyncIterator[httpx.AsyncClient]:
    kept = KeptConnections(tls(), **{"most": 4, "idle_s": 5.0, **over})
    async with httpx.AsyncClient(transport=kept, trust_env=False, timeout=30) as made:
        yield made


async def ask(one: httpx.AsyncClient, url: str) -> bytes:
    return (await one.get(url)).content


async def test_requests_one_after_another_share_a_connection() -> None:
    async with serving() as server, client() as one:
        for _ in range(5):
            assert await ask(one, f"{server.url}/") == b"xx"
        assert server.opened == 1


async def test_as_many_are_open_as_there_are_requests_at_once_up_to_the_most() -> None:
    async with serving() as server, client(most=4) as one:
        asked = [asyncio.create_task(ask(one, f"{server.url}/wait")) for _ in range(9)]
        while server.open < 4:  # noqa: ASYNC110 - a server has no event for it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        server.go.set()
        assert await asyncio.gather(*asked) == [b"xx"] * 9
        assert (server.opened, server.most_open) == (4, 4)


@pytest.mark.parametrize(("path", "opened"), [("/", 1), ("/close", 2), ("/gone", 2)])
async def test_a_connection_that_the_server_ends_is_not_used_again(path: str, opened: int) -> None:
    """Also one that ends without a word, between two requests."""
    async with serving() as server, client() as one:
        await ask(one, server.url + path)
        await asyncio.sleep(0.05)
        assert await ask(one, f"{server.url}/") == b"xx"
        assert server.opened == opened


async def test_one_that_was_idle_for_too_long_is_not_used_again() -> None:
    async with serving() as server, client(idle_s=0.05) as one:
        await ask(one, f"{server.url}/")
        await asyncio.sleep(0.1)
        await ask(one, f"{server.url}/")
        assert server.opened == 2


async def test_an_answer_that_was_not_read_to_its_end_costs_its_connection() -> None:
    async with serving() as server, HttpClient(5.0, connections=1) as one:
        async with one.stream("GET", f"{server.url}/long") as answer:
            with pytest.raises(TooLarge):
                async for _chunk in answer.chunks(1000):
                    pass
        async with one.stream("GET", f"{server.url}/") as answer:  # the place is free again
            assert b"".join([chunk async for chunk in answer.chunks(10)]) == b"xx"
        assert server.opened == 2


async def test_a_request_that_is_cancelled_gives_its_place_back() -> None:
    async with serving() as server, client(most=1) as one:
        asked = asyncio.create_task(ask(one, f"{server.url}/wait"))
        while not server.open:  # noqa: ASYNC110 - a server has no event for it
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await asyncio.wait_for(ask(one, f"{server.url}/"), 5) == b"xx"
        assert server.opened == 2


async def test_failures_have_the_names_that_callers_know() -> None:
    async with serving() as server, HttpClient(5.0, connections=1) as one:
        with pytest.raises(HttpFailed) as caught:
            async with one.stream("GET", f"{server.url}/cut") as answer:
                async for _chunk in answer.chunks(1000):
                    pass
        assert caught.value.why is Why.NOT_HTTP
        async with one.stream("GET", f"{server.url}/") as answer:
            assert answer.status == 200
    with pytest.raises(HttpFailed) as refused:
        async with HttpClient(5.0) as one:
            await one.open("GET", server.url)
    assert refused.value.why is Why.REFUSED


async def test_closing_drops_the_idle_ones() -> None:
    async with serving() as server:
        async with client() as one:
            await ask(one, f"{server.url}/")
            assert server.open == 1
        for _ in range(100):
            if not server.open:
                break
            await asyncio.sleep(0.01)
        assert server.open == 0


@pytest.mark.parametrize("repeats", [True, False])
async def test_a_request_that_meets_the_end_of_a_kept_connection(repeats: bool) -> None:
    """It is sent once more where it may be asked twice, and never more than once."""
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(asked)
        for answered in range(2):
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            asked.append(number)
            if answered:  # hang up in place of the second answer
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx")
        writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/"
    async with made, client(repeats=repeats) as one:
        assert await ask(one, url) == b"xx"
        if repeats:
            assert await ask(one, url) == b"xx"
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                await ask(one, url)
    assert asked == ([0, 0, 2] if repeats else [0, 0])
