"""Limits of the web server's connections: uvicorn's HTTP protocol with limits that it lacks.

uvicorn waits without end for a request's head and body, and answers 503 to everybody once ``--limit-concurrency``
connections are open, idle ones included. Here:

1. A request's head must be complete within ``HEAD_LIMIT_S`` of its first byte (of the connection, for the first one).
2. A body must keep arriving: at ``BODY_BYTES_PER_S`` on average after the first ``BODY_GRACE_S``, while we read.
   After a refusal the rest of it is thrown away for ``LINGER_S``.
3. An answer must keep leaving: a client that takes nothing for ``ANSWER_LIMIT_S`` is cut off.
4. A connection without a request is idle, and does not count for ``--limit-concurrency``. Of one address at most
   ``IDLE_PER_ADDRESS`` are kept for longer than ``IDLE_GRACE_S`` (a burst of tabs needs a moment to send its requests),
   of all at most ``IDLE_ALL``: a new one closes the oldest, so the next client always gets in.
5. One address has at most ``BUSY_PER_ADDRESS`` requests in progress, unless it is a proxy in front of us: half of what
   the server takes in all.

6. A connection that becomes a websocket leaves this protocol and does not count for ``--limit-concurrency`` either:
   ``webapp.live`` limits how many there may be. Nothing here imports Django.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import Counter, OrderedDict
from typing import Any

from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from webapp.common.errors import RETRY_AFTER_S

HEAD_LIMIT_S = 10.0
BODY_GRACE_S, BODY_BYTES_PER_S, BODY_LOOK_S = 20.0, 1024, 5.0
ANSWER_LIMIT_S, LINGER_S = 60.0, 3.0
IDLE_PER_ADDRESS, IDLE_GRACE_S, IDLE_ALL, BUSY_PER_ADDRESS = 64, 2.0, 2048, 500
DESCRIPTORS = 8192


class Idle:
    """The idle connections of this process, the oldest first, of all and of each address."""

    def __init__(self) -> None:
        self.all: OrderedDict[HttpProtocol, float] = OrderedDict()
        self.by_address: dict[str, OrderedDict[HttpProtocol, float]] = {}

    def add(self, one: HttpProtocol) -> None:
        """Count a connection; over the limits the oldest is closed."""
        now = time.monotonic()
        mine = self.by_address.setdefault(one.address, OrderedDict())
        self.all[one] = mine[one] = now
        while len(mine) > IDLE_PER_ADDRESS and now - next(iter(mine.values())) > IDLE_GRACE_S:
            self._close(next(iter(mine)))
        while len(self.all) > IDLE_ALL:
            self._close(next(iter(self.all)))

    def _close(self, one: HttpProtocol) -> None:
        self.remove(one)
        one.transport.abort()

    def remove(self, one: HttpProtocol) -> None:
        """Count it no more: it has a request, or is gone."""
        self.all.pop(one, None)
        mine = self.by_address.get(one.address)
        if mine is not None:
            mine.pop(one, None)
            if not mine:
                del self.by_address[one.address]


_idle, _busy = Idle(), Counter[str]()
_sockets: set[SocketProtocol] = set()


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection with limits."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _raise_descriptor_limit()
        self.address = ""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_head = self._is_busy = self._close_after = False
        self._body_since, self._body_bytes = 0.0, 0

    # --- the life of a connection ---
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Idle until the first request's head is here, and that within the limit."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        _idle.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the socket's protocol, which has its own limits."""
        self._leave()
        super().handle_websocket_upgrade()

    def _leave(self) -> None:
        _idle.remove(self)
        self._set_busy(False)
        self._stop_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _set_busy(self, busy: bool) -> None:
        if busy != self._is_busy:
            self._is_busy = busy
            _busy[self.address] += 1 if busy else -1
            if not _busy[self.address]:
                del _busy[self.address]

    # --- 1: heads ---
    def data_received(self, data: bytes) -> None:
        """The first byte of a further request starts the clock of its head."""
        if self._timer is None and not self._is_busy and not self._in_head:
            self._await_head()
        self._body_bytes += len(data)
        super().data_received(data)

    def _await_head(self) -> None:
        self._stop_timer()
        self._in_head = True
        self._timer = self.loop.call_later(HEAD_LIMIT_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_headers_complete(self) -> None:
        """The request begins; one address cannot have them all."""
        self._stop_timer()
        self._in_head = False
        _idle.remove(self)
        self._set_busy(True)
        self._body_since, self._body_bytes = time.monotonic(), 0
        self._timer = self.loop.call_later(BODY_LOOK_S, self._check_body_rate)
        if self.config.limit_concurrency is not None:
            self.limit_concurrency = self.config.limit_concurrency + len(_idle.all) + len(_sockets)
        app, before = self.app, self.cycle
        if _busy[self.address] > BUSY_PER_ADDRESS and not self._is_proxy():
            self.app = service_unavailable  # type: ignore[assignment]
        super().on_headers_complete()
        self.app = app
        # uvicorn would close at the end of the answer, also with a part of the body on its way: we do it, a bit later.
        self._close_after = self.cycle is not before and not self.cycle.keep_alive
        if self._close_after:
            self.cycle.keep_alive = True

    def _is_proxy(self) -> bool:
        """Whether this address is a proxy with many people behind it."""
        trusted = self.config.forwarded_allow_ips
        names = trusted.split(",") if isinstance(trusted, str) else list(trusted or [])
        return self.config.proxy_headers and ("*" in names or self.address in (name.strip() for name in names))

    # --- 2: bodies ---
    def _check_body_rate(self) -> None:
        took = time.monotonic() - self._body_since
        if self.flow.read_paused:  # we are the slow one
            self._body_bytes += int(BODY_LOOK_S * BODY_BYTES_PER_S)
        elif took > BODY_GRACE_S and self._body_bytes < took * BODY_BYTES_PER_S:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(BODY_LOOK_S, self._check_body_rate)

    def on_message_complete(self) -> None:
        """All of the body is here."""
        self._stop_timer()
        super().on_message_complete()
        if self._close_after and self.cycle.response_complete:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Idle again, unless the next request is here already."""
        self._set_busy(False)
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_complete and self.cycle.more_body:
            # Refused before its end. After a close, arriving data would reset the connection before the answer is read.
            self._stop_timer()
            self._timer = self.loop.call_later(LINGER_S, self.transport.close)
            _idle.add(self)
        elif self._close_after:
            self.transport.close()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._set_busy(True)  # a pipelined request
        else:
            _idle.add(self)

    # --- 3: answers ---
    def pause_writing(self) -> None:
        """The client does not take what we send."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(ANSWER_LIMIT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client takes data again."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()


class SocketProtocol(WebSocketsSansIOProtocol):
    """One websocket: uvicorn counts it with the requests, for as long as it is open."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the socket, but not as a request."""
        _sockets.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        _sockets.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Ask clients that were not let in yet to try again: uvicorn would answer with a 500."""
        if not (self.close_sent or self.handshake_complete or self.initial_response):
            refusal = self.conn.reject(503, "This site is being started again.")
            refusal.headers["Retry-After"] = str(RETRY_AFTER_S)
            self.conn.send_response(refusal)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        super().shutdown()


def _raise_descriptor_limit() -> None:
    """Each connection is one descriptor, and the usual soft limit of 1,024 is soon reached. Done once."""
    global _raised
    if _raised:
        return
    _raised = True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_raised = False
