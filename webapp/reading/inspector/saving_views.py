"""Pages that save what the inspector found, and that open or delete a named view."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.datasets.pairs import MAX_GAP
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.reading.inspector import page
from webapp.reading.inspector.counts import would_save
from webapp.reading.inspector.filters import filters_of
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.saved_views import view_delete
from webapp.reading.inspector.saving import TARGETS, found_save
from webapp.reading.inspector.scope import address_of, run_scope
from webapp.reading.inspector.views import scope_of


class SaveForm(forms.Form):
    """What to save it as, and its name."""

    kind = forms.ChoiceField(label=gettext_lazy("Save as"), widget=forms.RadioSelect, initial="view")
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("A dataset of this name gets a new version; earlier versions do not change."),
    )

    min_gap = forms.FloatField(
        label=gettext_lazy("Minimum gap"),
        required=False,
        min_value=0,
        max_value=MAX_GAP,
        help_text=gettext_lazy(
            "For preference pairs: reward of the better rollout minus that of the worse one. Empty: any difference, "
            "which may be noise."
        ),
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        cast(forms.ChoiceField, self.fields["kind"]).choices = [(item.kind, item.title) for item in TARGETS.values()]


@login_required
@require_http_methods(["GET", "POST"])
def rollouts_save(request: HttpRequest, slug: str, pk: UUID | None = None) -> HttpResponse:
    """Ask what to save the view as, and save it."""
    scope = scope_of(request, slug, pk, need=Role.EDITOR)
    view = View(scope, filters_of(request.GET))
    form = SaveForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            kept = found_save(view=view, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            if kept.kind == "view":
                messages.success(request, _("Saved as “%(name)s”.") % {"name": kept.label})
            return redirect(kept.url)
    would = would_save(view)
    context = {
        "project": scope.project,
        "run": scope.run,
        "form": form,
        "targets": [(item, would.get(item.kind)) for item in TARGETS.values()],
        "chosen": form["kind"].value(),
        "count": view.count,
        "chips": page.chips(view),
        "back": f"{address_of(scope.project, scope.run)}?{urlencode(view.filters.pairs())}",
    }
    return render(request, "inspector/save.html", context, status=422 if form.errors else 200)


def _own_saved_view(request: HttpRequest, slug: str, pk: UUID, need: Role = Role.VIEWER) -> tuple[Project, SavedView]:
    project = project_for(request.user, slug, need=need)
    within = SavedView.objects.filter(project=project).select_related("project", "run")
    return project, object_for(request.user, SavedView, pk, need=need, within=within, project=project)


@login_required
@require_GET
def view_open(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The rollouts of a named view: its address stays when its filters change."""
    project, view = _own_saved_view(request, slug, pk)
    scope = run_scope(project, view.run) if view.run is not None else scope_of(request, slug, None)
    return redirect(f"{address_of(scope.project, scope.run)}?{view.query}")


@login_required
@require_POST
def view_delete_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a named view; rollouts and datasets stay."""
    project, view = _own_saved_view(request, slug, pk, need=Role.EDITOR)
    scope = run_scope(project, view.run) if view.run is not None else scope_of(request, slug, None)
    view_delete(view=view)
    return redirect(address_of(scope.project, scope.run))
