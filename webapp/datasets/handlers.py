"""Limits on what may be sent, kept while it arrives.

Under ASGI Django spools a whole body to disk before any view or upload handler sees it, so ``BodyLimit`` stands around
the application; ``CountingUploadHandler`` says the same to WSGI servers and tests, and counts files rather than bodies.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest

OVERHEAD_BYTES = 64 * 1024  # boundaries and the other fields of the form
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class CountingUploadHandler(FileUploadHandler):
    """Counts what arrives over all files; goes first in the list and passes the bytes on.

    The request is cut off at the chunk that crosses the limit; ``request.upload_too_large`` tells the view.
    """

    def __init__(self, request: HttpRequest, limit: int) -> None:
        super().__init__(request)
        self.limit = limit
        self.count = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Count and pass on."""
        self.count += len(raw_data)
        if self.count > self.limit:
            self.request.upload_too_large = True  # type: ignore[union-attr]
            raise StopUpload(connection_reset=True)
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """Leave the making of the file to the next handler."""
        return None


class BodyLimit:
    """ASGI middleware: refuse a body as soon as it is known to be too large, before the rest is read or spooled.

    Uploads may be as large as ``MAX_UPLOAD_BYTES``, and only from somebody with a session; other bodies are small.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        limit = _limit(headers)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(send)
            return
        state = {"count": 0, "refused": False, "started": False}

        async def counted() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                state["count"] += len(message.get("body", b""))
                if state["count"] > limit and not state["started"]:
                    state["refused"] = True
                    await _refuse(send)
                    return {"type": "http.disconnect"}
            return message

        async def once(message: Message) -> None:
            state["started"] = True
            if not state["refused"]:
                await send(message)

        await self.app(scope, counted, once)


def _limit(headers: dict[bytes, bytes]) -> int:
    """The largest body that a request with these headers may send."""
    is_upload = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
    has_session = settings.SESSION_COOKIE_NAME.encode() + b"=" in headers.get(b"cookie", b"")
    if is_upload and has_session:
        return int(settings.MAX_UPLOAD_BYTES) + OVERHEAD_BYTES
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + OVERHEAD_BYTES


async def _refuse(send: Send) -> None:
    """A 413 in the one error shape, closing the connection."""
    from webapp.errors import error_body

    body = json.dumps(error_body(None, "too_large")).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
