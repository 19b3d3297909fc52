"""Files and archives are sent as they are read.

Django's own handler reads all of a streaming answer into memory before it sends the first byte, and warns of it, where
the server is asynchronous and the answer is not: a model of some gigabytes, but also every static file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import StreamingHttpResponse

GATHERED_BYTES = 1 << 18  # each look at the answer costs a turn of a thread


class Handler(ASGIHandler):
    """Django's, for answers of any size."""

    async def send_response(self, response: Any, send: Any) -> None:
        """Send it piece by piece, unless it knows how to be read without a thread."""
        if response.streaming and type(response).__aiter__ is StreamingHttpResponse.__aiter__ and not response.is_async:
            response.streaming_content = gathered(response.streaming_content)
        await super().send_response(response, send)


async def gathered(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, read in a thread when they are wanted."""
    pieces = iter(content)
    while data := await sync_to_async(_gather)(pieces):
        yield data


def _gather(pieces: Iterator[bytes]) -> bytes:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) >= GATHERED_BYTES:
            break
    return bytes(found)
