"""Pages of models."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors, page_number
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.runs.registry import selectors, services
from webapp.runs.registry.forms import ModelForm
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.registry.weights import STARTER

PER_PAGE = 50


@login_required
@require_GET
def model_list(request: HttpRequest, slug: str) -> HttpResponse:
    """Everything a run can start from."""
    project = project_for(request.user, slug)
    asked = request.GET.get("q", "").strip()[:80].replace("\x00", "")
    registered = Paginator(selectors.models_named(project, asked), PER_PAGE)
    models = registered.get_page(page_number(request.GET.get("models")))
    starter = asked.lower() in STARTER  # it is no row of the project, and comes first
    checkpoints = Paginator(selectors.checkpoints_shown(project), PER_PAGE)
    is_owner = getattr(project, "role", "") == Role.OWNER
    context = {
        "project": project,
        "can_edit": can_edit(project),
        "q": asked,
        "models": models,
        "starter": starter and models.number == 1,
        "count": registered.count + starter,
        "folders": selectors.model_folders(),
        "is_owner": is_owner,
        "models_dir": settings.MODELS_DIR if is_owner else "",
        "page": checkpoints.get_page(page_number(request.GET.get("page"))),
    }
    return render(request, "registry/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def model_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Register a model under a name."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        initial = {
            key: request.GET[key][:200] for key in ("kind", "folder", "checkpoint", "name") if key in request.GET
        }
        form = ModelForm(project=project, initial=initial)
        return render(request, "registry/new.html", {"project": project, "form": form})
    form = ModelForm(request.POST, project=project)
    if form.is_valid():
        try:
            made = services.model_register(project=project, user=cast(User, request.user), **form.values())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is registered.") % {"name": made.name})
            return redirect("model-detail", slug=slug, pk=made.pk)
    return render(request, "registry/new.html", {"project": project, "form": form}, status=422)


@login_required
@require_POST
def model_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one registered model; its files stay."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    model = object_for(request.user, RegisteredModel, pk, need=Role.EDITOR, within=selectors.models_of(project))
    ask(request, Act.DELETE_MODEL, reverse("model-list", args=[slug]))
    try:
        services.model_delete(model=model)
        messages.success(request, _("%(name)s was removed from the list; its files stay.") % {"name": model.name})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("model-list", slug=slug)
