"""What people do in a chat: send, edit, draw again, stop; and what is refused, with a sentence."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from envs.wire import Message
from webapp.chat import answers as shapes
from webapp.chat.conversation import ask_of, choices, conversation
from webapp.chat.holder import cut_lost, look
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.chat.selectors import chat_since, waits
from webapp.chat.services import MAX_TEXT_CHARS, answer_again, chat_create, chat_stop, turn_send
from webapp.common.answers import in_shape
from webapp.common.workers.models import Worker
from webapp.endpoints.models import Endpoint
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.states import RunState

Maker = Callable[..., Chat]


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the broker."""
    sent: list[str] = []
    monkeypatch.setattr("webapp.chat.services.hint", lambda _pool: sent.append("send"))
    monkeypatch.setattr("webapp.chat.holder.hint", lambda _pool: sent.append("look"))
    return sent


def _answer(answer: Answer, *texts: str, state: str = AnswerState.DONE, partial: str = "") -> Answer:
    messages = [{"role": "assistant", "content": text} for text in texts]
    Answer.objects.filter(pk=answer.pk).update(state=state, messages=messages, partial=partial, token="")
    answer.refresh_from_db()
    return answer


def _send(chat: Chat, text: str, **more: Any) -> Turn:
    chat.refresh_from_db()
    return turn_send(chat=chat, user=chat.created_by, text=text, **more)


def _words(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


def test_a_message_waits_for_an_answer_of_each_contestant(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat([{"source": "model:tiny"}, {"source": "Qwen/Qwen3-0.6B"}])
    turn = _send(chat, "  Hello\x00 there  ", parameters={"temperature": 0.0, "seed": 7})
    chat.refresh_from_db()
    assert [one["title"] for one in chat.contestants] == ["tiny", "Qwen/Qwen3-0.6B"]
    assert turn.text.startswith("Hello") and "\x00" not in turn.text
    assert [(a.contestant, a.state, a.parameters["seed"]) for a in turn.answers.all()] == [
        (0, "waiting", 7),
        (1, "waiting", 7),
    ]
    assert chat.parameters["temperature"] == 0.0 and chat.seq == 1


def test_each_contestant_continues_from_its_own_answers(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat([{"source": "model:tiny"}, {"source": "model:tiny"}], parameters={"system": "Be brief."})
    for answer, text in zip(_send(chat, "One").answers.all(), ("first", "second"), strict=True):
        _answer(answer, text)
    mine = _send(chat, "Two").answers.get(contestant=1)
    assert _words(ask_of(mine).messages) == [
        ("system", "Be brief."),
        ("user", "One"),
        ("assistant", "second"),
        ("user", "Two"),
    ]


def test_a_turn_without_an_answer_is_read_together_with_the_next(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat()
    _answer(_send(chat, "One").answers.get(), state=AnswerState.FAILED)
    _answer(_send(chat, "Two").answers.get(), state=AnswerState.CUT, partial="half an ans")
    assert _words(conversation(chat, 0)) == [("user", "One\n\nTwo"), ("assistant", "half an ans")]


def test_editing_replaces_a_turn_and_what_follows(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat()
    first = _send(chat, "One")
    _answer(first.answers.get(), "a")
    _answer(_send(chat, "Two").answers.get(), "b")
    edited = _send(chat, "Uno", edited=first.pk)
    assert edited.number == 0 and chat.turns.count() == 3
    assert _words(conversation(chat, 0)) == [("user", "Uno")]
    assert sorted(turn["text"] for turn in in_shape(shapes.Chat, chat_since(chat))["turns"] if turn["replaced"]) == [
        "One",
        "Two",
    ]
    chat.refresh_from_db()
    assert chat.title == "Uno"
    with pytest.raises(ValidationError, match="still being written"):
        _send(chat, "Again", edited=edited.pk)
    _answer(edited.answers.get(), "c")
    with pytest.raises(ValidationError, match="edited already"):
        _send(chat, "Eins", edited=first.pk)


def test_an_answer_is_drawn_again_with_the_next_seed_and_the_earlier_one_stays(
    make_chat: Maker, hints: list[str], db: None
) -> None:
    chat = make_chat(parameters={"seed": 5})
    before = _send(chat, "One").answers.get()
    with pytest.raises(ValidationError, match="still being written"):
        answer_again(chat=chat, answer=before.pk)
    _answer(before, "a")
    again = answer_again(chat=chat, answer=before.pk)
    assert (again.number, ask_of(again).seed, ask_of(before).seed) == (1, 6, 5)
    _answer(again, "b")
    assert _words(conversation(chat, 0)) == [("user", "One"), ("assistant", "b")]
    _send(chat, "Two")
    with pytest.raises(ValidationError, match="Only an answer to the last message"):
        chat_stop(chat=chat)
        answer_again(chat=chat, answer=before.pk)


def test_stopping_ends_what_waits_at_once_and_asks_for_the_rest(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat([{"source": "model:tiny"}, {"source": "model:tiny"}])
    waiting, writing = _send(chat, "One").answers.all()
    Answer.objects.filter(pk=writing.pk).update(state=AnswerState.ANSWERING, token="t")
    assert chat_stop(chat=chat) == 2
    waiting.refresh_from_db()
    writing.refresh_from_db()
    assert (waiting.state, writing.state, writing.stop) == ("stopped", "answering", True)
    assert chat_stop(chat=chat) == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"contestants": []}, "Choose one model"),
        ({"contestants": [{"source": "model:nobody"}]}, "There is no model"),
        ({"contestants": [{"source": "/etc"}]}, "paths are not taken"),
        ({"contestants": [{"source": "starter"}]}, "built again for each run"),
        ({"contestants": [{"source": f"checkpoint:{uuid.uuid4()}"}]}, "not here any more"),
        ({"contestants": [{"source": "endpoint:nobody"}]}, "There is no endpoint “nobody”"),
        ({"contestants": [{"source": "model:tiny", "url": "http://10.0.0.1/v1"}]}, "Choose a model"),
        ({"environment": "nowhere"}, "not in this project"),
        ({"parameters": {"temperature": 9}}, "less than or equal to 5"),
        ({"parameters": {"heat": 1}}, "no parameter of this name"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    given: dict[str, Any], sentence: str, project: Project, alice: User, tiny: RegisteredModel
) -> None:
    fields = {"contestants": [{"source": "model:tiny"}], **given}
    with pytest.raises(ValidationError, match=sentence):
        chat_create(project=project, user=alice, **fields)
    assert not Chat.objects.exists()


def test_messages_have_a_least_and_a_most(make_chat: Maker, make_environment: Any, hints: list[str], db: None) -> None:
    chat = make_chat()
    with pytest.raises(ValidationError, match="Write a message"):
        _send(chat, "  ")
    with pytest.raises(ValidationError, match="200,001 characters; at most 200,000"):
        _send(chat, "x" * (MAX_TEXT_CHARS + 1))
    place = make_environment(name="bed")
    assert _send(make_chat(environment=place.name), "").text == "", "the environment begins"


def test_what_an_answer_waits_for_is_shown(make_chat: Maker, make_run: Any, hints: list[str], db: None) -> None:
    chat = make_chat()
    answer = _send(chat, "One").answers.get()
    key = str(answer.pk)
    assert waits(chat)[key]["why"] == "no_worker"
    Worker.objects.create(name="train@a", queues=["train"], started_at=timezone.now(), beat_at=timezone.now())
    Answer.objects.filter(pk=answer.pk).update(created_at=timezone.now() - timedelta(seconds=9))
    found = waits(chat)[key]
    assert (found["why"], found["before"]) == ("starting", 0) and 9 <= found["seconds"] < 15
    run = make_run(name="busy", state=RunState.RUNNING, step=10, total_steps=40, step_seconds=2.0)
    Run.objects.filter(pk=run.pk).update(lease_worker="train@a")
    assert waits(chat)[key] | {"seconds": 0} == {
        "seconds": 0,
        "before": 0,
        "why": "run",
        "run": "busy",
        "run_id": str(run.pk),
        "left": 60.0,
    }
    other = make_chat()
    second = _send(other, "Two").answers.get()
    assert waits(other)[str(second.pk)]["before"] == 1
    Answer.objects.filter(pk=answer.pk).update(state=AnswerState.ANSWERING, token="t")
    assert waits(chat)[key]["why"] == "loading"


def test_a_run_of_another_project_has_no_name_here(
    make_chat: Maker, make_run: Any, charlie: User, hints: list[str], db: None
) -> None:
    chat = make_chat()
    answer = _send(chat, "One").answers.get()
    elsewhere = Project.objects.get(slug="elsewhere")
    make_run(name="secret", project=elsewhere, state=RunState.RUNNING, lease_worker="train@a")
    now = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=now, beat_at=now)
    found = waits(chat)[str(answer.pk)]
    assert (found["why"], found["run"], found["run_id"]) == ("run", "", "")


def test_a_silent_worker_loses_what_it_was_writing(make_chat: Maker, hints: list[str], db: None) -> None:
    chat = make_chat()
    answer = _send(chat, "One").answers.get()
    now = timezone.now()
    writing = {"state": AnswerState.ANSWERING, "token": "t", "partial": "half"}
    Answer.objects.filter(pk=answer.pk).update(heard_at=now - timedelta(seconds=11), **writing)
    assert cut_lost() == 0
    Answer.objects.filter(pk=answer.pk).update(heard_at=now - timedelta(seconds=13))
    seq = Chat.objects.get(pk=chat.pk).seq
    assert cut_lost() == 1
    answer.refresh_from_db()
    assert (answer.state, answer.error["code"], answer.partial) == ("cut", "chat_cut", "half")
    assert answer.seq > seq


def test_a_worker_is_asked_for_again_while_something_waits(make_chat: Maker, hints: list[str], db: None) -> None:
    answer = _send(make_chat(), "One").answers.get()
    hints.clear()
    look()
    assert hints == []
    Answer.objects.filter(pk=answer.pk).update(created_at=timezone.now() - timedelta(seconds=6))
    look()
    assert hints == ["look"]
    assert Run.objects.count() == 0


def test_a_list_of_contestants_that_is_cut_says_so(
    project: Project, elsewhere: Project, tiny: RegisteredModel, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [label for label, _found in choices(project)] == ["Registered"]
    run, at = make_run(name="lance"), timezone.now()
    for number, where in enumerate((project, project, elsewhere)):
        RegisteredModel.objects.create(project=where, name=f"m{number}", kind="hub", source="owner/model")
        Endpoint.objects.create(project=where, name=f"e{number}", url="https://example.org/v1", model="m")
        point = {"step": 8, "bytes": 1, "seq": 1, "created_at": at, "path": f"{number}/model", "attempt": number}
        Checkpoint.objects.create(project=where, run=run, final=True, **point)
    Checkpoint.objects.create(project=project, run=run, **(point | {"path": "9/checkpoint-4", "attempt": 9}))
    assert [len(found) for _label, found in choices(project)] == [3, 2, 2]
    monkeypatch.setattr("webapp.chat.conversation.MAX_CHOICES", 1)
    cut = "The newest 1 are listed."
    assert [(label, len(found)) for label, found in choices(project)] == [
        (f"Registered · {cut}", 1),
        (f"Trained here · {cut}", 1),
        (f"Endpoints · {cut}", 1),
    ]
