"""Answers about chats."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from webapp.api.answers.base import Object


class ChatLine(BaseModel):
    """A chat of the list."""

    id: UUID
    title: str
    contestants: list[str]
    environment: str
    created_by: str
    created_at: datetime
    used_at: datetime


class ChatContestant(BaseModel):
    """Who answers."""

    title: str
    source: str


class ChatTurn(BaseModel):
    """A turn of a person."""

    id: UUID
    number: int
    text: str
    by: str
    replaced: bool


class ChatAnswer(BaseModel):
    """An answer of a contestant, complete or being written."""

    id: UUID
    turn: UUID
    contestant: int
    number: int
    state: str
    phase: str
    messages: list[Object]
    partial: str
    ending: Object | None = Field(description="why it ended, after how many seconds")
    error: Object | None
    parameters: Object


class Chat(BaseModel):
    """A chat with all its messages."""

    id: UUID
    title: str
    contestants: list[ChatContestant]
    environment: str
    environment_gone: bool
    parameters: Object
    created_by: str
    created_at: datetime
    used_at: datetime
    seq: int
    turns: list[ChatTurn]
    answers: list[ChatAnswer]


class ChatWhole(Chat):
    """A chat, and why answers that have not begun are waiting."""

    waits: dict[str, Object] = Field(description="by the answer's id: why, seconds, before")


class ChatSaid(ChatTurn):
    """Your message and the answers that follow."""

    answers: list[ChatAnswer]


class ChatStopped(BaseModel):
    """How many answers were stopped."""

    stopped: int


class ChatSaved(BaseModel):
    """The object made from a chat, and its address."""

    kind: str
    label: str
    url: str
