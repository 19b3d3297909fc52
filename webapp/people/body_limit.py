"""How large a body may be, decided before any of it is read.

Under ASGI Django spools a whole body to disk before any view or upload handler sees it, so this wraps the
application. A large body passes only when the address takes files *and* the session of the cookie, or the token of a
script, belongs to a person who may upload there. Both are looked up in the database: a cookie by itself proves nothing.
All others, and every other address, get ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.http import Http404, parse_cookie
from django.urls import Resolver404, resolve

from training.plain import number_in
from webapp.common.errors import DATABASE_AWAY, error_body, log_outage
from webapp.common.pages import OVERHEAD_BYTES
from webapp.common.serving import Message, Receive, Send, in_database
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role
from webapp.people.teams.tokens import token_user

logger = logging.getLogger(__name__)
# The addresses that take files, by name; each lies below a project in which the person must be an editor.
UPLOAD_ROUTES = frozenset(
    {"dataset-new", "dataset-read", "dataset-read-preview", "datasets_list", "run-import", "run_import_new"}
)
BEARER = "bearer "


class BodyLimit:
    """ASGI middleware: refuse a body as soon as it is known to be too large, before the rest is read or spooled."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope.get("headers", [])}
        try:
            limit = await _allowed_bytes(scope, headers)
        except DATABASE_AWAY as exc:
            log_outage(503, f"{scope['method']} {scope['path']}", exc)
            await refuse(send, 503, "unavailable")
            return
        declared = number_in(headers.get(b"content-length", b""))
        if declared is not None and declared > limit:
            await refuse(send, 413, "too_large")
            return
        counted = _Counted(receive, send, limit)
        await self.app(scope, counted.receive, counted.send)


class _Counted:
    """The two ends of one request, cut off at the chunk that crosses the limit."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive, self._send, self._left = receive, send, limit
        self._refused = self._started = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0 and not self._started:
                self._refused = True
                await refuse(self._send, 413, "too_large")
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        self._started = True
        if not self._refused:
            await self._send(message)


async def _allowed_bytes(scope: Message, headers: dict[bytes, bytes]) -> int:
    """The largest body in bytes that this request may send."""
    small = int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE) + OVERHEAD_BYTES
    declared = number_in(headers.get(b"content-length", b""))
    if declared is not None and declared <= small:
        return small
    if scope.get("method") != "POST" or not headers.get(b"content-type", b"").lower().startswith(b"multipart/"):
        return small
    slug = _upload_slug(str(scope.get("path", "")))
    key = parse_cookie(headers.get(b"cookie", b"").decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")
    header = headers.get(b"authorization", b"").decode("latin-1")
    token = header[len(BEARER) :].strip() if header.lower().startswith(BEARER) else ""
    if slug is None or not (key or token) or not await in_database(_may_upload, key, token, slug):
        return small
    return int(settings.MAX_UPLOAD_BYTES) + OVERHEAD_BYTES


def _upload_slug(path: str) -> str | None:
    """The project of an address that takes files, else ``None``."""
    try:
        match = resolve(path)
    except Resolver404:
        return None
    return str(match.kwargs["slug"]) if match.url_name in UPLOAD_ROUTES else None


def _may_upload(session_key: str, token: str, slug: str) -> bool:
    """Whether this session or token is that of a person who may put files into the project now."""
    user: Any = token_user(token)
    if user is None:
        user = get_user(SimpleNamespace(session=SessionStore(session_key)))  # type: ignore[arg-type]
    try:
        project_for(user, slug, need=Role.EDITOR)
    except (Http404, PermissionDenied):
        return False
    return True


async def refuse(send: Send, status: int, code: str) -> None:
    """An answer in the one error shape. The server throws away what else arrives of the body."""
    body = json.dumps(error_body(None, code)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    if status == 503:
        headers.append((b"retry-after", b"5"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
