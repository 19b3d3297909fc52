"""The worker's side with a real chat process, in this process: it ends by itself once no one asks any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from training.chat.wire import Stop
from webapp.chat.holder import NO_ROOM, Child, Desk, look, run_waits
from webapp.chat.models import Answer, AnswerState, Chat, Holder
from webapp.chat.selectors import waits
from webapp.chat.services import answer_again, chat_delete, chat_save, chat_stop, turn_send
from webapp.chat.tasks import hold
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Worker
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.rewards.models import RewardCase
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.states import RunState

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(120)]
Maker = Callable[..., Chat]


@pytest.fixture(autouse=True)
def _soon_idle(settings: Any) -> None:
    settings.CHAT_IDLE_S = 0.2


def _send(chat: Chat, text: str, **parameters: Any) -> list[Answer]:
    chat.refresh_from_db()
    return list(turn_send(chat=chat, user=chat.created_by, text=text, parameters=parameters).answers.all())


def _after(answers: list[Answer]) -> list[Answer]:
    for answer in answers:
        answer.refresh_from_db()
    return answers


def test_two_contestants_answer_and_what_was_said_can_be_kept(make_chat: Maker, make_environment: Any) -> None:
    chat = make_chat([{"source": "model:tiny"}, {"source": "model:tiny"}], parameters={"max_tokens": 12})
    answers = _send(chat, "Say red please.")
    other = _send(make_chat(parameters={"max_tokens": 5}), "Say green.")
    Desk(TRAIN).run()
    assert [answer.state for answer in _after([*answers, *other])] == ["done"] * 3
    assert answers[0].messages == answers[1].messages, "one model, one seed"
    assert answers[0].ending["tokens"] <= 12 and other[0].ending["tokens"] <= 5
    assert not Holder.objects.exists()
    row = chat_save(chat=chat, user=chat.created_by, kind="row", name="talks", contestant=1)
    assert (row.kind, Dataset.objects.get(name="talks").lineage["operation"]) == ("row", "append")
    case = chat_save(chat=chat, user=chat.created_by, kind="case", name="talk", total=[0.0, 1.0])
    assert case.label == "talk"
    assert [m["role"] for m in RewardCase.objects.get().messages] == ["user", "assistant"]
    again = answer_again(chat=chat, answer=answers[0].pk)
    Desk(TRAIN).run()
    assert _after([again])[0].state == "done" and again.messages != answers[0].messages


def test_the_tools_of_an_environment_are_there(make_chat: Maker, make_environment: Any, tools_server: str) -> None:
    place = make_environment(name="bed")
    chat = make_chat(environment=place.name, parameters={"max_tokens": 8, "seed": 4})
    (answer,) = _send(chat, "")
    Desk(TRAIN).run()
    _after([answer])
    assert answer.state == "done", answer.error
    assert [message["role"] for message in answer.messages][:2] == ["user", "assistant"]
    Environment.objects.all().delete()
    (answer,) = _send(chat, "And now?")
    Desk(TRAIN).run()
    _after([answer])
    assert (answer.state, answer.error["code"]) == ("failed", "environment_unreachable")
    assert "bed" in answer.error["message"]


def test_a_model_whose_files_went_is_a_sentence(make_chat: Maker) -> None:
    (answer,) = _send(make_chat(), "Hello")
    RegisteredModel.objects.update(source="gone")
    Desk(TRAIN).run()
    _after([answer])
    assert answer.state == "failed" and "gone" in answer.error["message"]


def test_a_process_that_dies_costs_its_answers_alone(make_chat: Maker, settings: Any) -> None:
    settings.CHAT_COMMAND = ["/bin/false"]
    (answer,) = _send(make_chat(), "Hello")
    Desk(TRAIN).run()
    _after([answer])
    assert (answer.state, answer.error["code"]) == ("failed", "chat_died")


def test_a_run_that_waits_goes_first(make_chat: Maker, make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = _send(make_chat(), "Hello")
    before = make_run(state=RunState.RUNNING)
    follower = make_run(state=RunState.QUEUED, after=before)
    old = timezone.now() - timedelta(seconds=5)
    Run.objects.filter(pk=follower.pk).update(queued_at=old)
    assert not run_waits(TRAIN), "it waits for another run, not for a device"
    run = make_run(state=RunState.QUEUED)
    Run.objects.filter(pk=run.pk).update(queued_at=old)
    assert run_waits(TRAIN)
    nudged: list[str] = []
    monkeypatch.setattr("webapp.chat.tasks.nudge_next", nudged.append)
    hold()
    assert (_after([answer])[0].state, nudged) == ("waiting", ["train"])
    Desk(TRAIN).run()
    assert (_after([answer])[0].state, answer.token) == (AnswerState.WAITING, "")


@pytest.fixture
def taken_device(make_run: Any) -> Run:
    """A run that has the one device; there is a place without one."""
    at = timezone.now()
    for queue in (TRAIN, ENDPOINT):
        Worker.objects.create(name=f"{queue}@a", queues=[queue], started_at=at, beat_at=at)
    run: Run = make_run(name="long", state=RunState.RUNNING)
    Run.objects.filter(pk=run.pk).update(lease_worker="train@a")
    return run


def test_a_small_model_answers_on_the_processor_while_a_run_has_the_device(
    make_chat: Maker, taken_device: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = make_chat(parameters={"max_tokens": 6})
    (answer,) = _send(chat, "Say red please.")
    assert answer.pool == ENDPOINT
    given: list[str | None] = []
    begin = Child.__init__
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(
        Child,
        "__init__",
        lambda child, opened, lines, access: (
            given.append(access.get("CUDA_VISIBLE_DEVICES")) or begin(child, opened, lines, access)
        ),
    )
    Desk(ENDPOINT).run()
    _after([answer])
    assert (answer.state, answer.ending["device"], given) == ("done", "cpu", [""])
    Run.objects.filter(pk=taken_device.pk).update(state=RunState.SUCCEEDED, lease_worker="")
    assert answer_again(chat=chat, answer=answer.pk).pool == TRAIN, "the device is free again"


def test_an_answer_whose_device_a_run_took_meanwhile_moves(
    make_chat: Maker, taken_device: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("webapp.chat.holder.hint", sent.append)
    Run.objects.filter(pk=taken_device.pk).update(state=RunState.SUCCEEDED, lease_worker="")
    chat = make_chat()
    (answer,) = _send(chat, "Hello")
    assert answer.pool == TRAIN
    Run.objects.filter(pk=taken_device.pk).update(state=RunState.RUNNING, lease_worker="train@a")
    look()
    assert (_after([answer])[0].pool, sent) == (TRAIN, []), "it came a moment ago"
    Answer.objects.update(created_at=timezone.now() - timedelta(seconds=9))
    before = answer.seq
    look()
    assert (_after([answer])[0].pool, sent) == (ENDPOINT, ["endpoint"])
    assert answer.seq > before, "open pages hear of it"
    Run.objects.filter(pk=taken_device.pk).update(state=RunState.SUCCEEDED, lease_worker="")
    look()
    assert (_after([answer])[0].pool, sent) == (TRAIN, ["endpoint", "train"]), "the device is free, and it still waits"


def test_a_model_without_room_next_to_the_run_waits_for_the_device(
    make_chat: Maker, taken_device: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.chat.holder.has_room", lambda model: False)
    monkeypatch.setattr("webapp.chat.holder.hint", lambda pool: None)
    chat = make_chat()
    (answer,) = _send(chat, "Hello")
    Desk(ENDPOINT).run()
    _after([answer])
    assert (answer.pool, answer.state, answer.progress) == (TRAIN, "waiting", NO_ROOM)
    assert {name: waits(chat)[str(answer.pk)][name] for name in ("why", "run", "no_room")} == {
        "why": "run",
        "run": "long",
        "no_room": True,
    }
    Answer.objects.update(created_at=timezone.now() - timedelta(seconds=9))
    look()
    assert _after([answer])[0].pool == TRAIN, "it would come back at once"


def test_a_model_that_is_loaded_already_needs_no_room(
    make_chat: Maker, taken_device: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[bool] = []

    def has_room(_model: object) -> bool:
        rooms.append(not rooms)
        return rooms[-1]

    monkeypatch.setattr("webapp.chat.holder.has_room", has_room)
    answers = [_send(make_chat(parameters={"max_tokens": 4}), "Hello")[0] for _chat in range(2)]
    Desk(ENDPOINT).run()
    assert [(answer.state, answer.pool) for answer in _after(answers)] == [("done", ENDPOINT)] * 2
    assert rooms == [True], "the second answer is of the process that the first one began"


def test_what_was_stopped_before_is_not_begun(make_chat: Maker) -> None:
    chat = make_chat()
    (answer,) = _send(chat, "Hello")
    chat_stop(chat=chat)
    Desk(TRAIN).run()
    assert _after([answer])[0].state == "stopped" and answer.messages == []


def test_a_chat_that_is_deleted_ends_no_other(make_chat: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, stays = make_chat(), make_chat(parameters={"max_tokens": 6})
    (lost,) = _send(gone, "Go on for long.", max_tokens=3000, temperature=0.0)
    (answer,) = _send(stays, "Hello")
    handle = Desk._handle_answer

    def delete_then(desk: Desk, live: Any, line: Any) -> None:
        handle(desk, live, line)
        if live.chat_id == gone.pk and live.text:
            chat_delete(chat=gone)

    sent: list[Any] = []
    send = Child.send

    def note(child: Child, line: Any) -> None:
        sent.append(line)
        send(child, line)

    monkeypatch.setattr(Desk, "_handle_answer", delete_then)
    monkeypatch.setattr(Child, "send", note)
    Desk(TRAIN).run()
    assert _after([answer])[0].state == "done"
    assert [line.id for line in sent if isinstance(line, Stop)] == [str(lost.pk)], "the model writes on for no reader"
    assert not Chat.objects.filter(pk=gone.pk).exists()
