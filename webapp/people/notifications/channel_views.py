"""The page of a project's channels: members see where events go, owners decide it."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from webapp.common.pages import add_errors, probe_allowed
from webapp.common.text import in_words
from webapp.people.notifications import channels
from webapp.people.notifications.delivering import PAUSE_AFTER
from webapp.people.notifications.forms import ChannelForm
from webapp.people.notifications.models import Channel, Kind
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask


@login_required
@require_http_methods(["GET", "POST"])
def channel_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The channels, and a new one."""
    project = project_for(request.user, slug, need=Role.OWNER if request.method == "POST" else Role.VIEWER)
    if request.method == "GET":
        return _channels_page(request, project)
    form = ChannelForm(request.POST)
    if form.is_valid():
        ask(request, Act.CHANNEL)
        try:
            made = channels.channel_create(project=project, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is added. Send a test to see whether it works.") % {"name": made})
            return redirect("channel-list", slug=slug)
    return _channels_page(request, project, status=422, form=form)


def _channels_page(request: HttpRequest, project: Project, *, status: int = 200, **more: Any) -> HttpResponse:
    last = channels.last_deliveries(project)
    context = {
        "project": project,
        "lines": [_channel_line(channel, last) for channel in channels.channels_of(project)],
        "is_owner": getattr(project, "role", None) == Role.OWNER,
        "form": ChannelForm(),
        "pause_after": PAUSE_AFTER,
    }
    return render(request, "notifications/channels.html", context | more, status=status)


def _channel_line(channel: Channel, last: dict[UUID, Any]) -> dict[str, Any]:
    delivery = last.get(channel.pk)
    kinds = [str(Kind(kind).label) for kind in channel.events if kind in Kind.values]
    told = in_words(delivery.told) if delivery else ""
    return {"channel": channel, "kinds": kinds, "last": delivery, "told": told}


def _own_channel(request: HttpRequest, slug: str, pk: UUID) -> tuple[Project, Channel]:
    project = project_for(request.user, slug, need=Role.OWNER)
    channel = channels.channels_of(project).filter(pk=pk).first()
    if channel is None:
        raise Http404
    return project, channel


@login_required
@require_http_methods(["GET", "POST"])
def channel_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change a channel; its address and secret stay where nothing is entered."""
    project, channel = _own_channel(request, slug, pk)
    form = ChannelForm(request.POST if request.method == "POST" else None, channel=channel)
    if form.is_valid():
        values = form.values()
        if values["url"] or values["secret"] is not None:
            ask(request, Act.CHANNEL)
        try:
            channels.channel_change(channel=channel, **values)
        except ValidationError as exc:
            add_errors(form, exc)
            channel.refresh_from_db()  # the page shows the stored values, not the refused ones
        else:
            told = _("%(name)s is changed. Send a test to see whether it works.")
            messages.success(request, told % {"name": channel})
            return redirect("channel-list", slug=slug)
    context = {"project": project, "channel": channel, "form": form}
    return render(request, "notifications/channel_edit.html", context, status=422 if form.is_bound else 200)


@login_required
@require_POST
def channel_test(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Post a test message now; this answer shows what the server said."""
    project, channel = _own_channel(request, slug, pk)
    if not probe_allowed(request.user):
        return HttpResponse(_("Too many tests in one minute; wait a moment."), status=429)
    verdict = channels.channel_test(channel)
    tried = {"channel": channel, "ok": verdict.ok, "told": in_words(verdict.told)}
    return _channels_page(request, project, tried=tried)


@login_required
@require_POST
def channel_resume(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Post to a paused channel again."""
    _project, channel = _own_channel(request, slug, pk)
    count = channels.channel_resume(channel)
    told = ngettext(
        "%(name)s is used again; %(n)d message that was held follows.",
        "%(name)s is used again; %(n)d messages that were held follow.",
        count,
    )
    messages.success(request, told % {"name": channel.name, "n": count})
    return redirect("channel-list", slug=slug)


@login_required
@require_POST
def channel_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a channel."""
    _project, channel = _own_channel(request, slug, pk)
    channels.channel_delete(channel)
    messages.success(request, _("%(name)s is deleted; nothing is posted there any more.") % {"name": channel.name})
    return redirect("channel-list", slug=slug)
