"""Both sides of each limit of a chat, what is saved of it, and who waits for what."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.chat import holder, services, tasks
from webapp.chat.conversation import parameters_of
from webapp.chat.holder import Desk, answer_move
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.chat.selectors import chat_since, chats_of, waits
from webapp.chat.services import answer_again, chat_create, chat_save, chat_stop, turn_send
from webapp.common.pools import TRAIN
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.rewards.models import RewardCase

Builder = Callable[..., Any]
SOURCE = "Qwen/Qwen3-0.6B"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pools that workers were asked for."""
    pools: list[str] = []
    monkeypatch.setattr("webapp.chat.services.hint", pools.append)
    return pools


@pytest.fixture
def chat(project: Project, alice: User) -> Chat:
    """A chat of alice with a model of Hugging Face."""
    return Chat.objects.create(
        project=project, contestants=[{"source": SOURCE, "title": "Qwen"}], created_by=alice, parameters={"seed": 3}
    )


def say(chat: Chat, text: str = "Hello", answer: str = "Hi.") -> Turn:
    """A message, and its answers."""
    chat.refresh_from_db()
    turn = turn_send(chat=chat, user=chat.created_by, text=text)
    messages = [{"role": "assistant", "content": answer}]
    Answer.objects.filter(turn=turn).update(state=AnswerState.DONE, messages=messages)
    return turn


@pytest.mark.parametrize(
    ("field", "below", "least", "most", "above"),
    [
        ("temperature", -0.1, 0.0, 5.0, 5.1),
        ("max_tokens", 0, 1, 32768, 32769),
        ("seed", -1, 0, 2**31 - 1, 2**31),
        ("system", None, "", "x" * 20_000, "x" * 20_001),
    ],
)
def test_a_parameter_has_a_least_and_a_largest_value(field: str, below: Any, least: Any, most: Any, above: Any) -> None:
    for value in (least, most):
        assert getattr(parameters_of({field: value}), field) == value
    for value in (below, above):
        with pytest.raises(ValidationError) as caught:
            parameters_of({field: value})
        assert list(caught.value.message_dict) == [field]


def test_one_model_or_two_answer(project: Project, alice: User) -> None:
    for count, good in ((0, False), (1, True), (2, True), (3, False)):
        if good:
            made = chat_create(project=project, user=alice, contestants=[{"source": SOURCE}] * count)
            assert len(made.contestants) == count
            continue
        with pytest.raises(ValidationError, match="Choose one model, or two"):
            chat_create(project=project, user=alice, contestants=[{"source": SOURCE}] * count)
    assert AuditEntry.objects.filter(action="chat_added").order_by("pk").values_list("subject", flat=True)[1] == (
        f"{SOURCE}, {SOURCE}"
    )


def test_a_project_has_so_many_chats(
    project: Project, elsewhere: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert services.MAX_CHATS == 2000
    monkeypatch.setattr(services, "MAX_CHATS", 2)
    for where in (project, elsewhere, elsewhere):
        Chat.objects.create(project=where, contestants=[])
    chat_create(project=project, user=alice, contestants=[{"source": SOURCE}])
    with pytest.raises(ValidationError, match="reached its limit of chats"):
        chat_create(project=project, user=alice, contestants=[{"source": SOURCE}])


def test_an_environment_is_one_of_the_project(
    project: Project, elsewhere: Project, alice: User, make_environment: Builder
) -> None:
    mine = make_environment(name="bed")
    Environment.objects.create(project=elsewhere, name="theirs")
    made = chat_create(project=project, user=alice, contestants=[{"source": SOURCE}], environment="environment:bed")
    assert (made.environment, made.environment_name, made.turns.count()) == (mine, "bed", 0)
    with pytest.raises(ValidationError, match="not in this project"):
        chat_create(project=project, user=alice, contestants=[{"source": SOURCE}], environment="theirs")
    first = chat_create(project=project, user=alice, contestants=[{"source": SOURCE}], first=" Hi ")
    assert [turn.text for turn in first.turns.all()] == ["Hi"]
    assert not chat_create(project=project, user=alice, contestants=[{"source": SOURCE}], first="  ").turns.exists()


def test_a_message_has_a_largest_length(chat: Chat, alice: User) -> None:
    with pytest.raises(ValidationError, match="200,001 characters"):
        turn_send(chat=chat, user=alice, text="x" * 200_001)
    assert str(chat) == "new chat"
    say(chat, "x" * 200_000)
    chat.refresh_from_db()
    assert chat.title == str(chat) == "x" * 80
    say(chat, "second")
    chat.refresh_from_db()
    assert chat.title == "x" * 80, "the first message is its title"


def test_only_the_first_message_may_be_empty_and_only_where_an_environment_begins(chat: Chat, alice: User) -> None:
    with pytest.raises(ValidationError, match="Write a message"):
        turn_send(chat=chat, user=alice, text=" ")
    Chat.objects.update(environment_name="bed")
    say(chat, "")
    with pytest.raises(ValidationError, match="Write a message"):
        say(chat, "")


def test_a_chat_has_so_many_turns_and_an_answer_so_many_tries(
    chat: Chat, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (services.MAX_TURNS, services.MAX_TRIES) == (200, 50)
    monkeypatch.setattr(services, "MAX_TURNS", 2)
    monkeypatch.setattr(services, "MAX_TRIES", 2)
    say(chat)
    last = say(chat, "again")
    with pytest.raises(ValidationError, match="at most 2 turns"):
        turn_send(chat=chat, user=alice, text="once more")
    first = last.answers.get()
    made = answer_again(chat=chat, answer=first.pk)
    assert (made.number, made.contestant) == (1, 0)
    Answer.objects.filter(pk=made.pk).update(state=AnswerState.FAILED)
    with pytest.raises(ValidationError, match="drawn 2 times"):
        answer_again(chat=chat, answer=first.pk)
    assert turn_send(chat=chat, user=alice, text="edited", edited=last.pk).number == 1


def test_each_contestants_tries_are_counted_apart(chat: Chat) -> None:
    Chat.objects.update(contestants=[{"source": SOURCE, "title": name} for name in ("a", "b")])
    first, second = say(chat).answers.order_by("contestant")
    chat.refresh_from_db()
    for expected in (1, 2):
        made = answer_again(chat=chat, answer=first.pk)
        assert (made.contestant, made.number) == (0, expected)
        Answer.objects.filter(pk=made.pk).update(state=AnswerState.DONE)
    assert answer_again(chat=chat, answer=second.pk).number == 1


def test_a_worker_is_asked_for_after_the_message_is_kept(
    chat: Chat, alice: User, asked: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        turn = turn_send(chat=chat, user=alice, text="Hello")
        assert asked == []
    assert asked == ["train"]
    Answer.objects.update(state=AnswerState.DONE)
    with django_capture_on_commit_callbacks(execute=True):
        answer_again(chat=chat, answer=turn.answers.get().pk)
    assert asked == ["train", "train"]


def test_stopping_is_of_one_chat_and_of_what_is_open(chat: Chat, project: Project, alice: User) -> None:
    other = Chat.objects.create(project=project, contestants=chat.contestants, created_by=alice)
    done = say(chat).answers.get()
    for each in (chat, other):
        each.refresh_from_db()
        turn_send(chat=each, user=alice, text="Hello")
    assert chat_stop(chat=chat) == 1
    done.refresh_from_db()
    assert (done.state, done.stop) == ("done", False)
    assert list(Answer.objects.filter(turn__chat=other).values_list("state", "stop")) == [("waiting", False)]
    stopped = Answer.objects.get(turn__chat=chat, state="stopped")
    assert stopped.ending == {"why": "stopped", "seconds": 0.0} and stopped.seq > done.seq


def test_what_is_saved_is_the_conversation_with_one_contestant(chat: Chat, alice: User) -> None:
    Chat.objects.update(
        contestants=[{"source": SOURCE, "title": name} for name in ("a", "b")],
        parameters={"seed": 3, "system": "Short."},
    )
    with pytest.raises(ValidationError, match="Nothing was answered yet"):
        chat.refresh_from_db()
        chat_save(chat=chat, user=alice, kind="row", name="talks")
    turn = say(chat)
    Answer.objects.filter(turn=turn, contestant=1).update(messages=[{"role": "assistant", "content": "Hey."}])
    chat.refresh_from_db()
    for number in (-1, 2):
        with pytest.raises(ValidationError, match="one of the chat's models"):
            chat_save(chat=chat, user=alice, kind="row", name="talks", contestant=number)
    saved = chat_save(chat=chat, user=alice, kind="row", name="talks", contestant=1)
    made = Dataset.objects.get()
    assert saved == ("row", "talks@1", reverse("dataset-detail", args=["joust", made.pk]))
    row = made.upload_path.read_text()
    assert '"content": "Hey."' in row and '"model": "b"' in row and '"content": "Short."' in row
    assert '"parameters": {"seed": 3' in row and made.created_by == alice
    saved = chat_save(chat=chat, user=alice, kind="case", name="hello", total=[0.0, 1.0])
    case = RewardCase.objects.get()
    assert saved == ("case", "hello", reverse("reward-list", args=["joust"]))
    assert (case.prompt_length, case.total, [message["content"] for message in case.messages]) == (
        2,
        [0.0, 1.0],
        ["Short.", "Hello", "Hi."],
    )
    turn_send(chat=chat, user=alice, text="More")
    with pytest.raises(ValidationError, match="still being written"):
        chat_save(chat=chat, user=alice, kind="row", name="talks")


def test_only_what_changed_is_read_again(chat: Chat) -> None:
    first = say(chat)
    chat.refresh_from_db()
    second = say(chat, "more")
    assert [turn.pk for turn in chat_since(chat).turns] == [first.pk, second.pk]  # type: ignore[attr-defined]
    later = chat_since(chat, after=first.seq)
    assert [turn.pk for turn in later.turns] == [second.pk]  # type: ignore[attr-defined]
    assert [answer.turn_id for answer in later.answers] == [second.pk]  # type: ignore[attr-defined]


def test_chats_are_of_the_project_the_one_used_last_first(chat: Chat, project: Project, elsewhere: Project) -> None:
    newer = Chat.objects.create(project=project, contestants=[])
    Chat.objects.create(project=elsewhere, contestants=[])
    assert list(chats_of(project)) == [newer, chat]
    Chat.objects.filter(pk=chat.pk).update(used_at=timezone.now() + timedelta(seconds=1))
    assert list(chats_of(project)) == [chat, newer]


def test_only_answers_that_have_not_begun_wait_and_those_before_them_are_counted(chat: Chat, alice: User) -> None:
    say(chat)
    chat.refresh_from_db()
    assert waits(chat) == {}
    turn = turn_send(chat=chat, user=alice, text="Hello")
    mine = turn.answers.get()
    for state, pool, seconds in (
        ("waiting", "train", -1),
        ("waiting", "train", 1),
        ("waiting", "endpoint", -1),
        ("answering", "train", -1),
    ):
        other = Chat.objects.create(project=chat.project, contestants=chat.contestants)
        asked_ = Answer.objects.create(
            turn=Turn.objects.create(chat=other, number=0), contestant=0, state=state, pool=pool
        )
        Answer.objects.filter(pk=asked_.pk).update(created_at=mine.created_at + timedelta(seconds=seconds))
    found = waits(chat)
    assert list(found) == [str(mine.pk)] and found[str(mine.pk)]["before"] == 1
    Answer.objects.filter(pk=mine.pk).update(partial="I")
    assert waits(chat) == {}


def test_only_an_editor_is_offered_to_write_and_to_delete(
    chat: Chat, project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    page, rows = reverse("chat-detail", args=[project.slug, chat.pk]), reverse("chat-list", args=[project.slug])
    new, delete = (
        reverse("chat-new", args=[project.slug]),
        reverse("chat-delete", args=[project.slug, chat.pk]),
    )
    for who, offers in ((bob, True), (rita, False)):
        assert (f'href="{new}"' in client_for(who).get(rows).content.decode()) is offers
        assert (delete in client_for(who).get(page).content.decode()) is offers
    assert client_for(rita).post(delete).status_code == 403 and Chat.objects.exists()
    client_for(bob).post(delete)
    assert not Chat.objects.exists()


@pytest.mark.parametrize(
    ("name", "there", "gone"), [("", False, False), ("bed", True, False), ("bed", False, True), ("", True, False)]
)
def test_an_environment_that_was_deleted_is_gone(name: str, there: bool, gone: bool) -> None:
    made = Chat(environment_name=name, environment_id=uuid.uuid4() if there else None)
    assert made.environment_gone is gone


def test_an_answer_waits_until_it_has_begun_or_ended(chat: Chat, alice: User) -> None:
    answer = turn_send(chat=chat, user=alice, text="Hello").answers.get()
    said = [{"role": "assistant", "content": "Hi."}]
    for values, waiting in (
        ({"state": "answering"}, True),
        ({"state": "answering", "messages": said}, False),
        ({"state": "answering", "messages": [], "partial": "H"}, False),
        ({"state": "stopped", "partial": ""}, False),
        ({"state": "waiting"}, True),
    ):
        Answer.objects.filter(pk=answer.pk).update(**values)
        assert bool(waits(chat)) is waiting, values


def test_only_an_answer_that_no_worker_has_moves_to_another_pool(chat: Chat, alice: User) -> None:
    answer = turn_send(chat=chat, user=alice, text="Hello").answers.get()
    other = turn_send(chat=Chat.objects.create(project=chat.project, contestants=chat.contestants), user=None, text="x")
    for values in ({"token": "t"}, {"token": "", "state": "answering"}):
        Answer.objects.filter(pk=answer.pk).update(**values)
        assert not answer_move(answer, "endpoint")
    Answer.objects.filter(pk=answer.pk).update(state="waiting")
    assert answer_move(answer, "endpoint", progress={"phase": "x"})
    answer.refresh_from_db()
    chat.refresh_from_db()
    assert (answer.pool, answer.progress, answer.seq) == ("endpoint", {"phase": "x"}, chat.seq)
    assert other.answers.get().pool == "train"


@pytest.mark.parametrize(
    ("over", "held", "nudged"),
    [
        ({}, 1, 1),
        ({"training_problem": "no driver"}, 0, 0),
        ({"closing": True}, 0, 0),
        ({"draining": True}, 0, 0),
        ({"run_waits": True}, 0, 1),
    ],
)
def test_a_worker_answers_chats_unless_something_else_needs_its_place(
    over: dict[str, Any], held: int, nudged: int, chat: Chat, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_send(chat=chat, user=alice, text="Hello")
    done: list[str] = []
    for name, value in (
        {"training_problem": "", "closing": False, "draining": False, "run_waits": False} | over
    ).items():
        monkeypatch.setattr(tasks, name, lambda *_pool, value=value: value)
    monkeypatch.setattr(tasks, "Desk", lambda pool: SimpleNamespace(run=lambda: done.append(f"held {pool}")))
    monkeypatch.setattr(tasks, "nudge_next", lambda pool: done.append(f"next {pool}"))
    tasks.hold("train")
    assert done == ["held train"] * held + ["next train"] * nudged


@pytest.mark.parametrize("values", [{"pool": "endpoint"}, {"token": "t"}, {"state": "done"}])
def test_a_worker_is_not_held_where_nothing_waits_for_it(
    values: dict[str, str], chat: Chat, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_send(chat=chat, user=alice, text="Hello")
    Answer.objects.update(**values)
    for name, value in {"training_problem": "", "closing": False, "draining": False, "run_waits": False}.items():
        monkeypatch.setattr(tasks, name, lambda *_pool, value=value: value)
    monkeypatch.setattr(tasks, "nudge_next", lambda pool: None)
    monkeypatch.setattr(tasks, "Desk", lambda pool: pytest.fail("nothing waits"))
    tasks.hold("train")


def test_a_worker_has_two_processes_and_ends_the_one_that_was_used_longest_ago() -> None:
    desk: Any = Desk(TRAIN)
    ended: list[str] = []
    a, b, c = (type(name, (), {"end": lambda _self, name=name: ended.append(name)})() for name in "abc")
    assert holder.LOADED_MAX == 2
    desk._children, desk._titles = {"a": a, "b": b}, {"a": "A", "b": "B"}
    desk._live = {"1": SimpleNamespace(child=a)}
    assert desk._free_slot() and (ended, desk._children, desk._titles) == (["b"], {"a": a}, {"a": "A"})
    assert desk._free_slot() and ended == ["b"], "there is room"
    desk._children["c"], desk._titles["c"] = c, "C"
    desk._live["2"] = SimpleNamespace(child=c)
    assert not desk._free_slot() and ended == ["b"], "both answer"
    desk._live.clear()
    assert desk._free_slot() and ended == ["b", "a"]
