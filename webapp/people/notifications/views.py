"""A person's notifications: the bell, the list, and the settings."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import page_number, probe_allowed
from webapp.people.notifications import selectors, services
from webapp.people.notifications.forms import SettingsForm
from webapp.people.notifications.mailing import has_server
from webapp.people.notifications.models import Notification, ReaderState
from webapp.people.teams.access import projects_of
from webapp.people.teams.models import User

PER_PAGE = 50


@login_required
@require_GET
def notification_list(request: HttpRequest) -> HttpResponse:
    """What happened in the person's projects, newest first; of one project or unread alone on demand."""
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
    services.notification_mark(item, read=True)
    return redirect(selectors.notification_path(item))


@login_required
@require_POST
def notification_mark(request: HttpRequest, pk: int) -> HttpResponse:
    """Mark one as read, or as unread again."""
    services.notification_mark(_own_notification(request, pk), read=request.POST.get("read") != "no")
    return redirect(_list_address(request))


@login_required
@require_POST
def notifications_read(request: HttpRequest) -> HttpResponse:
    """Mark all as read, or those of one project."""
    rows = selectors.notifications_of(request.user, slug=request.POST.get("project", "")[:80])
    count = services.notifications_read(rows)
    told = ngettext("%(n)d notification is read now.", "%(n)d notifications are read now.", count)
    messages.success(request, told % {"n": count})
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
    if request.method == "POST" and form.is_valid():
        services.settings_save(user, **form.values())
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
        services.test_mail_ask(user, get_language() or "")
    if request.headers.get("HX-Request") != "true":
        return redirect("notification-settings")
    return render(request, "notifications/_mail.html", _mail_context(user, request))
