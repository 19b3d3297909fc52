"""The limits of the web server's connections, each at its edge: no socket, no server and no clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from webapp.ops import connections
from webapp.ops.connections import HttpProtocol, Idle

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Transport:
    """What a connection writes to; ``ended`` is how it was ended."""

    def __init__(self, address: str) -> None:
        self.address, self.ended, self.written = address, "", b""

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.address, 4321), "sockname": ("10.0.0.1", 80)}.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Timers:
    """A loop that keeps what is to be called later, by its seconds, and makes no task."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Any]] = []
        self.coroutines: list[Any] = []

    def call_later(self, seconds: float, action: Any, *_arguments: Any) -> Any:
        entry = (seconds, action)
        self.waiting.append(entry)
        return SimpleNamespace(cancel=lambda: self.waiting.remove(entry) if entry in self.waiting else None)

    def create_task(self, coroutine: Any, **_options: Any) -> Any:
        self.coroutines.append(coroutine)
        return Mock()

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _action in self.waiting]


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of one; and a process without connections."""
    time = [1000.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: time[0])
    monkeypatch.setattr(connections, "_idle", Idle())
    monkeypatch.setattr(connections, "_busy", Counter())
    return time


def connected(address: str = "192.0.2.7", **options: Any) -> tuple[HttpProtocol, Transport, Timers]:
    config = Config(app, log_config=None, **options)
    config.load()
    timers, transport = Timers(), Transport(address)
    protocol = HttpProtocol(config=config, server_state=ServerState(), app_state={}, _loop=timers)
    protocol.connection_made(transport)  # type: ignore[arg-type]
    return protocol, transport, timers


def test_over_its_limit_the_oldest_idle_connection_of_an_address_is_closed(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not within the moment that a burst of tabs needs to send its requests."""
    monkeypatch.setattr(connections, "IDLE_PER_ADDRESS", 2)
    first, other = connected(), connected("192.0.2.8")
    second, third = connected(), connected()
    assert [one[1].ended for one in (first, second, third, other)] == [""] * 4
    now[0] += connections.IDLE_GRACE_S
    fourth = connected()
    assert first[1].ended == "", "just within it"
    now[0] += 0.001
    fifth = connected()
    assert [one[1].ended for one in (first, second, third, fourth, fifth, other)] == ["aborted"] * 3 + [""] * 3


def test_over_the_limit_of_all_the_oldest_is_closed(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_ALL", 2)
    one, two = connected("192.0.2.1"), connected("192.0.2.2")
    assert (one[1].ended, two[1].ended) == ("", "")
    three = connected("192.0.2.3")
    assert [each[1].ended for each in (one, two, three)] == ["aborted", "", ""]
    for each in (two, three):
        each[0].connection_lost(None)
    assert not connections._idle.all and not connections._idle.by_address


def test_a_head_has_ten_seconds_and_then_its_body_is_looked_at(now: list[float]) -> None:
    protocol, transport, timers = connected()
    assert timers.seconds == [10.0]
    timers.waiting[0][1]()
    assert transport.ended == "aborted"
    protocol, transport, timers = connected()
    protocol.data_received(HEAD[:9])
    assert timers.seconds == [10.0] and protocol in connections._idle.all
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"[9:])
    protocol.connection_lost(None)
    assert timers.seconds == []


@pytest.mark.parametrize(
    ("took", "came", "slow"),
    [(20.0, 0, False), (20.5, 20_991, True), (20.5, 20_992, False), (100.0, 102_399, True), (100.0, 102_400, False)],
)
def test_a_body_keeps_arriving(now: list[float], took: float, came: int, slow: bool) -> None:
    protocol, transport, timers = connected()
    protocol._body_since, protocol._body_bytes = now[0], came
    now[0] += took
    timers.waiting.clear()
    protocol._check_body_rate()
    assert transport.ended == ("aborted" if slow else "") and timers.seconds == ([] if slow else [5.0])


def test_a_body_that_we_do_not_read_is_not_slow(now: list[float]) -> None:
    protocol, transport, _timers = connected()
    protocol._body_since, protocol._body_bytes = now[0], 0
    protocol.flow.read_paused = True
    now[0] += 100
    protocol._check_body_rate()
    assert transport.ended == "" and protocol._body_bytes == 5 * 1024


def test_an_answer_that_is_not_taken_ends_the_connection(now: list[float]) -> None:
    protocol, transport, timers = connected()
    timers.waiting.clear()
    protocol.pause_writing()
    assert timers.seconds == [60.0]
    protocol.resume_writing()
    assert timers.seconds == []
    protocol.pause_writing()
    timers.waiting[0][1]()
    assert transport.ended == "aborted"


@pytest.mark.parametrize(
    ("trusted", "headers", "proxy"),
    [
        ("192.0.2.7", True, True),
        ("10.0.0.1, 192.0.2.7", True, True),
        (["192.0.2.7"], True, True),
        ("*", True, True),
        ("192.0.2.7", False, False),
        ("192.0.2.70", True, False),
        ([], True, False),
    ],
)
def test_which_address_is_a_proxy(now: list[float], trusted: Any, headers: bool, proxy: bool) -> None:
    protocol, _transport, _timers = connected(forwarded_allow_ips=trusted, proxy_headers=headers)
    assert protocol._is_proxy() is proxy


@pytest.mark.parametrize(("trusted", "statuses"), [("", [200, 200, 503, 200]), ("192.0.2.7", [200] * 4)])
def test_one_address_has_so_many_requests_in_progress_unless_it_is_a_proxy(
    now: list[float], monkeypatch: pytest.MonkeyPatch, trusted: str, statuses: list[int]
) -> None:
    monkeypatch.setattr(connections, "BUSY_PER_ADDRESS", 2)
    found = [
        connected(address, forwarded_allow_ips=trusted, limit_concurrency=9)
        for address in ("192.0.2.7", "192.0.2.7", "192.0.2.7", "192.0.2.8")
    ]
    for protocol, _transport, _timers in found:
        protocol.data_received(HEAD)
    assert connections._busy == {"192.0.2.7": 3, "192.0.2.8": 1} and not connections._idle.all
    for _protocol, _transport, timers in found:
        asyncio.run(timers.coroutines[0])
    shown = [int(transport.written.split()[1]) for _protocol, transport, _timers in found]
    assert shown == statuses
    assert not connections._busy, "none is in progress any more"


def test_idle_connections_and_sockets_do_not_count_for_the_limit_of_all(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_sockets", {object(), object()})
    protocol, transport, timers = connected(limit_concurrency=9)
    connected(), connected()
    protocol.data_received(HEAD)
    assert protocol.limit_concurrency == 9 + 2 + 2 and not transport.written
    timers.coroutines[0].close()
