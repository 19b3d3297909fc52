"""Reading chats: for pages, sockets and the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.timezone import now

from webapp.chat.holder import NO_ROOM, QUEUED_FOR, holders
from webapp.chat.models import Answer, AnswerState, Chat, Turn
from webapp.common.answers import Extended
from webapp.people.teams.models import Project
from webapp.runs.records.queue import Queue, Waiting, read_queue


def chats_of(project: Project) -> QuerySet[Chat]:
    """The project's chats, the one used last first."""
    return Chat.objects.filter(project=project).select_related("project", "created_by").order_by("-used_at")


def chat_read(chat_id: UUID) -> Chat | None:
    """A chat by its id, for a socket that was let in."""
    return Chat.objects.select_related("project").filter(pk=chat_id).first()


def chat_since(chat: Chat, after: int = -1) -> Extended:
    """A chat with all of its turns and answers, or only those that changed after ``after``."""
    turns = Turn.objects.filter(chat=chat, seq__gt=after).select_related("said_by").order_by("number", "created_at")
    answers = Answer.objects.filter(turn__chat=chat, seq__gt=after).order_by("created_at")
    return Extended(chat, turns=list(turns), answers=list(answers))


def waits(chat: Chat) -> dict[str, dict[str, Any]]:
    """For each answer of a chat that has not begun: for how long, its place in the queue, and the reason."""
    mine = Answer.objects.filter(turn__chat=chat, state__in=Answer.OPEN, messages=[], partial="").order_by("created_at")
    found = list(mine)
    if not found:
        return {}
    at, queue = now(), read_queue()
    why = {pool: _wait_reason(chat, pool, queue) for pool in {answer.pool for answer in found}}
    return {str(one.pk): {**_queue_place(one, at), **_why(one, why)} for one in found}


LOADING: dict[str, Any] = {"why": "loading"}


def _why(answer: Answer, why: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if answer.token:
        return LOADING
    return why[answer.pool] | ({"no_room": True} if answer.progress == NO_ROOM else {})


def _queue_place(answer: Answer, at: datetime) -> dict[str, Any]:
    before = Answer.objects.filter(pool=answer.pool, state=AnswerState.WAITING, created_at__lt=answer.created_at)
    return {"seconds": max(0.0, (at - answer.created_at).total_seconds()), "before": before.count()}


def _wait_reason(chat: Chat, pool: str, queue: Queue) -> dict[str, Any]:
    """Why an answer that no worker has taken is waiting."""
    found = queue.pool(pool)
    if not found.places:
        return {"why": "no_worker"}
    if found.full and (first := found.next_free) is not None and first.run is not None:
        return _wait_for_run(chat, first.run)
    waiting = next((run for run in found.in_order if run.queued), None)
    if waiting is not None and waiting.waited_s > QUEUED_FOR.total_seconds():
        return _wait_for_run(chat, waiting)
    return {"why": "busy" if holders(pool).exists() else "starting"}


def _wait_for_run(chat: Chat, run: Waiting) -> dict[str, Any]:
    """A run that has the worker, or gets it next. One of another project has no name here."""
    own = run.project_id == chat.project_id
    return {
        "why": "run",
        "run": run.name if own else "",
        "run_id": str(run.pk) if own else "",
        "left": run.left.seconds if run.left is not None else None,
    }
