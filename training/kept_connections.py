"""The connections of one HTTP client, kept from request to request. No more than the transport of ``connections.py``.

httpx has a pool of its own, which looks through all its connections at every request: 5 ms of processor time where 256
are open. Here a request takes the connection that was given back last, whatever their number.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpcore
import httpx

Where = tuple[str, str]
"""The address that a connection goes to, and the name that TLS was spoken to there."""
_FAILURES = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


@contextmanager
def _failures() -> Iterator[None]:
    """What a connection raises, as httpx names it: the classes have the same names."""
    try:
        yield
    except _FAILURES as exc:
        raise getattr(httpx, type(exc).__name__)(str(exc)) from exc


class KeptConnections(httpx.AsyncBaseTransport):
    """At most ``most`` are open; who comes then waits. One that was idle for ``idle_s`` seconds is not used again.

    ``repeats``: what is asked may be asked twice, so a request that meets a kept connection's end is sent once more on
    a new one. Servers may hang up just then, without a word.
    """

    def __init__(
        self, context: ssl.SSLContext, *, most: int, idle_s: float, path: Path | None = None, repeats: bool = False
    ) -> None:
        self._context, self._idle_s, self._repeats = context, idle_s, repeats
        self._path = str(path) if path is not None else None
        self._places = asyncio.Semaphore(most)
        self._idle: defaultdict[Where, list[httpcore.AsyncHTTPConnection]] = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its connection comes back with the end of the answer's body."""
        at = request.url
        url = httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)
        sent = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        where = (str(url.origin), str(request.extensions.get("sni_hostname", "")))
        await self._places.acquire()
        try:
            connection, answer = await self._sent(where, url.origin, sent)
        except BaseException:
            self._places.release()
            raise
        body = _Body(self, where, connection, answer)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    async def _sent(
        self, where: Where, origin: httpcore.Origin, request: httpcore.Request
    ) -> tuple[httpcore.AsyncHTTPConnection, httpcore.Response]:
        """The answer's head, and the connection that it came over."""
        kept = await self._idle_one(where)
        if kept is not None:
            try:
                return kept, await self._asked(kept, request)
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                if not self._repeats:
                    raise
        made = httpcore.AsyncHTTPConnection(origin, self._context, keepalive_expiry=self._idle_s, uds=self._path)
        return made, await self._asked(made, request)

    async def _asked(self, connection: httpcore.AsyncHTTPConnection, request: httpcore.Request) -> httpcore.Response:
        try:
            with _failures():
                return await connection.handle_async_request(request)
        except BaseException:
            await connection.aclose()
            raise

    async def _idle_one(self, where: Where) -> httpcore.AsyncHTTPConnection | None:
        idle = self._idle[where]
        while idle:
            connection = idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def give_back(self, where: Where, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep a connection for the next request where its answer was read to the end, else hang up."""
        self._places.release()
        if connection.is_available():
            self._idle[where].append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Drop the connections that are idle; those in use end with their answers."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().aclose()


class _Body(httpx.AsyncByteStream):
    """An answer's body."""

    def __init__(
        self,
        kept: KeptConnections,
        where: Where,
        connection: httpcore.AsyncHTTPConnection,
        answer: httpcore.Response,
    ) -> None:
        self._kept, self._where, self._connection, self._answer = kept, where, connection, answer
        self._open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _failures():
            async for chunk in self._answer.aiter_stream():
                yield chunk

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            try:
                await self._answer.aclose()
            finally:
                await self._kept.give_back(self._where, self._connection)
