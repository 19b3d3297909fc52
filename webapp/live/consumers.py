"""The live view of one run: a snapshot, then changes by ``seq`` (docs/live.md has the frames and close codes).

1. Authenticate, authorise through ``teams.access``, count the user's sockets; only then join, accept, and read.
2. Joining comes before the first read, so nothing falls between them; from then on the socket sends what has a higher
   ``seq`` than it sent last, whatever woke it: a nudge, or its own look every two seconds.
3. Several nudges within ``FRAME_S`` are one frame. A slow tab holds up only itself: nothing is queued for it, it simply
   reads from its own ``seq`` when it is ready, and is closed when one frame takes longer than ``SEND_LIMIT_S``.
4. The right to look is checked again every ``RECHECK_S``, from the session and the membership as they are then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import Http404

from webapp.live.feed import Read, RunGone, feed, in_database
from webapp.live.frames import encode
from webapp.live.snapshot import CURVES_ASKED_MAX, NAME_MAX
from webapp.records.selectors import run_read, run_view
from webapp.runs.models import Run
from webapp.teams.access import object_for
from webapp.teams.models import User

logger = logging.getLogger(__name__)
BAD_FRAME, LOGIN, FORBIDDEN, GONE, TOO_MANY = 4400, 4401, 4403, 4404, 4429
FRAME_S, LOOK_S, BEAT_S, RECHECK_S, SEND_LIMIT_S = 0.05, 2.0, 5.0, 25.0, 30.0
CLIENT_FRAME_BYTES = 4096
SOCKETS_MAX = 20
CURVE_REQUESTS_MAX = 16
_sockets: Counter[UUID] = Counter()


class Closed(Exception):
    """The socket must be closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _user_now(scope: dict[str, Any]) -> User | AnonymousUser:
    """The person behind the socket as of now: a logout, a new password or a blocked account count at once."""
    session = scope.get("session")
    if session is not None and session.session_key:
        return get_user(SimpleNamespace(session=SessionStore(session.session_key)))  # type: ignore[arg-type]
    user = scope.get("user")
    if user is None or not user.is_authenticated:
        return AnonymousUser()
    return User.objects.filter(pk=user.pk, is_active=True).first() or AnonymousUser()


def _authorise(scope: dict[str, Any], run_id: UUID, *, again: bool) -> User:
    user = _user_now(scope)
    if not user.is_authenticated:
        raise Closed(LOGIN)
    try:
        object_for(user, Run, run_id, within=Run.objects.select_related("project"))
    except (Http404, PermissionDenied) as exc:
        raise Closed(FORBIDDEN if again else GONE) from exc
    return user  # type: ignore[return-value]


class RunConsumer(AsyncWebsocketConsumer):
    """One tab that watches one run."""

    # The layer is heard by the feed: a Redis that is away must not take sockets with it.
    channel_layer_alias = ""

    async def connect(self) -> None:
        """Authenticate, authorise, join, accept, then read."""
        self.run_id: UUID = self.scope["url_route"]["kwargs"]["run_id"]
        self.wake, self.seq, self.counted = asyncio.Event(), 0, None
        self.wanted_step: int | None = None
        self.wanted_curves: list[tuple[str, ...]] = []
        self.pump: asyncio.Task[None] | None = None
        try:
            user = await in_database(lambda: _authorise(self.scope, self.run_id, again=False))
        except Closed as closed:
            await self.close(closed.code)
            return
        except (DatabaseError, InterfaceError):
            await self.close(1013)
            return
        if _sockets[user.pk] >= SOCKETS_MAX:
            await self.close(TOO_MANY)
            return
        self.counted = user.pk
        _sockets[user.pk] += 1
        await feed().subscribe(self.run_id, self.wake)
        await self.accept()
        self.pump = asyncio.create_task(self._pump(), name=f"pump-{self.run_id}")

    async def disconnect(self, code: int) -> None:
        """Let go of everything."""
        if self.counted is None:
            return
        _sockets[self.counted] -= 1
        if _sockets[self.counted] <= 0:
            del _sockets[self.counted]
        self.counted = None
        feed().unsubscribe(self.run_id, self.wake)
        if self.pump is not None:
            self.pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self.pump

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A ping, or a request for a step or for curves; anything else closes the socket."""
        frame = _client_frame(text_data)
        if frame is None:
            await self.close(BAD_FRAME)
        elif frame["type"] == "ping":
            await self._send('{"type":"pong"}')
        else:
            if frame["type"] == "step":
                self.wanted_step = frame["step"]
            elif len(self.wanted_curves) < CURVE_REQUESTS_MAX:
                self.wanted_curves.append(tuple(frame["names"]))
            else:
                await self.close(TOO_MANY)
                return
            self.wake.set()

    async def _pump(self) -> None:
        try:
            await self._run()
        except Closed as closed:
            await self.close(closed.code)
        except RunGone:
            await self.close(GONE)
        except asyncio.CancelledError:
            raise
        except Exception:  # the boundary of the socket: a fault of ours closes it, the tab connects again
            logger.exception("live socket failed", extra={"action": "pump", "run_id": self.run_id})
            await self.close(1011)

    async def _run(self) -> None:
        """The loop of one socket: first frame, then whatever is due."""
        after, least, started = self._number("after"), self._number("least") or 0, False
        beat_at, check_at = time.monotonic() + BEAT_S, time.monotonic() + RECHECK_S
        while True:
            self.wake.clear()
            try:
                if not started:
                    await self._forward(await feed().first(self.run_id, after, least))
                    started = True
                await self._catch_up()
                if time.monotonic() >= check_at:
                    await in_database(lambda: _authorise(self.scope, self.run_id, again=True))
                    check_at = time.monotonic() + RECHECK_S
                if time.monotonic() >= beat_at:
                    await self._beat()
                    beat_at = time.monotonic() + BEAT_S
            except (DatabaseError, InterfaceError):
                await self._send('{"type":"beat","paused":true}')
                await asyncio.sleep(LOOK_S)
                continue
            await asyncio.sleep(FRAME_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, max(0.0, beat_at - time.monotonic()))):
                    await self.wake.wait()

    async def _catch_up(self) -> None:
        if self.wanted_step is not None:
            step, self.wanted_step = self.wanted_step, None
            for text in (await feed().step(self.run_id, step, self.seq)).texts:
                await self._send(text)
        while self.wanted_curves:
            for text in (await feed().curves(self.run_id, self.wanted_curves.pop(0), self.seq)).texts:
                await self._send(text)
        while True:
            read = await feed().changes(self.run_id, self.seq)
            await self._forward(read)
            if not read.more:
                return

    async def _forward(self, read: Read) -> None:
        for text in read.texts:
            await self._send(text)
        self.seq = read.seq

    async def _beat(self) -> None:
        run = await in_database(run_read, self.run_id)
        if run is None:
            raise RunGone
        now = datetime.now(UTC).isoformat()
        await self._send(encode({"type": "beat", "seq": self.seq, "run": run_view(run), "now": now}))

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self.send(text_data=text)
        except TimeoutError as exc:
            raise Closed(TOO_MANY) from exc

    def _number(self, name: str) -> int | None:
        """A number of the socket's address."""
        text = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get(name, [""])[0]
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _client_frame(text: str | None) -> dict[str, Any] | None:
    """A frame of the client that is on the protocol, else ``None``."""
    if text is None or len(text) > CLIENT_FRAME_BYTES:
        return None
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(frame, dict):
        return None
    if frame == {"type": "ping"}:
        return frame
    kind = frame.get("type")
    if kind == "step" and set(frame) == {"type", "step"}:
        step = frame["step"]
        return frame if type(step) is int and 0 <= step < 2**31 else None
    if kind == "curves" and set(frame) == {"type", "names"}:
        return frame if _names(frame["names"]) else None
    return None


def _names(names: object) -> bool:
    """Whether this is a list of metric names that a page may ask for."""
    if not isinstance(names, list) or not 0 < len(names) <= CURVES_ASKED_MAX:
        return False
    return all(isinstance(name, str) and 0 < len(name) <= NAME_MAX and name.isprintable() for name in names)
