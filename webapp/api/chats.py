"""Chats over the API. The page does the same through these addresses."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import Searched, page_of
from webapp.api.schemas import Body
from webapp.chat import answers as shapes
from webapp.chat import services
from webapp.chat.models import Answer, Chat
from webapp.chat.selectors import chat_since, chats_of, waits
from webapp.common.answers import Deleted, Extended, Page
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role

router = Router(tags=["chats"])
Range = list[float]


class ChatContestantIn(Body):
    """Whom to talk with: `model:<name>`, `run:<name>`, `checkpoint:<id>`, `endpoint:<name>`, or an id of Hugging
    Face."""

    source: str = Field(min_length=1, max_length=300)


class ChatIn(Body):
    """A new chat with one contestant or two. `environment` is a name; `parameters` has `temperature`, `max_tokens`,
    `seed` and `system`."""

    contestants: list[ChatContestantIn] = Field(min_length=1, max_length=2)
    environment: str = Field(default="", max_length=80)
    parameters: dict[str, Any] = Field(default_factory=dict)


class MessageIn(Body):
    """A message to send. `edited` is the turn that it replaces, with all that came after."""

    text: str = Field(default="", max_length=2 * services.MAX_TEXT_CHARS)
    parameters: dict[str, Any] = Field(default_factory=dict)
    edited: UUID | None = None


class AgainIn(Body):
    """The answer to draw again."""

    answer: UUID
    parameters: dict[str, Any] = Field(default_factory=dict)


class SaveIn(Body):
    """What to keep: a row of the dataset `name`, or a test case of that name with the rewards that it should get."""

    kind: Literal["row", "case"]
    name: str = Field(max_length=200)
    contestant: int = Field(default=0, ge=0, le=1)
    expected: dict[str, Range] = Field(default_factory=dict, max_length=50)
    total: Range | None = Field(default=None, min_length=2, max_length=2)


def _chat_for(request: HttpRequest, chat_id: UUID, need: Role = Role.EDITOR) -> Chat:
    within = Chat.objects.select_related("project", "created_by", "environment")
    return object_for(caller(request), Chat, chat_id, need=need, within=within)


@router.get("/projects/{slug:slug}/chats", response=Page[shapes.ChatLine])
def chats_list(request: HttpRequest, slug: str, asked: Query[Searched]) -> dict[str, Any]:
    """The project's chats, the one used last first."""
    return page_of(request, chats_of(project_for(caller(request), slug)), asked, text=("title",))


@router.post("/projects/{slug:slug}/chats", response={201: shapes.Chat})
@once
def chat_add(request: HttpRequest, slug: str, body: ChatIn) -> Status[Extended]:
    """Start a chat."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    chat = services.chat_create(
        project=project,
        user=caller(request),
        contestants=[one.model_dump() for one in body.contestants],
        environment=body.environment,
        parameters=body.parameters,
    )
    return Status(201, chat_since(chat))


@router.get("/chats/{uuid:chat_id}", response=shapes.ChatWhole)
def chat_get(request: HttpRequest, chat_id: UUID) -> Extended:
    """A chat with all its messages; `waits` says why answers that have not begun are waiting."""
    chat = _chat_for(request, chat_id, Role.VIEWER)
    return Extended(chat_since(chat), waits=waits(chat))


@router.delete("/chats/{uuid:chat_id}", response=Deleted)
def chat_remove(request: HttpRequest, chat_id: UUID) -> dict[str, str]:
    """Delete a chat with all its messages."""
    chat = _chat_for(request, chat_id)
    services.chat_delete(chat=chat)
    return {"deleted": str(chat)}


@router.post("/chats/{uuid:chat_id}/messages", response={202: shapes.ChatSaid})
@once
def chat_message(request: HttpRequest, chat_id: UUID, body: MessageIn) -> Status[Extended]:
    """Send a message. It is stored before this answers; read the answer with `GET`, or over the socket."""
    turn = services.turn_send(
        chat=_chat_for(request, chat_id),
        user=caller(request),
        text=body.text,
        parameters=body.parameters,
        edited=body.edited,
    )
    return Status(202, Extended(turn, answers=list(turn.answers.all())))


@router.post("/chats/{uuid:chat_id}/again", response={202: shapes.ChatAnswer})
@once
def chat_again(request: HttpRequest, chat_id: UUID, body: AgainIn) -> Status[Answer]:
    """Draw an answer to the last message once more, with the next seed."""
    made = services.answer_again(chat=_chat_for(request, chat_id), answer=body.answer, parameters=body.parameters)
    return Status(202, made)


@router.post("/chats/{uuid:chat_id}/stop", response=shapes.ChatStopped)
def chat_halt(request: HttpRequest, chat_id: UUID) -> dict[str, Any]:
    """Stop the open answers; their text so far stays."""
    return {"stopped": services.chat_stop(chat=_chat_for(request, chat_id))}


@router.post("/chats/{uuid:chat_id}/save", response={201: shapes.ChatSaved})
@once
def chat_keep(request: HttpRequest, chat_id: UUID, body: SaveIn) -> Status[services.Saved]:
    """Keep the conversation as a row of a dataset or as a test case of rewards."""
    saved = services.chat_save(chat=_chat_for(request, chat_id), user=caller(request), **body.model_dump())
    return Status(201, saved)
