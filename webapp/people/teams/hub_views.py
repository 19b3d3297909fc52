"""Setting and removing a project's Hugging Face token, on the page of its settings."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.common.pages import add_errors
from webapp.people.teams.access import project_for
from webapp.people.teams.hub_token import hub_token_remove, hub_token_set
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act, ask
from webapp.people.teams.views import HubTokenForm, settings_page


@login_required
@require_POST
def hub_token_keep(request: HttpRequest, slug: str) -> HttpResponse:
    """Set the token, or replace it."""
    project = project_for(request.user, slug, need=Role.OWNER)
    form = HubTokenForm(request.POST)
    if form.is_valid():
        ask(request, Act.HUB_TOKEN, reverse("team-settings", args=[slug]))
        try:
            hub_token_set(project=project, token=form.cleaned_data["token"])
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(
                request, _("The token is kept. Runs that start from now on fetch their base model with it.")
            )
            return redirect("team-settings", slug=slug)
    return settings_page(request, project, hub_form=form, status=422)


@login_required
@require_POST
def hub_token_forget(request: HttpRequest, slug: str) -> HttpResponse:
    """Remove the token."""
    project = project_for(request.user, slug, need=Role.OWNER)
    if hub_token_remove(project=project):
        messages.success(request, _("The token is removed. Gated and private models can no longer be fetched."))
    return redirect("team-settings", slug=slug)
