"""The live view of one chat: all of it first, then each change, by ``seq`` (docs/chat.md has the frames).

The socket only sends. What a person does goes through the API, so that two tabs, a script and a tab that was closed all
see the same rows. An answer that grows is sent as the text that was added.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from webapp.chat import answers as shapes
from webapp.chat.models import AnswerState, Chat
from webapp.chat.selectors import chat_read, chat_since, waits
from webapp.common.answers import in_shape
from webapp.common.serving import in_database
from webapp.live.consumers import BAD_FRAME, GONE, Closed, Watcher
from webapp.live.feed import encode

_sockets: Counter[UUID] = Counter()


def _read_changes(chat_id: UUID, after: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The chat's changes after ``after``, and its answers that wait. Raises ``Closed``."""
    chat = chat_read(chat_id)
    if chat is None:
        raise Closed(GONE)
    if chat.seq <= after:
        return {"seq": chat.seq, "turns": [], "answers": []}, waits(chat)
    return in_shape(shapes.Chat, chat_since(chat, after)), waits(chat)


class ChatConsumer(Watcher):
    """One tab that shows one chat."""

    model, argument, action, sockets = Chat, "chat_id", "chat", _sockets
    frame_s, look_s = 0.03, 1.0

    def begin(self) -> None:
        """Begin with nothing sent."""
        self.seq = -1
        self.sent: dict[str, tuple[int, int]] = {}
        self.waiting = False

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A ping; anything else closes the socket."""
        if text_data == '{"type":"ping"}':
            await self._send('{"type":"pong"}')
        else:
            await self.close(BAD_FRAME)

    async def beat(self) -> None:
        """Send only the sign of life."""
        await self._send('{"type":"beat"}')

    async def tell(self) -> None:
        """Send the whole chat, or its changes since the last frame, and the waiting answers."""
        view, waiting = await in_database(_read_changes, self.watched, self.seq)
        first, changed = self.seq < 0, view["seq"] > self.seq
        self.seq = view["seq"]
        if changed:
            answers = view.pop("answers")
            more = [found for answer in answers if (found := self._added_text(answer)) is not None]
            whole = [answer for answer in answers if answer["id"] not in {one["id"] for one in more}]
            for answer in answers:
                self.sent[answer["id"]] = _answer_length(answer)
            await self._send(encode({"type": "chat" if first else "changes", **view, "answers": whole, "more": more}))
        if waiting or self.waiting:
            await self._send(encode({"type": "waits", "waits": waiting}))
        self.waiting = bool(waiting)

    def _added_text(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """The text that was added to an answer that this tab has; ``None`` where anything else has changed."""
        before = self.sent.get(answer["id"])
        messages, length = _answer_length(answer)
        if before is None or answer["state"] != AnswerState.ANSWERING or before[0] != messages or length <= before[1]:
            return None
        return {"id": answer["id"], "text": answer["partial"][before[1] :]}


def _answer_length(answer: dict[str, Any]) -> tuple[int, int]:
    """How many complete messages the answer has, and how many characters of the next one."""
    return len(answer["messages"]), len(answer["partial"])
