"""The frames of a chat's socket: all of it first, then what changed, added text alone, and what waits."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from webapp.chat import consumer as consumer_module
from webapp.chat.consumer import ChatConsumer
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.live.consumers import BAD_FRAME, GONE, Closed
from webapp.people.teams.models import Project

pytestmark = pytest.mark.django_db


class Tab(ChatConsumer):
    """A socket whose frames are kept, and which looks when a test says so."""

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self.watched, self.frames, self.code = chat.pk, list[dict[str, Any]](), 0
        self.begin()

    async def _send(self, text: str) -> None:
        self.frames.append(json.loads(text))

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        self.code = code or 0

    def looks(self) -> list[dict[str, Any]]:
        """The frames of one look."""
        self.frames = []
        async_to_sync(self.tell)()
        return self.frames


@pytest.fixture
def tab(project: Project, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """A tab that shows a chat of one turn, which waits for its answer."""

    def here(function: Callable[..., Any], *given: Any) -> Any:
        return sync_to_async(function)(*given)

    monkeypatch.setattr(consumer_module, "in_database", here)
    chat = Chat.objects.create(project=project, contestants=[{"source": "a/b", "title": "b"}], seq=1)
    turn = Turn.objects.create(chat=chat, number=0, text="Hi", seq=1)
    Answer.objects.create(turn=turn, contestant=0, seq=1)
    return Tab(chat)


def write(tab: Tab, **values: Any) -> None:
    """The answer as its worker writes it."""
    seq = Chat.objects.get(pk=tab.watched).seq + 1
    Chat.objects.filter(pk=tab.watched).update(seq=seq)
    Answer.objects.update(seq=seq, **values)


def test_a_tab_gets_the_whole_chat_then_added_text_then_the_whole_answer(tab: Tab) -> None:
    whole, waits = tab.looks()
    assert (whole["type"], whole["seq"], [turn["text"] for turn in whole["turns"]]) == ("chat", 1, ["Hi"])
    assert [answer["state"] for answer in whole["answers"]] == ["waiting"] and whole["more"] == []
    answer = str(Answer.objects.get().pk)
    assert (waits["type"], waits["waits"][answer]["why"]) == ("waits", "no_worker")
    write(tab, state=AnswerState.ANSWERING, partial="It ")
    changes, none = tab.looks()
    assert (changes["type"], changes["turns"], changes["answers"]) == ("changes", [], [])
    assert changes["more"] == [{"id": answer, "text": "It "}] and none == {"type": "waits", "waits": {}}
    write(tab, partial="It is 4")
    (changes,) = tab.looks()
    assert changes["more"] == [{"id": answer, "text": "is 4"}]
    write(tab, partial="It")
    (changes,) = tab.looks()
    assert changes["more"] == [] and changes["answers"][0]["partial"] == "It", "less text is another text"
    write(tab, partial="", messages=[{"role": "assistant", "content": "It is 4."}])
    (changes,) = tab.looks()
    assert changes["more"] == [] and len(changes["answers"][0]["messages"]) == 1
    write(tab, partial="And")
    (changes,) = tab.looks()
    assert changes["more"] == [{"id": answer, "text": "And"}]
    write(tab, partial="And so", state=AnswerState.DONE)
    (changes,) = tab.looks()
    assert changes["more"] == [] and changes["answers"][0]["state"] == "done"


def test_nothing_is_sent_where_nothing_changed_but_what_waits(tab: Tab) -> None:
    assert [frame["type"] for frame in tab.looks()] == ["chat", "waits"]
    assert [frame["type"] for frame in tab.looks()] == ["waits"]
    Answer.objects.update(state=AnswerState.DONE)
    assert tab.looks() == [{"type": "waits", "waits": {}}], "once, to say that nothing waits any more"
    assert tab.looks() == []


def test_a_chat_that_is_gone_closes_the_socket(tab: Tab) -> None:
    tab.watched = uuid.uuid4()
    with pytest.raises(Closed) as closed:
        tab.looks()
    assert closed.value.code == GONE


@pytest.mark.parametrize("text", ['{"type":"ping"}', '{"type":"pong"}', "", None])
def test_a_ping_is_answered_and_anything_else_closes_the_socket(text: str | None, tab: Tab) -> None:
    async_to_sync(tab.receive)(text)
    is_ping = text == '{"type":"ping"}'
    assert (tab.frames, tab.code) == (([{"type": "pong"}], 0) if is_ping else ([], BAD_FRAME))
    tab.frames = []
    async_to_sync(tab.beat)()
    assert tab.frames == [{"type": "beat"}]
