"""Answers about projects, people and their notifications."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from webapp.api.answers.base import Object


class Project(BaseModel):
    """A project."""

    slug: str = Field(description="its name in addresses")
    name: str
    team: str


class ProjectWithRole(Project):
    """A project and what you may do in it."""

    role: str = Field(description="viewer, editor or owner; with a token at most the token's")


class Member(BaseModel):
    """A member of the project's team."""

    username: str
    role: str = Field(description="viewer, editor or owner")


class HubToken(BaseModel):
    """A project's Hugging Face token, without the token."""

    since: datetime | None = Field(description="when it was set; null: there is none")


class TokenAbout(BaseModel):
    """What a token may do."""

    name: str
    role: str
    scope: str | None = Field(description="metrics or ingest: it does only that; null: all of its role")
    project: str | None = Field(description="slug of the only project; null: all of yours")
    expires_at: datetime | None


class MachineToken(TokenAbout):
    """A token of a machine account."""

    id: UUID
    hint: str = Field(description="how its text begins")
    created_at: datetime
    used_at: datetime | None = Field(description="when it was used last, to the minute; null: never")
    used_from: str = Field(description="IP address of that; empty where none is known")


class ReachingToken(MachineToken):
    """A person's token that opens a project."""

    username: str = Field(description="whose it is")


class Machine(BaseModel):
    """A machine account of a team."""

    id: UUID
    name: str
    role: str = Field(description="viewer or editor")
    scope: str | None = Field(description="metrics or ingest: it does only that; null: all of its role")
    project: str | None = Field(description="slug of the only project; null: all of the team's")
    created_by: str | None = Field(description="null: they are gone")
    created_at: datetime
    tokens: list[MachineToken]


class MachineTokenMade(BaseModel):
    """A token that was made."""

    token: MachineToken
    text: str = Field(description="the token itself, in this answer alone")


class MachineMade(MachineTokenMade):
    """A machine account that was made, with its first token."""

    id: UUID
    name: str


class Me(BaseModel):
    """Who you are."""

    username: str
    token: TokenAbout | None = Field(description="null in a browser")


class Notification(BaseModel):
    """Something that happened, in your language."""

    id: int
    event: str
    project: str
    title: str
    text: str
    url: str
    at: datetime
    read_at: datetime | None


class Read(BaseModel):
    """How many were not read before."""

    read: int


class Channel(BaseModel):
    """Where a project's events are posted, without address and secret."""

    id: UUID
    name: str
    kind: str = Field(description="slack, feishu, dingtalk, discord or json")
    host: str
    signed: bool
    events: list[str]
    language: str
    failures: int = Field(description="messages that failed in a row")
    paused_at: datetime | None


class Tested(BaseModel):
    """The result of a test message."""

    ok: bool
    text: str


class Resumed(BaseModel):
    """How many held messages are sent now."""

    sent: int


# --- Chats ----------------------------------------------------------------------------------------------------------
# Answers about chats.


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
