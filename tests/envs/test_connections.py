"""Environment servers: every wait of a connection ends, and idle connections are in no one's way. Real sockets."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from uvicorn.server import ServerState

from envs.base import connections
from envs.base.connections import MAX_WAITING, HttpConnection
from tests.envs.client import Server, run, running_server, session

IDLE = 1050
SHORT = (
    "import envs.base.connections as c\nc.HEAD_S, c.BODY_S, c.LINGER_S = 0.4, 0.8, 0.4\n"
    "from envs.base.settings import ServerSettings\n"
    "make = ServerSettings.__init__\n"
    "make.__defaults__ = tuple(0.5 if value == 30.0 else value for value in make.__defaults__)"
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose limits are tenths of a second, send and call time-outs included."""
    with running_server(tmp_path_factory.mktemp("quick"), "--slots", "8", before=SHORT) as started:
        started.health()  # it says that it listens before its loop has opened its own descriptors, which tests count
        yield started


def connected(server: Server) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    peer.settimeout(5)
    return peer


def ended_after_s(peer: socket.socket) -> float:
    """Seconds until the server closes or resets the connection, whatever it sends before."""
    started = time.monotonic()
    try:
        while peer.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - started


def open_descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def wait_for_descriptors(server: Server, at_most: int, within_s: float = 20.0) -> None:
    ends_at = time.monotonic() + within_s
    while open_descriptors(server) > at_most:
        assert time.monotonic() < ends_at, f"{open_descriptors(server)} descriptors are open"
        time.sleep(0.05)


def handshake(server: Server) -> socket.socket:
    """A websocket whose client does only what the test does."""
    peer = connected(server)
    key = base64.b64encode(os.urandom(16)).decode()
    peer.sendall(
        f"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert peer.recv(4096).startswith(b"HTTP/1.1 101")
    return peer


def frame(text: str) -> bytes:
    data = text.encode()
    return b"\x81" + bytes([0x80 | 127]) + struct.pack(">Q", len(data)) + b"\0\0\0\0" + data


@pytest.mark.slow
def test_1050_idle_connections_do_not_keep_health_from_answering(tmp_path: Path) -> None:
    """With the default settings. Two waves, as before each stayed for good: the second used up the descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1300))"
    peers: list[socket.socket] = []
    try:
        with running_server(tmp_path, before=few) as server:
            for _ in range(2):
                peers += [connected(server) for _ in range(IDLE)]
                for peer in peers[::2]:
                    with suppress(OSError):
                        peer.sendall(b"POST /mcp HTTP/1.1\r\nContent-Le")
                started = time.monotonic()
                assert server.health()["status"] == "healthy"
                assert time.monotonic() - started < 1
                wait_for_descriptors(server, MAX_WAITING + 60)

            async def play() -> None:
                async with session(server) as client:
                    assert (await client.reset({}, 1))["done"] is False

            run(play())
            assert "traceback" not in server.log.read_text()
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("late_s", "cut"), [(0.0, 2), (0.4, 2), (2.0, 0)])
def test_a_server_that_was_held_up_does_not_take_its_own_pause_for_idleness(late_s: float, cut: int) -> None:
    """Of 512 clients that came at once to a busy machine some were cut before what they had sent was read."""
    loop, state = asyncio.new_event_loop(), ServerState()
    for _ in range(MAX_WAITING + 2):
        one = HttpConnection.__new__(HttpConnection)
        one.waiting_since, one.transport = time.monotonic() - 4.0, Mock()
        state.connections.add(one)
    connections._sweeps[state] = loop.call_at(loop.time() - late_s, lambda: None)
    connections._sweep(loop, state)
    assert sum(one.transport.abort.called for one in state.connections) == cut
    assert (state in connections._sweeps) is not bool(cut)  # it looks again
    loop.close()


@pytest.mark.parametrize(
    ("sent", "limit_s"),
    [
        (b"", 0.4),
        (b"GET /heal", 0.4),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-More: ", 0.4),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 0.4),
        (b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", 0.8),
        (b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", 0.8),
    ],
)
def test_a_request_that_does_not_go_on_is_ended(quick: Server, sent: bytes, limit_s: float) -> None:
    with closing(connected(quick)) as peer:
        peer.sendall(sent)
        assert limit_s * 0.5 < ended_after_s(peer) < limit_s + 2


def test_a_request_of_single_bytes_is_ended_all_the_same(quick: Server) -> None:
    with closing(connected(quick)) as peer:
        started = time.monotonic()
        with pytest.raises(OSError):
            for byte in b"GET /health HTTP/1.1\r\n" + b"X-A: " + b"a" * 500:
                peer.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - started < 3


def test_a_head_without_end_is_cut_by_its_size(quick: Server) -> None:
    """Headers are collected in memory: at the speed of a network that would be gigabytes before any time limit."""
    sent = 0
    with closing(connected(quick)) as peer, pytest.raises(OSError):
        peer.sendall(b"GET /health HTTP/1.1\r\n")
        while sent < 64_000_000:
            peer.sendall(b"X-A: " + b"a" * 60_000 + b"\r\n")
            sent += 60_000
    assert sent < 8_000_000  # what fits into the buffers of both sides
    assert quick.health()["status"] == "healthy"


def test_a_large_body_in_one_piece_with_its_head_is_read(quick: Server) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "a" * 900_000}).encode()
    with closing(connected(quick)) as peer:
        peer.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        answer = b""
        while b"}" not in answer:
            answer += peer.recv(65536)
        assert b'"result":{}' in answer


def test_a_client_that_keeps_its_connection_continues(quick: Server) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", quick.port, timeout=5)) as peer:
        peer.connect()
        used = peer.sock
        for _ in range(6):
            peer.request("GET", "/health")
            assert json.loads(peer.getresponse().read())["name"] == "tools"
            time.sleep(0.2)
        assert peer.sock is used


def test_a_socket_that_reads_nothing_is_cut_with_its_descriptor_and_one_line(quick: Server) -> None:
    """Each left three tracebacks in the log, and its connection stayed for as long as the client did."""
    before = open_descriptors(quick)
    row = {"conversation": [{"role": "user", "content": "a" * 60_000}] * 15}
    reset = frame(json.dumps({"type": "reset", "data": {"task": row}}))
    peers = [handshake(quick) for _ in range(3)]
    for number, peer in enumerate(peers):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(0.3 if number == 0 else 20)
        with suppress(OSError):  # the first leaves while an answer is written to it, the others stay until they are cut
            for _ in range(60):
                peer.sendall(reset)
        if number == 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
    quick.wait_for_sessions(0, 20)
    wait_for_descriptors(quick, before)
    for peer in peers:
        peer.close()
    lines = [json.loads(line) for line in quick.log.read_text().splitlines()]
    assert not [line for line in lines if "traceback" in line]
    cut = [line for line in lines if line["action"] == "session.closed" and line["cut"]]
    assert len(cut) in (2, 3)  # the first may be cut too, where its end is noticed late
    assert quick.health()["status"] == "healthy"


def test_refused_sockets_that_stay_are_cut(quick: Server) -> None:
    before = open_descriptors(quick)
    peers = [handshake(quick) for _ in range(8 + 30)]  # 30 more than there are slots; none answers the closing frame
    wait_for_descriptors(quick, before + 8)
    for peer in peers:
        peer.close()
    quick.wait_for_sessions(0, 20)
