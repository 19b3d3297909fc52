"""The page of a person's tokens."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.pages import add_errors
from webapp.teams import sudo
from webapp.teams.forms import TokenForm
from webapp.teams.models import ApiToken, User
from webapp.teams.tokens import token_create, token_revoke, tokens_of


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def token_list(request: HttpRequest) -> HttpResponse:
    """A person's tokens, and a new one, whose text is shown in this answer and never again."""
    user = cast(User, request.user)
    form = TokenForm(request.POST if request.method == "POST" else None, user=user)
    shown, status = {}, 200
    if request.method == "POST":
        if not sudo.confirmed(request):
            messages.info(request, _("Confirm that it is you, then make the token."))
            return sudo.to_confirmation(request, reverse("token-list"))
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
        "now": timezone.now(),
        "address": request.build_absolute_uri("/").rstrip("/"),
    }
    return render(request, "teams/tokens.html", context | shown, status=status)


@login_required
@require_POST
def token_revoke_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """End one of the person's own tokens."""
    token = ApiToken.objects.filter(pk=pk, user=cast(User, request.user)).first()
    if token is None:
        raise Http404
    token_revoke(token)
    messages.success(request, _("%(name)s is revoked; whatever used it is refused from now on.") % {"name": token.name})
    return redirect("token-list")
