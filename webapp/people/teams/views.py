"""Pages of teams: a new project, and who is a member."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors
from webapp.people.teams import services, sudo
from webapp.people.teams.access import project_for
from webapp.people.teams.forms import HubTokenForm, MemberForm, ProjectForm, RoleForm
from webapp.people.teams.hub_token import hub_token_since
from webapp.people.teams.models import Membership, Project, Role, User
from webapp.people.teams.selectors import member_rows, membership_in, teams_owned


@login_required
@require_http_methods(["GET", "POST"])
def project_new(request: HttpRequest) -> HttpResponse:
    """Start a project in a team that the person owns."""
    user = cast(User, request.user)
    teams = teams_owned(user)
    if not teams:
        raise PermissionDenied(_("Only an owner of a team can start a project."))
    form = ProjectForm(request.POST if request.method == "POST" else None, teams=teams)
    if request.method == "POST" and form.is_valid():
        try:
            project = services.project_create(by=user, **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("project-page", slug=project.slug)
    return render(request, "teams/project_new.html", {"form": form}, status=422 if request.method == "POST" else 200)


def settings_page(request: HttpRequest, project: Project, *, status: int = 200, **more: object) -> HttpResponse:
    """The page of the settings, with the result of a form on it."""
    context = {
        "project": project,
        "members": member_rows(project, cast(User, request.user)),
        "form": MemberForm(),
        "roles": Role.choices,
        "is_owner": getattr(project, "role", None) == Role.OWNER,
        "hub_form": HubTokenForm(),
        "hub_token_since": hub_token_since(project),
    }
    return render(request, "teams/settings.html", context | more, status=status)


@login_required
@require_GET
def team_settings(request: HttpRequest, slug: str) -> HttpResponse:
    """The team's members; an owner manages them here."""
    return settings_page(request, project_for(request.user, slug))


def _link_url(request: HttpRequest, token: str) -> str:
    return request.build_absolute_uri(reverse("login-link", args=[token]))


@never_cache
@login_required
@require_POST
def member_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Add a person. The one-time link of a new account is shown in this answer and never again."""
    project = project_for(request.user, slug, need=Role.OWNER)
    form = MemberForm(request.POST)
    if form.is_valid():
        _ask_confirmation(request, sudo.Act.MEMBER, project)
        try:
            added = services.member_add(team=project.team, by=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            if added.token:
                return settings_page(
                    request, project, link=_link_url(request, added.token), link_for=added.membership.user
                )
            messages.success(request, _("%(name)s joined the team.") % {"name": added.membership.user.username})
            return redirect("team-settings", slug=slug)
    return settings_page(request, project, form=form, status=422)


def _member_of(request: HttpRequest, slug: str, pk: int) -> tuple[Project, Membership]:
    project = project_for(request.user, slug, need=Role.OWNER)
    membership = membership_in(project, pk)
    if membership is None:
        raise Http404
    return project, membership


def _ask_confirmation(request: HttpRequest, act: sudo.Act, project: Project) -> None:
    sudo.ask(request, act, reverse("team-settings", args=[project.slug]))


@login_required
@require_POST
def member_role(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Change a member's role."""
    project, membership = _member_of(request, slug, pk)
    form = RoleForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("There is no such role."))
        return redirect("team-settings", slug=slug)
    _ask_confirmation(request, sudo.Act.MEMBER, project)
    try:
        by = cast(User, request.user)
        services.member_set_role(membership=membership, role=form.cleaned_data["role"], by=by)
        messages.success(
            request,
            _("%(name)s is now %(role)s.") % {"name": membership.user.username, "role": membership.get_role_display()},
        )
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("team-settings", slug=slug)


@login_required
@require_POST
def member_remove(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Take a member out of the team."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.MEMBER, project)
    try:
        by = cast(User, request.user)
        services.member_remove(membership=membership, by=by)
        messages.success(request, _("%(name)s left the team.") % {"name": membership.user.username})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("team-settings", slug=slug)
    left = membership.user_id == request.user.pk
    return redirect("home") if left else redirect("team-settings", slug=slug)


@never_cache
@login_required
@require_POST
def member_link(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """A new one-time link for a member who lost theirs, or forgot the password. It is shown in this answer alone."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.LOGIN_LINK, project)
    by = cast(User, request.user)
    token = services.person_login_link(user=membership.user, by=by)
    return settings_page(request, project, link=_link_url(request, token), link_for=membership.user)


@login_required
@require_POST
def member_active(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Deactivate a person, or let them in again."""
    project, membership = _member_of(request, slug, pk)
    _ask_confirmation(request, sudo.Act.ACTIVE, project)
    set_active(request, membership.user, active=request.POST.get("active") == "yes")
    return redirect("team-settings", slug=slug)


def set_active(request: HttpRequest, user: User, *, active: bool) -> None:
    """Deactivate the person, or let them in again, with a message."""
    by = cast(User, request.user)
    services.person_set_active(user=user, active=active, by=by)
    text = _("%(name)s can log in again.") if active else _("%(name)s is logged out and can no longer log in.")
    messages.success(request, text % {"name": user.username})
