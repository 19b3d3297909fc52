"""Pages of one model."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors
from webapp.people.teams.access import own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.results.model_pages.card import card_of
from webapp.results.model_pages.forms import AboutForm, CardForm, PushForm
from webapp.results.model_pages.page import page_data
from webapp.runs.registry.models import ModelMark, RegisteredModel
from webapp.runs.registry.selectors import model_describe, model_mark, models_of
from webapp.runs.registry.sending import README, push_order


def _models_in_full(project: Project) -> QuerySet[RegisteredModel]:
    found = models_of(project).select_related(
        "project", "created_by", "checkpoint__run__parent", "checkpoint__run__resume_checkpoint"
    )
    return found.defer(None)


@login_required
@require_GET
def model_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page of one model: its facts, lineage and scores."""
    project, model = own(request, slug, RegisteredModel, pk, within=_models_in_full)
    return render(request, "model_pages/detail.html", page_data(request, project, model))


@login_required
@require_GET
def model_named(request: HttpRequest, slug: str, model_name: str) -> HttpResponse:
    """The page of a model by its name, for people who type addresses."""
    project = project_for(request.user, slug)
    model = models_of(project).filter(name=model_name).first()
    if model is None:
        raise Http404
    return redirect("model-detail", slug=slug, pk=model.pk)


@login_required
@require_POST
def model_mark_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Mark a model, or take its mark away."""
    _project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    try:
        model_mark(model=model, mark=request.POST.get("mark", ""))
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("model-detail", slug=slug, pk=pk)
    words = {
        "": _("%(name)s has no mark any more."),
        ModelMark.CANDIDATE: _("%(name)s is a candidate."),
        ModelMark.PRODUCTION: _("%(name)s is in production."),
    }
    messages.success(request, words[model.mark] % {"name": model.name})
    return redirect("model-detail", slug=slug, pk=pk)


@login_required
@require_POST
def model_about(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change tags and notes."""
    return _save_and_show(request, slug, pk, "about", AboutForm(request.POST))


@login_required
@require_http_methods(["GET", "POST"])
def model_card(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The model card as a file; by POST, the team's own sections of it."""
    if request.method == "POST":
        return _save_and_show(request, slug, pk, "card", CardForm(request.POST))
    _project, model = own(request, slug, RegisteredModel, pk, within=_models_in_full)
    answer = HttpResponse(card_of(model), content_type="text/markdown; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, README) or "attachment"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@login_required
@require_POST
def model_push(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Have the model's files sent to the hub."""
    project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    form = PushForm(request.POST)
    if form.is_valid():
        ask(request, Act.PUSH, reverse("model-detail", args=[slug, pk]))
        try:
            push_order(model=model, user=cast(User, request.user), readme=card_of(model), **form.values())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect(reverse("model-detail", args=[slug, pk]) + "#push")
    context = page_data(request, project, model) | {"push_form": form, "push_again": True}
    return render(request, "model_pages/detail.html", context, status=422)


def _save_and_show(request: HttpRequest, slug: str, pk: UUID, part: str, form: Any) -> HttpResponse:
    """Save a form's texts on a model; with mistakes the page is shown again, with the form open."""
    project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    if form.is_valid() and _save_form(model, form):
        messages.success(request, _("Saved."))
        return redirect("model-detail", slug=slug, pk=pk)
    context = page_data(request, project, model) | {"edit": part, f"{part}_form": form}
    return render(request, "model_pages/detail.html", context, status=422)


def _save_form(model: RegisteredModel, form: forms.Form) -> bool:
    try:
        model_describe(model=model, **form.values())  # type: ignore[attr-defined]
    except ValidationError as exc:
        add_errors(form, exc)
        return False
    return True
