"""The page of the links that share a comparison."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.common.pages import add_errors
from webapp.evaluation.sharing.forms import LinkForm
from webapp.evaluation.sharing.links import link_create, link_revoke
from webapp.evaluation.sharing.models import SharedLink
from webapp.evaluation.sharing.selectors import link_lines, links_of
from webapp.evaluation.sharing.services import own_or_owned
from webapp.evaluation.sharing.views import saved_for
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Role, User
from webapp.people.teams.sudo import Act, ask


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def link_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The links of a comparison, and a new one, whose address is shown in this answer and never again."""
    posted = request.method == "POST"
    project, saved = saved_for(request, slug, pk, Role.EDITOR if posted else Role.VIEWER)
    form, status, shown = LinkForm(request.POST if posted else None), 200, cast(dict[str, Any], {})
    if posted:
        status = 422
        if form.is_valid():
            ask(request, Act.SHARE)
            try:
                made, secret = link_create(saved=saved, user=cast(User, request.user), days=form.cleaned_data["days"])
            except ValidationError as exc:
                add_errors(form, exc)
            else:
                address = request.build_absolute_uri(reverse("shared", args=[secret]))
                shown, status, form = {"made": made, "address": address}, 201, LinkForm()
    context = {
        "project": project,
        "saved": saved,
        "form": form,
        "lines": link_lines(links_of(saved)),
        "may_write": can_edit(project),
        "owner": getattr(project, "role", "") == Role.OWNER,
    }
    return render(request, "sharing/links.html", context | shown, status=status)


@login_required
@require_POST
def link_revoke_now(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End a link."""
    project = project_for(request.user, slug)
    within = SharedLink.objects.filter(comparison__project=project).select_related("comparison__project")
    link = object_for(request.user, SharedLink, pk, within=within)
    own_or_owned(request.user, link)
    link_revoke(link)
    messages.success(request, _("The link is revoked and no longer opens the report."))
    return redirect("compare-links", slug, link.comparison_id)
