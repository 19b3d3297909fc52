"""Saving a conversation as a row of a dataset, or as a test case of rewards."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils.translation import gettext as _

from envs.wire import Message
from webapp.chat.conversation import conversation
from webapp.chat.models import Answer, Chat
from webapp.datasets.appending import dataset_append
from webapp.people.teams.models import User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase


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
