"""1,050 idle connections made every answer of the web server 503; no head or body had a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from webapp.common.host import free_port
from webapp.ops import connections

pytestmark = pytest.mark.django_db(transaction=True)
IDLE = 1_050


@pytest.fixture
def web(transactional_db: None, site: str) -> int:
    """The port of a web server as `up` starts it."""
    return int(site.rsplit(":", 1)[1])


@pytest.fixture
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this machine allows too few open files for 1,050 connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask(port: int, source: str = "127.0.0.2") -> tuple[int, float]:
    """Status of the login page, and the seconds that it took, from another address."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0)) as line:
        line.sendall(b"GET /login/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = line.recv(64)
    return int(head.split()[1]), time.monotonic() - began


def closed(line: socket.socket, within_s: float) -> bool:
    """Whether the server ends this connection in time."""
    line.settimeout(within_s)
    try:
        while line.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Half"], ids=["silent", "half a head"])
def test_idle_connections_keep_no_visitor_out(web: int, descriptors: None, sent: bytes) -> None:
    with contextlib.ExitStack() as lines:
        idle = []
        for _number in range(IDLE):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", web), timeout=10))
            with contextlib.suppress(ConnectionError):
                line.sendall(sent)
            idle.append(line)
        status, took = ask(web)
        assert status == 200 and took < 2, (status, took)
        status, took = ask(web, "127.0.0.1")  # also from behind the same address
        assert status == 200 and took < 2, (status, took)
        time.sleep(2.1)
        assert ask(web, "127.0.0.1")[0] == 200
        assert closed(idle[0], 1) and closed(idle[IDLE // 2], 1)  # the oldest made room


async def measures(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with the size of the body and keeps every websocket open."""
    size, more = 0, True
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b"%d bytes" % size})


@contextlib.asynccontextmanager
async def serving(app: Any = measures, **over: Any) -> AsyncIterator[int]:
    """The same protocols in this process, before an application."""
    port = free_port()
    options: dict[str, Any] = {"lifespan": "off", "log_config": None, "proxy_headers": False}
    protocols: dict[str, Any] = {"http": connections.HttpProtocol, "ws": connections.SocketProtocol}
    config = uvicorn.Config(app, port=port, **protocols, **options, **over)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield port
    server.should_exit = True
    await task


async def post(port: int, piece: bytes, pieces: int = 15, head: bytes = b"") -> bytes:
    """Send a body piece by piece, one every tenth of a second; what the server said, if it did."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head or b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(piece) * pieces))
    with contextlib.suppress(ConnectionError):
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.1)
        return await asyncio.wait_for(reader.read(4096), 5)
    return b""


async def test_slow_heads_and_bodies_are_cut_off_and_steady_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head or a body of a byte a moment held its connection without end."""
    for name, seconds in {"BODY_GRACE_S": 0.4, "BODY_LOOK_S": 0.1, "HEAD_LIMIT_S": 0.6}.items():
        monkeypatch.setattr(connections, name, seconds)
    async with serving() as port:
        slow, steady, half = await asyncio.gather(
            post(port, b"x"), post(port, b"x" * 2_000), post(port, b"X-Half: a head\r\n", head=b"GET / HTTP/1.1\r\n")
        )
    assert slow == b"" and half == b"" and b"30000 bytes" in steady
    assert not connections._busy and not connections._idle.all


async def test_a_socket_that_waits_to_be_let_in_hears_of_a_new_start() -> None:
    """uvicorn answered 500 to each tab that was opening its socket when the site was started again."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await asyncio.sleep(0.5)  # as the question to the database who this is
        try:
            await send({"type": "websocket.accept"})
        finally:
            left.set()

    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        keys = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        head = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{keys}\r\n"
        writer.write(head.encode())
        await asyncio.wait_for(asked.wait(), 5)
    answer = (await asyncio.wait_for(reader.read(4096), 5)).decode()
    assert answer.startswith("HTTP/1.1 503 ") and "Retry-After: 5\r\n" in answer
    await asyncio.wait_for(left.wait(), 5)
    assert await reader.read() == b"" and not connections._sockets


async def test_one_address_does_not_take_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_PER_ADDRESS", 3)
    async with serving() as port:
        answers = await asyncio.gather(*(post(port, b"x", 5) for _ in range(5)))
        assert sum(b"5 bytes" in answer for answer in answers) == 3  # the others got 503, or cut off after it
        assert b"5 bytes" in await post(port, b"x", 5)


def test_keep_alive_and_large_answers_still_work(web: int) -> None:
    with socket.create_connection(("127.0.0.1", web), timeout=10) as line:
        for _ in range(3):
            line.sendall(b"GET /static/css/base.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = b""
            while b"\r\n\r\n" not in data:
                data += line.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            size = next(int(row.split(b":")[1]) for row in head.split(b"\r\n") if row.startswith(b"content-length"))
            while len(body) < size:
                body += line.recv(65536)
            assert head.startswith(b"HTTP/1.1 200") and len(body) == size
    url = f"http://127.0.0.1:{web}/static/vendor/htmx-2.0.6.min.js"
    assert len(urllib.request.urlopen(url, timeout=5).read()) == 51_007


def test_a_refusal_of_a_large_body_is_read_by_who_sends_it(web: int) -> None:
    """Closed at once, the rest of the body reset the line: browsers and proxies saw a broken one and not the 413."""
    request = urllib.request.Request(f"http://127.0.0.1:{web}/login/", data=b"x" * 5_000_000, method="POST")
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(request, timeout=10)
        assert answer.value.code == 413 and b"too_large" in answer.value.read()


async def test_open_sockets_take_no_request_its_place() -> None:
    """Uvicorn compared them with the limit of requests, so 999 open tabs closed every page to all visitors."""
    async with serving(limit_concurrency=8) as port, contextlib.AsyncExitStack() as tabs:
        sockets = [await tabs.enter_async_context(connect(f"ws://127.0.0.1:{port}/")) for _ in range(20)]
        assert len(connections._sockets) == 20
        assert b"200 OK" in await post(port, b"x", 1)
        assert b"200 OK" in await post(port, b"x", 1)
        for one in sockets[:5]:
            await one.close()
        assert b"200 OK" in await post(port, b"x", 1)
        assert len(connections._sockets) == 15
    assert not connections._sockets


async def test_requests_keep_their_limit_while_sockets_are_open() -> None:
    async with serving(limit_concurrency=8) as port, contextlib.AsyncExitStack() as tabs:
        for _ in range(20):
            await tabs.enter_async_context(connect(f"ws://127.0.0.1:{port}/"))
        half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"
        lines = []
        for _ in range(7):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            lines.append(writer)
        await asyncio.sleep(0.2)
        answer = await post(port, b"x", 1)
        assert b"503" in answer.split(b"\r\n")[0]
        lines.pop().close()
        await asyncio.sleep(0.2)
        assert b"200 OK" in await post(port, b"x", 1)
        for writer in lines:
            writer.close()
