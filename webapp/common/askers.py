"""Whether the client of a request still waits for its answer.

A view runs in a thread, which does not end when its client hangs up. Work that is done for this client alone asks here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_left: ContextVar[Future[None] | None] = ContextVar("asker_left", default=None)


class Askers:
    """ASGI middleware: notice that a client of an HTTP request hangs up."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        left: Future[None] = Future()
        _left.set(left)

        async def listened() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not left.done():
                left.set_result(None)
            return message

        await self.app(scope, listened, send)


def when_asker_leaves(act: Callable[[], None]) -> None:
    """Call ``act`` when the client of the present request hangs up: at once if it has already. Outside of a request
    it is never called."""
    left = _left.get()
    if left is not None:
        left.add_done_callback(lambda _left: act())
