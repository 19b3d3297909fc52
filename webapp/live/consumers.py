"""Sockets that watch one object: who may see it, when it ends, and the live view of one run (docs/live.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404
from django.utils import translation

from training.plain import number_in
from webapp.common.errors import DATABASE_AWAY
from webapp.common.serving import in_database
from webapp.live.feed import CURVES_ASKED_MAX, NAME_MAX, Read, RunGone, feed
from webapp.people.teams.access import object_for, projects_of
from webapp.people.teams.models import User
from webapp.runs.models import Run

# The common part of sockets that watch one object: who may see it, how many sockets a person has, and when it ends.
#
# 1. Authenticate, authorise through ``teams.access``, count the sockets, of the person and in all; only then join,
#    accept, and read.
# 2. Joining comes before the first read, so that no change is missed between them. From then on the socket sends what
#    is new when it wakes: by a nudge, or every ``look_s``.
# 3. Several nudges within ``frame_s`` are one frame; where hundreds of sockets share a process, within up to 0.4 s
#    more. A slow tab delays only itself: nothing is queued for it, and it is closed when one frame takes longer than
#    ``SEND_LIMIT_S``.
# 4. The right to see it is checked again every ``RECHECK_S``, from the present session and membership.

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


def page_language(scope: dict[str, Any]) -> str:
    """The language of the page behind the socket, which its address names: sockets have no middleware that knows it."""
    asked = parse_qs(scope["query_string"].decode("ascii", "replace")).get("language", [""])[0]
    try:
        return translation.get_supported_language_variant(asked[:20])
    except LookupError:
        return str(settings.LANGUAGE_CODE)


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
        """The loop of one socket: sends what is due. It is a task of its own, so the language is for it alone."""
        translation.activate(page_language(self.scope))
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


# The live view of one run: a snapshot, then changes by ``seq`` (docs/live.md has the frames and close codes).

CLIENT_FRAME_BYTES = 4096
CURVE_REQUESTS_MAX = 16
STEP_MAX = 2**31 - 1
NO_PLACE = '{"type":"queue","queue":null}'
_sockets: Counter[UUID] = Counter()


class CurvesAsked(NamedTuple):
    """Curves that a tab asks for: all of them, or their part between two steps."""

    names: tuple[str, ...]
    first: int | None
    last: int | None


class RunConsumer(Watcher):
    """One tab that watches one run. Each frame has a higher ``seq`` than the one before."""

    model, argument, action, sockets = Run, "run_id", "pump", _sockets
    frame_s, look_s = 0.05, 2.0

    def begin(self) -> None:
        """Begin with nothing sent and nothing requested."""
        self.seq, self.started = 0, False
        self.sees: frozenset[UUID] = frozenset()
        self.place_sent = NO_PLACE
        self.wanted_step: int | None = None
        self.wanted_curves: list[CurvesAsked] = []

    def _authorise(self, *, again: bool = False) -> UUID:
        """As for every socket; notes which projects the person may see, so that the queue names no run of others."""
        person = super()._authorise(again=again)
        self.sees = frozenset(projects_of(user_now(self.scope)).order_by().values_list("pk", flat=True))
        return person

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
                self.wanted_curves.append(CurvesAsked(tuple(frame["names"]), frame.get("first"), frame.get("last")))
            else:
                await self.close(TOO_MANY)
                return
            self.wake.set()

    async def tell(self) -> None:
        """The first frame, or what has changed since the last."""
        try:
            if not self.started:
                after, least = self._address_number("after"), self._address_number("least") or 0
                await self._send_read(await feed().first(self.watched, after, least))
                self.started = True
            await self._catch_up()
        except RunGone as exc:
            raise Closed(GONE) from exc

    async def _catch_up(self) -> None:
        if self.wanted_step is not None:
            step, self.wanted_step = self.wanted_step, None
            for text in (await feed().step(self.watched, step, self.seq)).texts:
                await self._send(text)
        while self.wanted_curves:
            asked = self.wanted_curves.pop(0)
            for text in (await feed().curves(self.watched, asked.names, self.seq, asked.first, asked.last)).texts:
                await self._send(text)
        while True:
            read, stale = await feed().changes(self.watched, self.seq)
            await self._send_read(read)
            if stale:
                self.wake.set()
            if not read.more:
                await self._send_place(read.queued)
                return

    async def _send_place(self, queued: bool) -> None:
        """The run's place in the queue, where it is another one than was sent last."""
        text = await feed().place(self.watched, self.sees) if queued else NO_PLACE
        if text != self.place_sent:
            await self._send(text)
        self.place_sent = text

    async def _send_read(self, read: Read) -> None:
        for text in read.texts:
            await self._send(text)
        self.seq = read.seq

    async def beat(self) -> None:
        """Send the present row of the run."""
        try:
            run = await feed().run(self.watched)
        except RunGone as exc:
            raise Closed(GONE) from exc
        now = datetime.now(UTC).isoformat()
        await self._send(f'{{"type":"beat","seq":{self.seq},"now":"{now}","run":{run}}}')

    def _address_number(self, name: str) -> int | None:
        """A number of the socket's address."""
        text = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get(name, [""])[0]
        return number_in(text, 18)


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
        return frame if _is_step(frame["step"]) else None
    if kind == "curves" and set(frame) == {"type", "names"}:
        return frame if _are_names(frame["names"]) else None
    if kind == "curves" and set(frame) == {"type", "names", "first", "last"}:
        span = _is_step(frame["first"]) and _is_step(frame["last"]) and frame["first"] <= frame["last"]
        return frame if span and _are_names(frame["names"]) else None
    return None


def _is_step(value: object) -> bool:
    """Whether this is the number of a step."""
    return type(value) is int and 0 <= value <= STEP_MAX


def _are_names(names: object) -> bool:
    """Whether this is a list of metric names that a page may ask for."""
    if not isinstance(names, list) or not 0 < len(names) <= CURVES_ASKED_MAX:
        return False
    return all(isinstance(name, str) and 0 < len(name) <= NAME_MAX and name.isprintable() for name in names)
