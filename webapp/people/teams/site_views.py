"""Pages of an installation's administrator, and the page that asks for a confirmation."""

from __future__ import annotations

import math
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import page_number
from webapp.people.teams import sudo
from webapp.people.teams.access import administrator
from webapp.people.teams.audit import audit, audit_entries, audit_lines, audit_names
from webapp.people.teams.models import AuditAction, User
from webapp.people.teams.selectors import people, person
from webapp.people.teams.services import custom_rewards_on, custom_rewards_switch, manages, person_login_link
from webapp.people.teams.views import ConfirmForm, set_active

ENTRIES_PER_PAGE, PEOPLE_PER_PAGE = 50, 100


@sensitive_post_parameters()
@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def confirm_page(request: HttpRequest) -> HttpResponse:
    """The password again, before a dangerous act."""
    user = cast(User, request.user)
    form = ConfirmForm(request.POST if request.method == "POST" else None, request=request)
    if form.is_valid():
        update_session_auth_hash(request, user)  # a check may have renewed an old hash, which would end the session
        sudo.confirm(request)
        waiting = sudo.waiting(request)
        back = sudo.way_back(request)
        return render(request, "teams/confirmed.html", {"waiting": waiting}) if waiting else redirect(back)
    status = 200
    if request.method == "POST":
        status = 429 if form.wait_s else 422
        if status == 422:  # a person who has to wait has left rows enough
            audit(AuditAction.CONFIRM_FAILED)
    context = {"form": form, "next": sudo.way_back(request), "has_password": user.has_usable_password()}
    if settings.OIDC_ISSUER and user.identities.filter(issuer=settings.OIDC_ISSUER).exists():
        context["sign_on"] = settings.OIDC_NAME
    answer = render(request, "teams/confirm.html", context, status=status)
    if form.wait_s:
        answer["Retry-After"] = str(math.ceil(form.wait_s))
    return answer


@login_required
@require_GET
def site_page(request: HttpRequest) -> HttpResponse:
    """The switches, and the audit."""
    administrator(request)
    return _site_page(request)


def _site_page(request: HttpRequest, **more: object) -> HttpResponse:
    user = cast(User, request.user)
    chosen = {"project": request.GET.get("project", "")[:80], "who": request.GET.get("who", "")[:150]}
    page = Paginator(audit_entries(**chosen), ENTRIES_PER_PAGE).get_page(page_number(request.GET.get("page")))
    shown = Paginator(people(), PEOPLE_PER_PAGE).get_page(page_number(request.GET.get("people")))
    context: dict[str, Any] = {"page": page, "lines": audit_lines(page.object_list), "chosen": chosen, **audit_names()}
    context |= {
        "allowed": settings.CUSTOM_REWARDS,
        "on": custom_rewards_on(),
        "shown_people": shown,
        "managed": {one.pk for one in shown if manages(by=user, user=one)},
    }
    return render(request, "teams/site.html", context | more)


def _person_or_404(request: HttpRequest, pk: UUID) -> User:
    administrator(request)
    found = person(pk)
    if found is None:
        raise Http404
    return found


@never_cache
@login_required
@require_POST
def person_link(request: HttpRequest, pk: UUID) -> HttpResponse:
    """A one-time link for a person who is not an administrator; it is shown in this answer alone."""
    user, by = _person_or_404(request, pk), cast(User, request.user)
    sudo.ask(request, sudo.Act.LOGIN_LINK, reverse("site"))
    token = person_login_link(user=user, by=by)
    link = request.build_absolute_uri(reverse("login-link", args=[token]))
    return _site_page(request, link=link, link_for=user)


@login_required
@require_POST
def person_active(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Deactivate a person, or let them in again."""
    user = _person_or_404(request, pk)
    sudo.ask(request, sudo.Act.ACTIVE, reverse("site"))
    set_active(request, user, active=request.POST.get("active") == "yes")
    return redirect("site")


@login_required
@require_POST
def switch_custom_rewards(request: HttpRequest) -> HttpResponse:
    """Custom rewards on or off. Off is done at once, on needs a confirmation."""
    user, on = administrator(request), request.POST.get("on") == "yes"
    if on:
        sudo.ask(request, sudo.Act.CUSTOM_REWARDS, reverse("site"))
    try:
        custom_rewards_switch(by=user, on=on)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    else:
        messages.success(request, _("Custom rewards are on.") if on else _("Custom rewards are off."))
    return redirect("site")
