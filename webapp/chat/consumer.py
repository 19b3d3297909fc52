"""The live view of one chat: all of it first, then whatever changes, by ``seq`` (docs/chat.md has the frames).

The socket only tells. What a person does goes through the API, so that two tabs, a script and a tab that was closed all
see the same rows. An answer that grows is sent as the text that was added.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import Any
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, InterfaceError
from django.http import Http404

from webapp.chat.models import AnswerState, Chat
from webapp.chat.selectors import chat_read, chat_view, waits
from webapp.live.consumers import BAD_FRAME, FORBIDDEN, GONE, LOGIN, TOO_MANY, Closed, _user_now
from webapp.live.feed import feed, in_database
from webapp.live.frames import encode
from webapp.teams.access import object_for

logger = logging.getLogger(__name__)
FRAME_S, LOOK_S, BEAT_S, RECHECK_S, SEND_LIMIT_S = 0.03, 1.0, 5.0, 25.0, 30.0
SOCKETS_MAX = 20
_sockets: Counter[UUID] = Counter()


def _authorise(scope: dict[str, Any], chat_id: UUID, *, again: bool) -> UUID:
    """The person, who may look; ``Closed`` with the code that says why not."""
    user = _user_now(scope)
    if not user.is_authenticated:
        raise Closed(LOGIN)
    try:
        object_for(user, Chat, chat_id, within=Chat.objects.select_related("project"))
    except (Http404, PermissionDenied) as exc:
        raise Closed(FORBIDDEN if again else GONE) from exc
    return user.pk  # type: ignore[return-value]


def _read(chat_id: UUID, after: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What changed after ``after``, and what waits."""
    chat = chat_read(chat_id)
    if chat is None:
        raise Closed(GONE)
    view = chat_view(chat, after=after) if chat.seq > after else {"seq": chat.seq, "turns": [], "answers": []}
    return view, waits(chat)


class ChatConsumer(AsyncWebsocketConsumer):
    """One tab that looks at one chat."""

    # The layer is heard by the feed: a Redis that is away must not take sockets with it.
    channel_layer_alias = ""

    async def connect(self) -> None:
        """Authenticate, authorise, join, accept, then read."""
        self.chat_id: UUID = self.scope["url_route"]["kwargs"]["chat_id"]
        self.wake, self.seq, self.person = asyncio.Event(), -1, None
        self.sent: dict[str, tuple[int, int]] = {}
        self.waiting = False
        self.pump: asyncio.Task[None] | None = None
        try:
            person = await in_database(lambda: _authorise(self.scope, self.chat_id, again=False))
        except Closed as closed:
            await self.close(closed.code)
            return
        except (DatabaseError, InterfaceError):
            await self.close(1013)
            return
        if _sockets[person] >= SOCKETS_MAX:
            await self.close(TOO_MANY)
            return
        self.person = person
        _sockets[person] += 1
        await feed().subscribe(self.chat_id, self.wake)
        await self.accept()
        self.pump = asyncio.create_task(self._pump(), name=f"chat-{self.chat_id}")

    async def disconnect(self, code: int) -> None:
        """Let go of everything."""
        if self.person is None:
            return
        _sockets[self.person] -= 1
        if _sockets[self.person] <= 0:
            del _sockets[self.person]
        self.person = None
        feed().unsubscribe(self.chat_id, self.wake)
        if self.pump is not None:
            self.pump.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self.pump

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A ping; anything else closes the socket."""
        if text_data == '{"type":"ping"}':
            await self._send('{"type":"pong"}')
        else:
            await self.close(BAD_FRAME)

    async def _pump(self) -> None:
        try:
            await self._run()
        except Closed as closed:
            await self.close(closed.code)
        except asyncio.CancelledError:
            raise
        except Exception:  # the boundary of the socket: a fault of ours closes it, the tab connects again
            logger.exception("chat socket failed", extra={"action": "chat", "chat_id": self.chat_id})
            await self.close(1011)

    async def _run(self) -> None:
        beat_at, check_at = time.monotonic() + BEAT_S, time.monotonic() + RECHECK_S
        while True:
            self.wake.clear()
            try:
                await self._tell(*await in_database(_read, self.chat_id, self.seq))
                if time.monotonic() >= check_at:
                    await in_database(lambda: _authorise(self.scope, self.chat_id, again=True))
                    check_at = time.monotonic() + RECHECK_S
                if time.monotonic() >= beat_at:
                    await self._send('{"type":"beat"}')
                    beat_at = time.monotonic() + BEAT_S
            except (DatabaseError, InterfaceError):
                await self._send('{"type":"beat","paused":true}')
                await asyncio.sleep(LOOK_S)
                continue
            await asyncio.sleep(FRAME_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self.wake.wait()

    async def _tell(self, view: dict[str, Any], waiting: dict[str, dict[str, Any]]) -> None:
        first, changed = self.seq < 0, view["seq"] > self.seq
        self.seq = view["seq"]
        if changed:
            answers = view.pop("answers")
            more = [found for answer in answers if (found := self._more(answer)) is not None]
            whole = [answer for answer in answers if answer["id"] not in {one["id"] for one in more}]
            for answer in answers:
                self.sent[answer["id"]] = _length(answer)
            await self._send(encode({"type": "chat" if first else "changes", **view, "answers": whole, "more": more}))
        if waiting or self.waiting:
            await self._send(encode({"type": "waits", "waits": waiting}))
        self.waiting = bool(waiting)

    def _more(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """The text that was added to an answer that this tab has; ``None`` where more than that has changed."""
        before = self.sent.get(answer["id"])
        messages, length = _length(answer)
        if before is None or answer["state"] != AnswerState.ANSWERING or before[0] != messages or length <= before[1]:
            return None
        return {"id": answer["id"], "text": answer["partial"][before[1] :]}

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self.send(text_data=text)
        except TimeoutError as exc:
            raise Closed(TOO_MANY) from exc


def _length(answer: dict[str, Any]) -> tuple[int, int]:
    """Whole messages and characters of the next one. A partial text that begins a message has no end of its own."""
    return len(answer["messages"]), len(answer["partial"])
