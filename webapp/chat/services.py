"""Writing chats, for people, and saving conversations as rows of datasets or as test cases. ``holder`` writes the
answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext as _

from envs.wire import Message
from training.config import name_in
from webapp.chat.conversation import MOST, contestant_of, conversation, parameters_of, pool_of, turns_of
from webapp.chat.holder import hint, holders, seq_take
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.common.text import clean_text
from webapp.datasets.versions import dataset_append
from webapp.environments.models import Environment
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase

logger = logging.getLogger(__name__)
MAX_TEXT_CHARS = 200_000
MAX_TURNS = 200
MAX_TRIES = 50
MAX_CHATS = 2_000
TITLE_CHARS = 80


def chat_create(
    *,
    project: Project,
    user: User | None,
    contestants: list[dict[str, Any]],
    environment: str = "",
    parameters: dict[str, Any] | None = None,
    first: str = "",
) -> Chat:
    """A chat, with ``first`` as its first message where there is one. ``environment`` is a name of the project's.

    Raises ``ValidationError`` by field.
    """
    if not 1 <= len(contestants) <= MOST:
        raise ValidationError({"contestants": _("Choose one model, or two.")})
    found = [contestant_of(project, values).model_dump() for values in contestants]
    given = parameters_of(parameters or {}).model_dump()
    place = None
    if environment:
        place = Environment.objects.filter(project=project, name=name_in("environment", environment)).first()
        if place is None:
            raise ValidationError({"environment": _("This environment is not in this project.")})
    if Chat.objects.filter(project=project).count() >= MAX_CHATS:
        raise ValidationError(_("This project has reached its limit of chats. Delete some."))
    with transaction.atomic():
        chat = Chat.objects.create(
            project=project,
            contestants=found,
            environment=place,
            environment_name=place.name if place else "",
            parameters=given,
            created_by=user,
        )
        audit(AuditAction.CHAT_ADDED, chat, by=user, subject=", ".join(one["title"] for one in found))
        if first.strip():
            turn_send(chat=chat, user=user, text=first)
    return chat


def turn_send(
    *, chat: Chat, user: User | None, text: str, parameters: dict[str, Any] | None = None, edited: UUID | None = None
) -> Turn:
    """Add a person's turn; each contestant is to answer. ``edited`` names the turn that this one replaces, with all
    after it.

    Raises ``ValidationError`` with a sentence; its code is ``conflict`` where an answer is still being written.
    """
    text = clean_text(text.strip())
    if len(text) > MAX_TEXT_CHARS:
        sentence = _("This message has %(n)s characters; at most %(most)s fit.")
        raise ValidationError({"text": sentence % {"n": f"{len(text):,}", "most": f"{MAX_TEXT_CHARS:,}"}})
    given = parameters_of({**chat.parameters, **(parameters or {})}).model_dump()
    with transaction.atomic():
        seq = _lock_idle_chat(chat)
        turns = turns_of(chat)
        number = _place_of(turns, edited) if edited is not None else len(turns)
        if not text and (number or not chat.environment_name):
            raise ValidationError({"text": _("Write a message.")})
        if number >= MAX_TURNS:
            raise ValidationError(_("A chat has at most %(n)s turns. Start another one.") % {"n": MAX_TURNS})
        replaced = [turn.pk for turn in turns[number:]]
        Turn.objects.filter(pk__in=replaced).update(replaced_at=Now(), seq=seq)
        turn = Turn.objects.create(chat=chat, number=number, text=text, said_by=user, seq=seq)
        pools = [pool_of(chat.project, one["source"]) for one in chat.contestants]
        for place, pool in enumerate(pools):
            Answer.objects.create(turn=turn, contestant=place, pool=pool, parameters=given, seq=seq)
        columns: dict[str, Any] = {"used_at": Now(), "parameters": given}
        if number == 0:
            columns["title"] = " ".join(text.split())[:TITLE_CHARS]
        Chat.objects.filter(pk=chat.pk).update(**columns)
        _ask_workers(*pools)
    return turn


def answer_again(*, chat: Chat, answer: UUID, parameters: dict[str, Any] | None = None) -> Answer:
    """Draw an answer of the last turn once more, with the next seed. The earlier one stays. Raises
    ``ValidationError``."""
    given = parameters_of({**chat.parameters, **(parameters or {})}).model_dump()
    with transaction.atomic():
        seq = _lock_idle_chat(chat)
        turns = turns_of(chat)
        before = next((one for one in turns[-1].answers.all() if one.pk == answer), None) if turns else None
        if before is None:
            raise ValidationError(_("Only an answer to the last message can be drawn again."))
        number = 1 + max(one.number for one in turns[-1].answers.all() if one.contestant == before.contestant)
        if number >= MAX_TRIES:
            raise ValidationError(_("An answer can be drawn %(n)s times. Change the message.") % {"n": MAX_TRIES})
        pool = pool_of(chat.project, chat.contestants[before.contestant]["source"])
        again = {"contestant": before.contestant, "pool": pool, "number": number}
        made = Answer.objects.create(turn=turns[-1], **again, parameters=given, seq=seq)
        Chat.objects.filter(pk=chat.pk).update(used_at=Now(), parameters=given)
        _ask_workers(made.pool)
    return made


def chat_stop(*, chat: Chat) -> int:
    """Stop answers that are being written or waiting. Returns how many. Stopping twice changes nothing."""
    with transaction.atomic():
        seq = seq_take(chat.pk)
        open_ = Answer.objects.filter(turn__chat=chat, state__in=Answer.OPEN, stop=False).order_by()
        waiting = open_.filter(state=AnswerState.WAITING, token="").update(
            state=AnswerState.STOPPED, stop=True, ending={"why": "stopped", "seconds": 0.0}, seq=seq
        )
        return waiting + open_.update(stop=True)


def chat_delete(*, chat: Chat) -> None:
    """Delete a chat with all its messages. Answers that are being written are given up."""
    with transaction.atomic():
        audit(AuditAction.CHAT_DELETED, chat)
        chat.delete()


def _lock_idle_chat(chat: Chat) -> int:
    """Lock the chat for a change, and take its number. Raises ``ValidationError`` while an answer is open."""
    seq = seq_take(chat.pk)
    if Answer.objects.filter(turn__chat=chat, turn__replaced_at=None, state__in=Answer.OPEN).exists():
        sentence = _("An answer is still being written. Stop it, or wait for it.")
        raise ValidationError(sentence, code="conflict")
    return seq


def _place_of(turns: list[Turn], edited: UUID) -> int:
    place = next((turn.number for turn in turns if turn.pk == edited), None)
    if place is None:
        raise ValidationError(_("This message was edited already. Reload the page."), code="conflict")
    return place


def _ask_workers(*pools: str) -> None:
    """Ask for a worker of each pool after the transaction, unless one answers chats already."""
    for pool in set(pools):
        if not holders(pool).exists():
            transaction.on_commit(partial(hint, pool), robust=True)


# --- Saving ---------------------------------------------------------------------------------------------------------
# Saving a conversation as a row of a dataset, or as a test case of rewards.


class Saved(NamedTuple):
    """The saved object, and its address."""

    kind: str
    label: str
    url: str


def chat_save(
    *,
    chat: Chat,
    user: User | None,
    kind: Literal["row", "case"],
    name: str,
    contestant: int = 0,
    expected: dict[str, list[float]] | None = None,
    total: list[float] | None = None,
) -> Saved:
    """Keep the conversation with one contestant under a name. Raises ``ValidationError``."""
    if not 0 <= contestant < len(chat.contestants):
        raise ValidationError(_("Choose one of the chat's models."))
    if Answer.objects.filter(turn__chat=chat, turn__replaced_at=None, state__in=Answer.OPEN).exists():
        raise ValidationError(_("An answer is still being written. Stop it, or wait for it."), code="conflict")
    messages = conversation(chat, contestant, system=str(chat.parameters.get("system", "")))
    if not any(message.role == "assistant" for message in messages):
        raise ValidationError(_("Nothing was answered yet."))
    if kind == "row":
        return _save_row(chat, user, name, messages, contestant)
    return _save_case(chat, user, name, messages, expected or {}, total)


def _messages_json(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True) for message in messages]


def _save_row(chat: Chat, user: User | None, name: str, messages: list[Message], contestant: int) -> Saved:
    source = {
        "source": "chat",
        "chat": str(chat.pk),
        "model": chat.contestants[contestant]["title"],
        "environment": chat.environment_name,
        "parameters": {key: value for key, value in chat.parameters.items() if key != "system"},
    }
    row = {"messages": _messages_json(messages), "provenance": source}
    made = dataset_append(project=chat.project, user=user, name=name, rows=[row], file_name="chat.jsonl")
    return Saved("row", str(made), reverse("dataset-detail", args=[chat.project.slug, made.pk]))


def _save_case(
    chat: Chat,
    user: User | None,
    name: str,
    messages: list[Message],
    expected: dict[str, list[float]],
    total: list[float] | None,
) -> Saved:
    prompt = next(at for at, message in enumerate(messages) if message.role == "assistant")
    case = RewardCase(
        name=name,
        environment=chat.environment_name,
        prompt_length=prompt,
        messages=_messages_json(messages),
        row={},
        env_reward=None,
        env_parts={},
        truncated=False,
        expected=expected,
        total=total,
    )
    made = reward_case_create(case=case, project=chat.project, user=user)
    return Saved("case", made.name, reverse("reward-list", args=[chat.project.slug]))
