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
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors, page_number
from webapp.people.teams import sudo
from webapp.people.teams.access import administrator, project_for
from webapp.people.teams.forms import TokenForm
from webapp.people.teams.models import ApiToken, Project, Role, TokenEnd, User
from webapp.people.teams.tokens import token_create, token_revoke, tokens_ended, tokens_of, tokens_open, tokens_reaching

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
