"""The shapes of chats, as pages, frames and the API show them (docs/chat.md)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from webapp.common.answers import Answer, Object, Time, UsernameOrEmpty


def _without_system(parameters: Object) -> Object:
    return {name: value for name, value in parameters.items() if name != "system"}


class ChatLine(Answer):
    """A chat of the list."""

    id: UUID
    title: str
    contestants: list[str] = Field(validation_alias="titles")
    environment: str = Field(validation_alias="environment_name")
    created_by: UsernameOrEmpty
    created_at: Time
    used_at: Time


class ChatContestant(Answer):
    """A contestant that answers."""

    title: str
    source: str


class ChatTurn(Answer):
    """A turn of a person."""

    id: UUID
    number: int
    text: str
    by: UsernameOrEmpty = Field(validation_alias="said_by")
    replaced: bool


class ChatAnswer(Answer):
    """An answer of a contestant, complete or being written."""

    id: UUID
    turn: UUID = Field(validation_alias="turn_id")
    contestant: int
    number: int
    state: str
    phase: str
    messages: list[Object]
    partial: str
    ending: Object | None = Field(description="why it ended, after how many seconds")
    error: Object | None
    parameters: Annotated[Object, AfterValidator(_without_system)]


class Chat(Answer):
    """A chat with all its messages."""

    id: UUID
    title: str
    contestants: list[ChatContestant]
    environment: str = Field(validation_alias="environment_name")
    environment_gone: bool
    parameters: Object
    created_by: UsernameOrEmpty
    created_at: Time
    used_at: Time
    seq: int
    turns: list[ChatTurn]
    answers: list[ChatAnswer]


class ChatWhole(Chat):
    """A chat, and why answers that have not begun are waiting."""

    waits: dict[str, Object] = Field(description="by the answer's id: why, seconds, before")


class ChatSaid(ChatTurn):
    """Your message and the answers that follow."""

    answers: list[ChatAnswer]


class ChatStopped(Answer):
    """How many answers were stopped."""

    stopped: int


class ChatSaved(Answer):
    """The object made from a chat, and its address."""

    kind: str
    label: str
    url: str
