"""Answers that Django's own handler cannot send well.

1. Files and archives are sent as they are read. Django's handler reads all of a streaming answer into memory before it
   sends the first byte, and warns of it, where the server is asynchronous and the answer is not: a model of some
   gigabytes, but also every static file.
2. An answer that comes later (``Later``) is made once the request is over. Our middleware is not asynchronous, so a
   view that waits would block a thread and its database connection meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler, ASGIRequest
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import translation

from webapp.common.errors import DATABASE_AWAY, server_error

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
