"""How the web server answers: clients that hang up, requests that wait, streams, and database reads of sockets."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.db import connection
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import base as urls
from django.utils import timezone, translation
from django.utils.translation import trans_real
from psycopg_pool import ConnectionPool

from webapp.common.errors import DATABASE_AWAY, server_error

# Whether the client of a request still waits for its answer.
#
# A view runs in a thread, which does not end when its client hangs up. Work that is done for this client alone asks
# here.

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


# Where requests of one web server would wait for each other: locks, and the database.
#
# 1. **Locks.** Django keeps the language, time zone and URL prefix of a request in asgiref's ``Local``, which takes a
#    lock for each read, and a page reads it a thousand times: for each text and each link. With fifty requests at once
#    a thread is often interrupted while it holds the lock, and all others stop and start at each read, one after
#    another (a lock convoy): a page of 40 ms took 3 s. A context variable is as much a request's own and needs no lock.
# 2. **Connections.** A request that opens a connection of its own has PostgreSQL start a process, which knows no table
#    yet. A pool (psycopg's) keeps some and passes them from request to request; it waits a moment for a database that
#    is being started again.

WAIT_S = 3.0
"""How long a request waits for a connection; PostgreSQL starts again in less."""
TRIES_S = 2.0
"""After a failure the pool tries again for this many seconds, and then at each request, so that the first request
after an outage finds the database."""
LIFE_S = 900.0
"""A connection is replaced after this many seconds: its PostgreSQL process caches facts about tables, and grows."""
LOCALS = ((trans_real, "_active"), (timezone, "_active"), (urls, "_prefixes"), (urls, "_urlconfs"))
"""Django's own names: ``tests/webapp/common/test_contention.py`` fails if Django drops them."""


class ContextLocal:
    """A ``Local`` with the one attribute ``value``, kept in a context variable."""

    def __init__(self, name: str) -> None:
        self._value: ContextVar[Any] = ContextVar(name)

    @property
    def value(self) -> Any:
        """The value of this context. Raises ``AttributeError`` where it has none."""
        found = self._value.get(None)
        if found is None:
            raise AttributeError("value")
        return found

    @value.setter
    def value(self, value: Any) -> None:
        self._value.set(value)

    @value.deleter
    def value(self) -> None:
        self._value.set(None)


def look_without_locks() -> None:
    """Make Django keep a request's values in context variables from now on."""
    for module, name in LOCALS:
        setattr(module, name, ContextLocal(f"{module.__name__}.{name}"))


def share_connections() -> None:
    """Have requests take their connections from a pool, unless the setting is 0. Call it before the first query."""
    if not settings.DATABASE_POOL:
        return
    database = settings.DATABASES["default"]
    sizes = {"min_size": 1, "max_size": settings.DATABASE_POOL}
    times = {"timeout": WAIT_S, "reconnect_timeout": TRIES_S, "max_lifetime": LIFE_S}
    database["OPTIONS"]["pool"] = {**sizes, **times}
    database["CONN_HEALTH_CHECKS"] = True  # a connection that died in the pool is not used
    ConnectionPool.check_connection = staticmethod(_check_connection)  # type: ignore[assignment, method-assign]


_check_one = ConnectionPool.check_connection


def _check_connection(one: Any) -> None:
    """Raise psycopg's error if the connection is dead. Then all others of the pool are checked, and replaced, too.

    A database that was started again has ended them all, and a request would be given one after another: the pool waits
    0, 1, 2 s … before it gives the next, so that a fourth dead one was a refusal, of a database that answers.
    """
    try:
        _check_one(one)
    except Exception:
        cast(Any, connection).pool.check()  # comes here for each; what it checks is no longer in the pool
        raise


# Answers that Django's own handler cannot send well.
#
# 1. Files and archives are sent as they are read. Django's handler reads all of a streaming answer into memory before
#    it sends the first byte, and warns of it, where the server is asynchronous and the answer is not: a model of some
#    gigabytes, but also every static file.
# 2. An answer that comes later (``Later``) is made once the request is over. Our middleware is not asynchronous, so a
#    view that waits would block a thread and its database connection meanwhile.

logger = logging.getLogger(__name__)
LATER = "tiltyard.later"
OWN_HEADERS = {"content-type", "content-length"}
GATHERED_BYTES = 1 << 18  # each read of the answer costs a turn of a thread


class Later(HttpResponse):
    """An answer that is not there yet. ``coming`` gives it as soon as it is, and is left once it was sent or its client
    has gone. Middleware sees this one in its place: headers that it sets are those of the answer."""

    def __init__(self, request: ASGIRequest, coming: Callable[[], AbstractAsyncContextManager[HttpResponseBase]]):
        super().__init__()
        self.asked, self.coming, self.language = request, coming, translation.get_language()

    def headed(self, answer: HttpResponseBase) -> HttpResponseBase:
        """The answer with the headers of this one."""
        for name, value in self.items():
            if name.lower() not in OWN_HEADERS:
                answer.headers.setdefault(name, value)
        answer.cookies.update(self.cookies)
        if isinstance(answer, HttpResponse):
            answer.headers.setdefault("Content-Length", str(len(answer.content)))
        return answer


class Handler(ASGIHandler):
    """Django's, for answers of any size, and for those that are waited for."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the request; a later answer comes after it, when its thread and its connection are free."""
        await super().__call__(scope, receive, send)
        later: Later | None = scope.pop(LATER, None)
        if later is not None:
            await unless_left(self._send_later(later, send), receive)

    async def send_response(self, response: Any, send: Any) -> None:
        """Send it piece by piece, unless it knows how to be read without a thread."""
        if isinstance(response, Later):
            cast(dict[str, Any], response.asked.scope)[LATER] = response
            return
        if response.streaming and type(response).__aiter__ is StreamingHttpResponse.__aiter__ and not response.is_async:
            response.streaming_content = gathered(response.streaming_content)
        await super().send_response(response, send)

    async def _send_later(self, later: Later, send: Any) -> None:
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            with translation.override(later.language):
                async with later.coming() as answer:
                    await super().send_response(later.headed(answer), sending)
        except Exception as exc:  # the boundary of the answer: a fault of ours must not leave its client waiting
            if not isinstance(exc, DATABASE_AWAY):
                logger.exception("a late answer failed", extra={"path": later.asked.path})
            if not begun:
                await super().send_response(later.headed(server_error(later.asked, exc)), send)


async def unless_left(work: Any, receive: Any) -> None:
    """Do the work, or stop it when the client hangs up."""
    doing, leaving = asyncio.create_task(work), asyncio.create_task(hung_up(receive))
    try:
        await asyncio.wait([doing, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (doing, leaving):
            task.cancel()
        for task in (doing, leaving):
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def hung_up(receive: Any) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def gathered(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, read in a thread when they are wanted."""
    pieces = iter(content)
    while data := await sync_to_async(_join_pieces)(pieces):
        yield data


def _join_pieces(pieces: Iterator[bytes]) -> bytes:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) >= GATHERED_BYTES:
            break
    return bytes(found)


# --- Csv text -------------------------------------------------------------------------------------------------------
# Tables as CSV that a spreadsheet opens unchanged, without running any formula.

PIECE_LINES = 200

# Where a text, or what is a cell of it to a spreadsheet that separates by `;` or tab, begins as a formula does. Quotes
# do not help there: to such a spreadsheet only the first cell of a line begins with one.
_FORMULA = re.compile(r'(^|[;\t\r\n])(?="*[=+\-@\t\r])')


class _Echo:
    """The target of a CSV writer: returns each line."""

    def write(self, text: str) -> str:
        return text


def csv_lines(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines, with a mark in front by which a spreadsheet knows UTF-8; ``None`` is an empty cell. All are quoted."""
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_ALL)
    yield "\ufeff" + writer.writerow(map(cell, header))
    for row in rows:
        yield writer.writerow([value if isinstance(value, int | float | None) else cell(str(value)) for value in row])


def cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula, at any place where it may split it: an apostrophe is put
    before."""
    return _FORMULA.sub(r"\1'", text)


class CsvResponse(StreamingHttpResponse):
    """A table as a file, sent while its lines are made.

    Django's own answer would make all lines before it sends the first one, where the server is asynchronous.
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        super().__init__(lines, content_type="text/csv; charset=utf-8")
        self["Content-Disposition"] = f'attachment; filename="{name}"'
        self["X-Content-Type-Options"] = "nosniff"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines: Any = iter(self)
        first = await sync_to_async(next)(lines)  # the header, before anything is asked of the database
        yield first
        while piece := await sync_to_async(_join_lines)(lines):
            yield piece


def _join_lines(lines: Iterator[bytes]) -> bytes:
    return b"".join(islice(lines, PIECE_LINES))


# Database reads of sockets: in a few threads that keep their connections, apart from the threads of pages.

T = TypeVar("T")
THREADS = 6
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="live-db")


async def in_database(action: Callable[..., T], *arguments: Any) -> T:
    """Run a database read in one of the threads, and give what it returns."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(_run_with_reconnect, action, *arguments))


def _run_with_reconnect(action: Callable[..., T], *arguments: Any) -> T:
    """Run the action; once more on a fresh connection if the one kept since an earlier read had died meanwhile."""
    kept = connection.connection
    try:
        return action(*arguments)
    except DATABASE_AWAY:
        died = kept is not None and kept.closed
        connection.close()
        if not died:
            raise
    return _run_with_reconnect(action, *arguments)


def close_connections() -> None:
    """Close the connections of all threads (tests do, before the database goes)."""
    for future in [_threads.submit(_close_slowly) for _ in range(THREADS)]:
        future.result()


def _close_slowly() -> None:
    connection.close()
    time.sleep(0.01)  # so that each thread gets one of these
