"""Time limits and a number for connections that do nothing, which uvicorn lacks.

1. A connection without a whole request head is closed after ``HEAD_S`` or ``MAX_HEAD_BYTES``, one whose body does not
   end after ``BODY_S``, one whose answer is not written (or not read) after ``ANSWER_S``.
2. Of the connections that wait for a request, or for the peer to leave, only ``MAX_WAITING`` may do so for more than
   ``GRACE_S``: while there are more, those that waited longest are cut. So a thousand idle connections neither use up
   the file descriptors nor keep ``/health`` from answering, and a thousand clients that come at once are let in.
3. A websocket that has ended is cut where the peer does not read what is still to be sent.

Sessions are websockets that were let in; the slots and the guard's watchdog limit them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from envs.base.settings import log

HEAD_S, BODY_S = 10.0, 30.0
MAX_HEAD_BYTES = 65_536
ANSWER_S = 300.0  # a validation may take minutes
LINGER_S = 15.0  # uvicorn itself waits 10 s for the closing handshake
MAX_WAITING, GRACE_S = 128, 3.0


class HttpConnection(HttpToolsProtocol):
    """An HTTP connection of which every wait ends."""

    transport: asyncio.Transport
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None
    waiting_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit(HEAD_S, waiting=True)
        if len(self.connections) > MAX_WAITING:
            _sweep_later(self.loop, self.server_state)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._limit(HEAD_S, waiting=True)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head_bytes = None
        self._limit(BODY_S, waiting=True)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._limit(ANSWER_S, waiting=False)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        more = self.cycle is not None and not self.cycle.response_complete  # a pipelined request
        self._limit(ANSWER_S if more else HEAD_S, waiting=not more)

    def handle_websocket_upgrade(self) -> None:
        self._unlimit()
        super().handle_websocket_upgrade()

    def _limit(self, seconds: float, *, waiting: bool) -> None:
        self._unlimit()
        self.waiting_since = time.monotonic() if waiting else None
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _unlimit(self) -> None:
        self.waiting_since = None
        if self._deadline is not None:
            self._deadline.cancel()


class SocketConnection(WebSocketsSansIOProtocol):
    """A websocket that goes when its session has, whether or not the peer reads."""

    waiting_since: float | None = None
    _cut: asyncio.TimerHandle | None = None

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._cut_later()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_later()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.waiting_since = None
        if self._cut is not None:
            self._cut.cancel()

    def _cut_later(self) -> None:
        if self._cut is None and not self.disconnected:
            self.waiting_since = time.monotonic()
            self._cut = self.loop.call_later(LINGER_S, self.transport.abort)


_sweeps: WeakKeyDictionary[ServerState, asyncio.TimerHandle] = WeakKeyDictionary()


def _sweep_later(loop: asyncio.AbstractEventLoop, state: ServerState) -> None:
    """Look at the connections of a server in ``GRACE_S``, once for however many came."""
    if state not in _sweeps:
        _sweeps[state] = loop.call_later(GRACE_S, _sweep, loop, state)


def _sweep(loop: asyncio.AbstractEventLoop, state: ServerState) -> None:
    """Cut those that waited longest, down to ``MAX_WAITING``; look again while there are more that only just came.

    A loop that was held up (``late_s``) may not have read what they sent, and its machine is busy with them as well:
    that time does not count.
    """
    late_s = loop.time() - _sweeps.pop(state).when()
    everyone = [one for one in state.connections if isinstance(one, HttpConnection | SocketConnection)]
    waiting = sorted((one.waiting_since, id(one), one) for one in everyone if one.waiting_since is not None)
    excess = waiting[: max(len(waiting) - MAX_WAITING, 0)]
    old = [one for since, _id, one in excess if since <= time.monotonic() - GRACE_S - 2 * late_s]
    for one in old:
        one.transport.abort()
    if old:
        log(logging.WARNING, "connections.cut", count=len(old))
    if len(old) < len(excess):
        _sweep_later(loop, state)
