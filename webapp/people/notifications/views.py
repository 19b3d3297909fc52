"""A person's notifications: the bell, the list, and the settings."""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, page_number, probe_allowed
from webapp.common.text import in_words
from webapp.people.notifications import channels, selectors
from webapp.people.notifications import events as events_module
from webapp.people.notifications.channels import CHANGED, MAX_ADDRESS_CHARS, MAX_SECRET_CHARS
from webapp.people.notifications.delivering import PAUSE_AFTER, has_server
from webapp.people.notifications.models import Channel, ChannelKind, Kind, Notification, Reader, ReaderState, Scope
from webapp.people.notifications.selectors import Choice
from webapp.people.teams.access import own, project_for, projects_of
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask

# --- Forms ----------------------------------------------------------------------------------------------------------
# Forms of a person's settings and of a project's channels.

USUAL = [Kind.RUN_SUCCEEDED, Kind.RUN_FAILED, Kind.RUN_PAUSED, Kind.EVALUATION_READY]
SCOPE_LABEL, MAIL_LABEL = gettext_lazy("Runs"), gettext_lazy("Also by mail")


class ProjectFields(NamedTuple):
    """The two fields of one project."""

    project: Project
    scope: forms.BoundField
    mail: forms.BoundField


class SettingsForm(forms.Form):
    """What a person is notified of: kinds of events everywhere, and for each project whose runs, and whether by
    mail."""

    told = forms.MultipleChoiceField(
        label=gettext_lazy("Events"), choices=Kind.choices, widget=forms.CheckboxSelectMultiple, required=False
    )
    language = forms.ChoiceField(
        label=gettext_lazy("Language of your mail"),
        choices=settings.LANGUAGES,
        help_text=gettext_lazy("Pages keep the language that you chose in the top bar."),
    )

    def __init__(self, data: Any, *, reader: Reader, choices: list[Choice]) -> None:
        muted = set(reader.muted)
        initial: dict[str, Any] = {"told": [kind for kind in Kind.values if kind not in muted]}
        super().__init__(data, initial=initial | {"language": reader.language})
        self._choices = choices
        for choice in choices:
            scope = forms.ChoiceField(label=SCOPE_LABEL, choices=Scope.choices, initial=choice.scope)
            mail = forms.BooleanField(label=MAIL_LABEL, required=False, initial=choice.mail)
            self.fields[f"scope-{choice.project.pk}"] = scope
            self.fields[f"mail-{choice.project.pk}"] = mail

    @property
    def projects(self) -> list[ProjectFields]:
        """The fields by project."""
        return [
            ProjectFields(item.project, self[f"scope-{item.project.pk}"], self[f"mail-{item.project.pk}"])
            for item in self._choices
        ]

    def values(self) -> dict[str, Any]:
        """Arguments of ``settings_save``."""
        data = self.cleaned_data
        chosen: dict[UUID, tuple[str, bool]] = {
            item.project.pk: (data[f"scope-{item.project.pk}"], data[f"mail-{item.project.pk}"])
            for item in self._choices
        }
        return {"told": data["told"], "language": data["language"], "choices": chosen}


class ChannelForm(forms.Form):
    """A channel. Its address and secret are only ever written; of one that exists, what is left empty stays."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("What your team calls it, such as the chat that it posts to."),
    )
    kind = forms.ChoiceField(label=gettext_lazy("Service"), choices=ChannelKind.choices)
    url = forms.CharField(
        label=gettext_lazy("Address of the webhook"),
        max_length=MAX_ADDRESS_CHARS,
        help_text=gettext_lazy(
            "The service shows it with an incoming webhook or a custom robot. It is not shown again here."
        ),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "inputmode": "url"}),
    )
    secret = forms.CharField(
        label=gettext_lazy("Secret"),
        required=False,
        max_length=MAX_SECRET_CHARS,
        help_text=gettext_lazy(
            "Feishu, DingTalk and JSON: what messages are signed with. Slack and Discord have none."
        ),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    remove_secret = forms.BooleanField(label=gettext_lazy("Remove the secret"), required=False)
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Events"), choices=Kind.choices, widget=forms.CheckboxSelectMultiple, initial=USUAL
    )
    language = forms.ChoiceField(label=gettext_lazy("Language of the messages"), choices=settings.LANGUAGES)

    def __init__(self, data: Any = None, *, channel: Channel | None = None) -> None:
        initial = {name: getattr(channel, name) for name in CHANGED} if channel else {"language": get_language()}
        super().__init__(data, initial=initial)
        if channel is not None:
            self.fields["url"].required = False
            self.fields["url"].help_text = gettext_lazy(
                "Leave this empty to keep the address; what you enter replaces it."
            )
        if channel is None or not channel.signed:
            del self.fields["remove_secret"]
        else:
            self.fields["secret"].help_text = gettext_lazy(
                "There is a secret. Leave this empty to keep it; what you enter replaces it."
            )

    def values(self) -> dict[str, Any]:
        """Arguments of ``channel_change``; ``secret`` is ``None`` where it stays as it is."""
        data = self.cleaned_data
        given = {name: data[name] for name in (*CHANGED, "url")}
        return given | {"secret": "" if data.get("remove_secret") else data["secret"] or None}


PER_PAGE = 50


@login_required
@require_GET
def notification_list(request: HttpRequest) -> HttpResponse:
    """The events of the person's projects, newest first; of one project or unread alone on demand."""
    slug, unread = request.GET.get("project", "")[:80], request.GET.get("unread") == "1"
    rows = selectors.notifications_of(request.user, slug=slug, unread=unread)
    page = Paginator(rows, PER_PAGE).get_page(page_number(request.GET.get("page")))
    context = {
        "page": page,
        "lines": selectors.lines_of(page.object_list),
        "unread": selectors.projects_and_unread(request.user)[1],
        "projects": projects_of(request.user),
        "slug": slug,
        "only_unread": unread,
    }
    return render(request, "notifications/list.html", context)


@never_cache
@login_required
@require_GET
def bell(request: HttpRequest) -> HttpResponse:
    """The bell of the top bar, which polls while its page is visible."""
    return render(request, "notifications/_bell.html")


def _own_notification(request: HttpRequest, pk: int) -> Notification:
    found = selectors.notification_of(request.user, pk)
    if found is None:
        raise Http404
    return found


@login_required
@require_GET
def notification_open(request: HttpRequest, pk: int) -> HttpResponse:
    """Mark it as read, and redirect to its page."""
    item = _own_notification(request, pk)
    events_module.notification_mark(item, read=True)
    return redirect(selectors.notification_path(item))


@login_required
@require_POST
def notification_mark(request: HttpRequest, pk: int) -> HttpResponse:
    """Mark one as read, or as unread again."""
    events_module.notification_mark(_own_notification(request, pk), read=request.POST.get("read") != "no")
    return redirect(_list_address(request))


@login_required
@require_POST
def notifications_read(request: HttpRequest) -> HttpResponse:
    """Mark all as read, or those of one project."""
    rows = selectors.notifications_of(request.user, slug=request.POST.get("project", "")[:80])
    count = events_module.notifications_read(rows)
    message = ngettext("%(n)d notification is read now.", "%(n)d notifications are read now.", count)
    messages.success(request, message % {"n": count})
    return redirect(_list_address(request))


def _list_address(request: HttpRequest) -> str:
    """The list as the person had it; only its own query comes back."""
    query = request.GET.urlencode()
    return reverse("notification-list") + (f"?{query}" if query else "")


@login_required
@require_http_methods(["GET", "POST"])
def notification_settings(request: HttpRequest) -> HttpResponse:
    """The settings page: what the person is notified of, and whether by mail."""
    user = cast(User, request.user)
    reader, choices = selectors.reader_of(user, get_language() or ""), selectors.choices_of(user)
    form = SettingsForm(request.POST if request.method == "POST" else None, reader=reader, choices=choices)
    if form.is_valid():
        events_module.settings_save(user, **form.values())
        messages.success(request, _("Saved."))
        return redirect("notification-settings")
    context = {"form": form} | _mail_context(user, request)
    return render(request, "notifications/settings.html", context, status=422 if request.method == "POST" else 200)


def _mail_context(user: User, request: HttpRequest) -> dict[str, object]:
    reader = selectors.reader_of(user, get_language() or "")
    return {
        "has_server": has_server(),
        "reader": reader,
        "testing": reader.state == ReaderState.TESTING,
        "last_mail": selectors.last_mail(user),
    }


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def mail_test(request: HttpRequest) -> HttpResponse:
    """Ask for a test mail (POST), and see its result (GET)."""
    user = cast(User, request.user)
    if request.method == "POST":
        if not probe_allowed(user):
            return HttpResponse(_("Too many tests in one minute; wait a moment."), status=429)
        events_module.test_mail_ask(user, get_language() or "")
    if request.headers.get("HX-Request") != "true":
        return redirect("notification-settings")
    return render(request, "notifications/_mail.html", _mail_context(user, request))


# --- Channel views --------------------------------------------------------------------------------------------------
# The page of a project's channels: members see where events go, owners decide it.


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
    result = in_words(delivery.told) if delivery else ""
    return {"channel": channel, "kinds": kinds, "last": delivery, "result": result}


@login_required
@require_http_methods(["GET", "POST"])
def channel_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change a channel; its address and secret stay where nothing is entered."""
    project, channel = own(request, slug, Channel, pk, need=Role.OWNER)
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
            message = _("%(name)s is changed. Send a test to see whether it works.")
            messages.success(request, message % {"name": channel})
            return redirect("channel-list", slug=slug)
    context = {"project": project, "channel": channel, "form": form}
    return render(request, "notifications/channel_edit.html", context, status=422 if form.is_bound else 200)


@login_required
@require_POST
def channel_test(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Post a test message now; this answer shows the server's reply."""
    project, channel = own(request, slug, Channel, pk, need=Role.OWNER)
    if not probe_allowed(request.user):
        return HttpResponse(_("Too many tests in one minute; wait a moment."), status=429)
    verdict = channels.channel_test(channel)
    tried = {"channel": channel, "ok": verdict.ok, "result": in_words(verdict.told)}
    return _channels_page(request, project, tried=tried)


@login_required
@require_POST
def channel_resume(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Post to a paused channel again."""
    _project, channel = own(request, slug, Channel, pk, need=Role.OWNER)
    count = channels.channel_resume(channel)
    message = ngettext(
        "%(name)s is used again; %(n)d message that was held follows.",
        "%(name)s is used again; %(n)d messages that were held follow.",
        count,
    )
    messages.success(request, message % {"name": channel.name, "n": count})
    return redirect("channel-list", slug=slug)


@login_required
@require_POST
def channel_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a channel."""
    _project, channel = own(request, slug, Channel, pk, need=Role.OWNER)
    channels.channel_delete(channel)
    messages.success(request, _("%(name)s is deleted; nothing is posted there any more.") % {"name": channel.name})
    return redirect("channel-list", slug=slug)
