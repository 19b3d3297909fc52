"""The gate of docker-compose.yml: real sockets on loopback addresses, the service on one and the gate on the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from tests.processes import ROOT
from webapp.common.host import free_port
from webapp.ops import gate

THERE, GATE = "127.0.0.1", "127.0.0.2"
LIMIT_S = 20


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A service that answers once all was sent: it depends on the sender's end being passed on."""
    text = await reader.read()
    writer.write(text.upper())
    writer.close()


@contextlib.asynccontextmanager
async def opened(*ports: int) -> AsyncIterator[None]:
    """The gate."""
    servers = await gate.listen([(THERE, port) for port in ports], [GATE])
    yield
    for server in servers:
        server.close()


async def ask(port: int, data: bytes) -> bytes:
    """The answer to all of ``data``, by the gate; nothing where it was closed."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection(GATE, port)
        try:
            writer.write(data)
            writer.write_eof()
            return await reader.read()
        except ConnectionError:  # closed with our bytes unread
            return b""
        finally:
            writer.close()


async def test_each_port_leads_to_its_service_and_bytes_and_ends_pass_both_ways() -> None:
    first, second = free_port(), free_port()

    async def length(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read())).encode())
        writer.close()

    async with (
        await asyncio.start_server(shout, THERE, first),
        await asyncio.start_server(length, THERE, second),
        opened(first, second),
    ):
        large = b"abc" * 1_000_000  # more than any buffer on the way
        assert await asyncio.gather(ask(first, large), ask(second, large), ask(first, b"x")) == [
            large.upper(),
            b"3000000",
            b"X",
        ]


async def test_a_service_that_is_away_closes_the_connection_and_its_return_is_seen() -> None:
    port = free_port()
    async with opened(port):
        assert await ask(port, b"now") == b""
        async with await asyncio.start_server(shout, THERE, port):
            assert await ask(port, b"now") == b"NOW"
        assert await ask(port, b"now") == b""


async def test_the_end_of_a_client_is_heard_and_lost_hosts_are_noticed_within_two_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10):
            await seen.put(data)
        await seen.put(b"end")
        writer.close()

    made: list[asyncio.StreamWriter] = []
    keep_alive = gate._keep_alive
    monkeypatch.setattr(gate, "_keep_alive", lambda writer: (made.append(writer), keep_alive(writer)))
    async with await asyncio.start_server(hold, THERE, port), opened(port):
        _reader, writer = await asyncio.open_connection(GATE, port)
        writer.write(b"hello")
        assert await asyncio.wait_for(seen.get(), LIMIT_S) == b"hello" and len(made) == 2, "both sides"
        for side in made:
            peer = side.get_extra_info("socket")
            waits = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            idle, every, tries, unsent_ms = (peer.getsockopt(socket.IPPROTO_TCP, option) for option in waits)
            assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert idle + every * tries == 120 and unsent_ms == 120_000
        writer.transport.abort()
        assert await asyncio.wait_for(seen.get(), LIMIT_S) == b"end"


def test_it_starts_as_its_container_starts_it_and_refuses_what_it_cannot_read() -> None:
    port = free_port()
    argv = [sys.executable, "webapp/ops/gate.py", f"{GATE}:{port}"]
    with subprocess.Popen(argv, cwd=ROOT) as process:
        try:
            deadline = time.monotonic() + LIMIT_S
            while True:
                with contextlib.suppress(OSError), socket.create_connection((gate.outward(), port), timeout=1):
                    break
                assert time.monotonic() < deadline and process.poll() is None
            socket.create_connection((gate.SELF, port), timeout=1).close()
            with pytest.raises(ConnectionRefusedError):  # an address of another network
                socket.create_connection((GATE, port), timeout=1)
        finally:
            process.terminate()
    for words in (["postgres"], ["postgres:"], [":1"], ["a:x"], ["a:1", "b:1"], ["a:3-2"], ["a:1-"], ["a:1-3", "b:3"]):
        with pytest.raises(ValueError, match=r"port|PORT"):
            gate.places_of(words)
    assert gate.places_of(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    assert gate.places_of(["a:1-3", "b:4-4"]) == [("a", 1), ("a", 2), ("a", 3), ("b", 4)]
