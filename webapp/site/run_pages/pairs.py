"""The page on which a run's rollouts become preference pairs."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.datasets.pairs import BOUNDS, MAX_GAP, counts, gaps_of, pairs_order, pairs_problem
from webapp.people.teams.models import Role, User
from webapp.runs.models import Run
from webapp.runs.records.access import own_run

DEFAULT_GAP = 0.5


class PairsForm(forms.Form):
    """The new dataset's name, and the least difference of the two rewards."""

    min_gap = forms.FloatField(
        label=_("Minimum gap"),
        min_value=0,
        max_value=MAX_GAP,
        initial=DEFAULT_GAP,
        help_text=_("Reward of the better rollout minus that of the worse one. A small gap may be noise."),
    )
    name = forms.CharField(
        label=_("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=_("If the name exists, a new version is created; earlier versions do not change."),
    )

    def __init__(self, run: Run, data: Any = None) -> None:
        super().__init__(data)
        self.fields["name"].initial = f"{run.name[:73]}-pairs"


@login_required
@require_http_methods(["GET", "POST"])
def run_pairs(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Order pairs; they are made in the background, as a dataset."""
    project, run = own_run(request, slug, pk, need=Role.EDITOR)
    form = PairsForm(run, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            made = pairs_order(run=run, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect("dataset-detail", slug=slug, pk=made.pk)
    gaps = gaps_of(run)
    context = {"project": project, "run": run, "form": form, "problem": pairs_problem(run)}
    context |= {"groups": len(gaps), "counts": counts(gaps, BOUNDS)}
    return render(request, "runs/pairs.html", context, status=422 if form.errors else 200)
