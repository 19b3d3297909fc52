"""Pages of tokens: a person's own, those that reach a project, and all of the installation."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors, page_number
from webapp.people.teams import sudo, tokens
from webapp.people.teams.access import administrator, project_for
from webapp.people.teams.models import ApiToken, Machine, Project, Role, TokenEnd, User
from webapp.people.teams.tokens import token_create, token_revoke, tokens_ended, tokens_of, tokens_open, tokens_reaching
from webapp.people.teams.views import MachineForm, TokenDaysForm, TokenForm

TOKENS_PER_PAGE = 100


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def token_list(request: HttpRequest) -> HttpResponse:
    """A person's tokens, and a new one, whose text is shown in this answer and never again."""
    user = cast(User, request.user)
    form = TokenForm(request.POST if request.method == "POST" else None, user=user)
    shown, status = {}, 200
    if request.method == "POST":
        sudo.ask(request, sudo.Act.TOKEN)
        status = 422
        if form.is_valid():
            try:
                made, text = token_create(user=user, **form.cleaned_data)
                shown, status, form = {"made": made, "text": text}, 201, TokenForm(user=user)
            except ValidationError as exc:
                add_errors(form, exc)
    context = {
        "form": form,
        "tokens": tokens_of(user),
        "ended": tokens_ended(user),
        "now": timezone.now(),
        "address": request.build_absolute_uri("/").rstrip("/"),
    }
    return render(request, "teams/tokens.html", context | shown, status=status)


@login_required
@require_POST
def token_revoke_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """End one of the person's own tokens."""
    token = ApiToken.objects.filter(pk=pk, user=cast(User, request.user)).first()
    _revoke_token(request, token, TokenEnd.REVOKED)
    return redirect("token-list")


@login_required
@require_GET
def project_tokens(request: HttpRequest, slug: str) -> HttpResponse:
    """The tokens that open this project, whosever they are (owners)."""
    project = project_for(request.user, slug, need=Role.OWNER)
    return render(request, "teams/project_tokens.html", {"project": project, "tokens": tokens_reaching(project)})


@login_required
@require_POST
def project_token_revoke(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End one of them (owners)."""
    project = project_for(request.user, slug, need=Role.OWNER)
    _revoke_token(request, tokens_reaching(project).filter(pk=pk).first(), TokenEnd.OWNER, project)
    return redirect("team-tokens", slug=slug)


@login_required
@require_GET
def site_tokens(request: HttpRequest) -> HttpResponse:
    """Everybody's tokens (administrators)."""
    administrator(request)
    page = Paginator(tokens_open(), TOKENS_PER_PAGE).get_page(page_number(request.GET.get("page")))
    return render(request, "teams/site_tokens.html", {"page": page})


@login_required
@require_POST
def site_token_revoke(request: HttpRequest, pk: UUID) -> HttpResponse:
    """End one of them (administrators)."""
    administrator(request)
    _revoke_token(request, tokens_open().filter(pk=pk).first(), TokenEnd.ADMINISTRATOR)
    return redirect("site-tokens")


def _revoke_token(request: HttpRequest, token: ApiToken | None, why: TokenEnd, project: Project | None = None) -> None:
    if token is None:
        raise Http404
    by = cast(User, request.user)
    token_revoke(token, TokenEnd.REVOKED if token.user_id == by.pk else why, by=by, project=project)
    messages.success(
        request, _("%(name)s is revoked; programs that use it are refused from now on.") % {"name": token.name}
    )


# --- Machine views --------------------------------------------------------------------------------------------------
# The page of a team's machine accounts (owners).


def _owned_project(request: HttpRequest, slug: str) -> Project:
    return project_for(request.user, slug, need=Role.OWNER)


def _machine_of(request: HttpRequest, slug: str, pk: UUID) -> tuple[Project, Machine]:
    project = _owned_project(request, slug)
    machine = tokens.machine_in(project, pk)
    if machine is None:
        raise Http404
    return project, machine


def _token_of(request: HttpRequest, slug: str, pk: UUID, token_pk: UUID) -> tuple[Project, Machine, ApiToken]:
    project, machine = _machine_of(request, slug, pk)
    token = tokens.token_in(machine, token_pk)
    if token is None:
        raise Http404
    return project, machine, token


def _ask_confirmation(request: HttpRequest, act: sudo.Act, project: Project) -> None:
    sudo.ask(request, act, reverse("team-machines", args=[project.slug]))


def _machines_page(request: HttpRequest, project: Project, *, status: int = 200, **more: object) -> HttpResponse:
    context = {
        "project": project,
        "machines": tokens.machines_of(project.team),
        "form": MachineForm(project=project),
        "days_form": TokenDaysForm(),
        "now": timezone.now(),
    }
    return render(request, "teams/machines.html", context | more, status=status)


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def machine_list(request: HttpRequest, slug: str) -> HttpResponse:
    """Those of the team, and a new one, the text of whose token is shown in this answer and never again."""
    project = _owned_project(request, slug)
    form = MachineForm(request.POST if request.method == "POST" else None, project=project)
    if request.method != "POST":
        return _machines_page(request, project, form=form)
    if form.is_valid():
        _ask_confirmation(request, sudo.Act.MACHINE, project)
        try:
            machine, token, text = tokens.machine_create(
                project=project, by=cast(User, request.user), **form.cleaned_data
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return _token_page(request, project, machine, token, text)
    return _machines_page(request, project, form=form, status=422)


def _token_page(request: HttpRequest, project: Project, machine: Machine, token: ApiToken, text: str) -> HttpResponse:
    return _machines_page(request, project, status=201, made=machine, token=token, text=text)


@never_cache
@login_required
@require_POST
def machine_token_new(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Make another token, to change over to before the old one ends."""
    project, machine = _machine_of(request, slug, pk)
    form = TokenDaysForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Choose for how long the token is valid."))
        return redirect("team-machines", slug=slug)
    _ask_confirmation(request, sudo.Act.TOKEN, project)
    by = cast(User, request.user)
    try:
        token, text = tokens.machine_token(machine=machine, by=by, project=project, **form.cleaned_data)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("team-machines", slug=slug)
    return _token_page(request, project, machine, token, text)


@never_cache
@login_required
@require_POST
def machine_token_replace(request: HttpRequest, slug: str, pk: UUID, machine_token: UUID) -> HttpResponse:
    """Replace a token, which ends now, by another one."""
    project, machine, old = _token_of(request, slug, pk, machine_token)
    _ask_confirmation(request, sudo.Act.TOKEN, project)
    by = cast(User, request.user)
    try:
        token, text = tokens.machine_token_rotate(machine=machine, token=old, by=by, project=project)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("team-machines", slug=slug)
    return _token_page(request, project, machine, token, text)


@login_required
@require_POST
def machine_token_end(request: HttpRequest, slug: str, pk: UUID, machine_token: UUID) -> HttpResponse:
    """Revoke a token."""
    project, machine, token = _token_of(request, slug, pk, machine_token)
    token_revoke(token, TokenEnd.OWNER, by=cast(User, request.user), project=project)
    messages.success(request, _("Token %(token)s of %(name)s is revoked.") % {"token": token.name, "name": machine})
    return redirect("team-machines", slug=slug)


@login_required
@require_POST
def machine_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End an account with its tokens."""
    project, machine = _machine_of(request, slug, pk)
    try:
        tokens.machine_end(machine=machine, by=cast(User, request.user), project=project)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    else:
        messages.success(request, _("%(name)s has ended; its tokens are refused from now on.") % {"name": machine})
    return redirect("team-machines", slug=slug)
