"""Notifications and channels over the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field

from webapp.api.answers import people as people_answers
from webapp.api.base import caller
from webapp.api.listing import Dated, page_of
from webapp.api.schemas import Body
from webapp.common.answers import Extended, Gone, Items, Page
from webapp.common.pages import probe_allowed
from webapp.common.text import in_words
from webapp.people.notifications import channels, selectors
from webapp.people.notifications import events as events_module
from webapp.people.notifications.models import Channel, Notification
from webapp.people.notifications.words import path_of, words_of
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act, ask

router = Router(tags=["notifications"])


class ReadIn(Body):
    """What to mark as read: notifications by id, all of one project, or (without either) all."""

    ids: list[int] | None = Field(default=None, max_length=1000)
    project: str = Field(default="", max_length=80)


class ChannelIn(Body):
    """A new channel. `url` and `secret` are never given back."""

    name: str = Field(min_length=1, max_length=80)
    kind: str = Field(max_length=10, description="slack, feishu, dingtalk, discord or json")
    url: str = Field(min_length=1, max_length=channels.MAX_ADDRESS_CHARS)
    secret: str = Field(default="", max_length=channels.MAX_SECRET_CHARS)
    events: list[str] = Field(min_length=1, max_length=20)
    language: str = Field(default="", max_length=10)


class ChannelPatch(Body):
    """What may be changed; what is left out stays. `secret` replaces the secret, and an empty one removes it."""

    name: str = Field(default_factory=str, min_length=1, max_length=80)
    kind: str = Field(default="", max_length=10, description="slack, feishu, dingtalk, discord or json")
    url: str = Field(default="", max_length=channels.MAX_ADDRESS_CHARS, description="the whole one; empty: it stays")
    secret: str | None = Field(default=None, max_length=channels.MAX_SECRET_CHARS)
    events: list[str] = Field(default_factory=list, min_length=1, max_length=20)
    language: str = Field(default="", max_length=10)


def _in_words(item: Notification) -> Extended:
    """A notification in the caller's language."""
    words = words_of(item.event)
    return Extended(item, title=words.title, text="\n".join(words.lines), url=path_of(item.event))


@router.get("/notifications", response=Page[people_answers.Notification])
def notifications(request: HttpRequest, asked: Query[Dated], project: str = "", unread: bool = False) -> dict[str, Any]:
    """Your notifications, newest first; of one project or unread alone on demand."""
    rows = selectors.notifications_of(caller(request), slug=project, unread=unread)
    return page_of(request, rows, asked, _in_words, at="event__created_at")


@router.post("/notifications/read", response=people_answers.Read)
def notifications_read(request: HttpRequest, body: ReadIn) -> dict[str, int]:
    """Mark notifications as read; `read` is how many were not."""
    rows = selectors.notifications_of(caller(request), slug=body.project)
    if body.ids is not None:
        rows = rows.filter(pk__in=[number for number in body.ids if 0 < number < 1 << 62])
    return {"read": events_module.notifications_read(rows)}


@router.get("/projects/{slug:slug}/channels", response=Items[people_answers.Channel])
def channel_list(request: HttpRequest, slug: str) -> dict[str, Any]:
    """Where a project's events are posted."""
    project = project_for(caller(request), slug)
    return {"items": channels.channels_of(project)}


@router.post("/projects/{slug:slug}/channels", response={201: people_answers.Channel})
def channel_new(request: HttpRequest, slug: str, body: ChannelIn) -> Status[Channel]:
    """Add a channel (owners)."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    ask(request, Act.CHANNEL)
    made = channels.channel_create(project=project, user=caller(request), **body.model_dump())
    return Status(201, made)


def _channel_for(request: HttpRequest, channel_id: UUID) -> Channel:
    return object_for(
        caller(request), Channel, channel_id, need=Role.OWNER, within=Channel.objects.select_related("project")
    )


@router.patch("/channels/{uuid:channel_id}", response=people_answers.Channel)
def channel_patch(request: HttpRequest, channel_id: UUID, body: ChannelPatch) -> Channel:
    """Change what is given (owners). With an address at another server the secret must be given too, if it has one."""
    channel = _channel_for(request, channel_id)
    if body.url or body.secret is not None:
        ask(request, Act.CHANNEL)
    return channels.channel_change(channel=channel, **body.model_dump(exclude_unset=True))


@router.delete("/channels/{uuid:channel_id}", response=Gone)
def channel_delete(request: HttpRequest, channel_id: UUID) -> dict[str, bool]:
    """Delete a channel and its address (owners)."""
    channels.channel_delete(_channel_for(request, channel_id))
    return {"deleted": True}


@router.post("/channels/{uuid:channel_id}/test", response=people_answers.Tested)
def channel_test(request: HttpRequest, channel_id: UUID) -> dict[str, Any]:
    """Post a test message now; `text` is the result (owners)."""
    channel = _channel_for(request, channel_id)
    if not probe_allowed(request.user):
        raise HttpError(429, _("Too many tests in one minute; wait a moment."))
    verdict = channels.channel_test(channel)
    return {"ok": verdict.ok, "text": in_words(verdict.told)}


@router.post("/channels/{uuid:channel_id}/resume", response=people_answers.Resumed)
def channel_resume(request: HttpRequest, channel_id: UUID) -> dict[str, int]:
    """Post to a paused channel again; `sent` is how many messages that were held follow (owners)."""
    return {"sent": channels.channel_resume(_channel_for(request, channel_id))}
