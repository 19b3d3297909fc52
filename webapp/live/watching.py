"""The common part of sockets that watch one object: who may see it, how many sockets a person has, and when it ends.

1. Authenticate, authorise through ``teams.access``, count the sockets, of the person and in all; only then join,
   accept, and read.
2. Joining comes before the first read, so that no change is missed between them. From then on the socket sends what is
   new when it wakes: by a nudge, or every ``look_s``.
3. Several nudges within ``frame_s`` are one frame; where hundreds of sockets share a process, within up to 0.4 s more.
   A slow tab delays only itself: nothing is queued for it, and it is closed when one frame takes longer than
   ``SEND_LIMIT_S``.
4. The right to see it is checked again every ``RECHECK_S``, from the present session and membership.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404

from webapp.common.errors import DATABASE_AWAY
from webapp.common.serving import in_database
from webapp.live.feed import feed
from webapp.people.teams.access import object_for
from webapp.people.teams.models import User

logger = logging.getLogger(__name__)
TRY_LATER, BAD_FRAME, LOGIN, FORBIDDEN, GONE, TOO_MANY = 1013, 4400, 4401, 4403, 4404, 4429
BEAT_S, RECHECK_S, SEND_LIMIT_S = 5.0, 25.0, 30.0
SOCKETS_MAX = 20
SOCKETS_ALL = 4096
"""Sockets of one web process; each is a descriptor, and idle connections and requests need theirs too."""


class Closed(Exception):
    """The socket must be closed with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def user_now(scope: dict[str, Any]) -> User | AnonymousUser:
    """The person behind the socket as of now: a logout, a new password or a blocked account count at once."""
    session = scope.get("session")
    if session is not None and session.session_key:
        return get_user(SimpleNamespace(session=SessionStore(session.session_key)))  # type: ignore[arg-type]
    user = scope.get("user")
    if user is None or not user.is_authenticated:
        return AnonymousUser()
    return User.objects.filter(pk=user.pk, is_active=True).first() or AnonymousUser()


class Watcher(AsyncWebsocketConsumer):
    """One tab that watches one object. A kind of socket names its ``model``, the ``argument`` of its address, what the
    log calls it (``action``) and its own count of ``sockets``; it overrides ``begin``, ``tell`` and ``beat``."""

    # The feed listens to the layer: a Redis that is away must not take sockets with it.
    channel_layer_alias = ""
    model: ClassVar[type[Model]]
    argument: ClassVar[str]
    action: ClassVar[str]
    sockets: ClassVar[Counter[UUID]]
    open_sockets: ClassVar[set[Watcher]] = set()
    frame_s: ClassVar[float]
    look_s: ClassVar[float]

    def begin(self) -> None:
        """Set the state of this kind of socket."""

    async def tell(self) -> None:
        """Send what is new. Raises ``Closed``."""
        raise NotImplementedError

    async def beat(self) -> None:
        """Send a sign of life."""
        raise NotImplementedError

    async def connect(self) -> None:
        """Authenticate, authorise, join, accept, then read."""
        self.watched: UUID = self.scope["url_route"]["kwargs"][self.argument]
        self.wake, self.person = asyncio.Event(), None
        self.pump: asyncio.Task[None] | None = None
        self.begin()
        if len(self.open_sockets) >= SOCKETS_ALL:
            await self._close_for_later()
            return
        try:
            person = await in_database(self._authorise)
        except Closed as closed:
            await self.close(closed.code)
            return
        except DATABASE_AWAY:
            await self._close_for_later()
            return
        if self.sockets[person] >= SOCKETS_MAX:
            await self.close(TOO_MANY)
            return
        self.person = person
        self.sockets[person] += 1
        self.open_sockets.add(self)
        await feed().subscribe(self.watched, self.wake)
        await self.accept()
        self.pump = asyncio.create_task(self._pump(), name=f"{self.action}-{self.watched}")

    async def _close_for_later(self) -> None:
        await self.accept()  # a browser gets no close code of a socket that was never open
        await self.close(TRY_LATER)

    async def disconnect(self, code: int) -> None:
        """Cancel the loop and give the socket's place back."""
        if self.person is None:
            return
        self.open_sockets.discard(self)
        self.sockets[self.person] -= 1
        if self.sockets[self.person] <= 0:
            del self.sockets[self.person]
        self.person = None
        feed().unsubscribe(self.watched, self.wake)
        if self.pump is not None:
            self.pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self.pump

    def _authorise(self, *, again: bool = False) -> UUID:
        """The id of the person, who may see it. Raises ``Closed`` with the code that says why not."""
        user = user_now(self.scope)
        if not user.is_authenticated:
            raise Closed(LOGIN)
        try:
            object_for(user, self.model, self.watched, within=self.model._default_manager.select_related("project"))
        except (Http404, PermissionDenied) as exc:
            raise Closed(FORBIDDEN if again else GONE) from exc
        return user.pk  # type: ignore[return-value]

    async def _pump(self) -> None:
        try:
            await self._loop()
        except Closed as closed:
            await self.close(closed.code)
        except asyncio.CancelledError:
            raise
        except Exception:  # the boundary of the socket: a fault of ours closes it, the tab connects again
            logger.exception("socket failed", extra={"action": self.action, self.argument: self.watched})
            await self.close(1011)

    async def _loop(self) -> None:
        """The loop of one socket: sends what is due."""
        beat_at, check_at = time.monotonic() + BEAT_S, time.monotonic() + RECHECK_S
        while True:
            self.wake.clear()
            try:
                await self.tell()
                if time.monotonic() >= check_at:
                    await in_database(lambda: self._authorise(again=True))
                    check_at = time.monotonic() + RECHECK_S
                if time.monotonic() >= beat_at:
                    await self.beat()
                    beat_at = time.monotonic() + BEAT_S
            except DATABASE_AWAY:
                await self._send('{"type":"beat","paused":true}')
                await asyncio.sleep(self.look_s)
                continue
            await asyncio.sleep(self.frame_s + feed().crowd_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self.look_s, max(0.0, beat_at - time.monotonic()))):
                    await self.wake.wait()

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self.send(text_data=text)
        except TimeoutError as exc:
            raise Closed(TOO_MANY) from exc
