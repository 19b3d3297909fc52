"""Launching a sweep from the form of a new run, and what it would launch while a person writes it."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from training.config import JobConfig
from training.errors import ConfigError
from webapp.common.pages import add_errors
from webapp.engine.services import role_to_launch
from webapp.launch.forms import RunForm, class_sent
from webapp.launch.sweep_form import SweepPart
from webapp.launch.sweeps import plan_of, sweep_create
from webapp.launch.views import form_context
from webapp.people.teams.access import can_edit, project_for
from webapp.people.teams.models import Project, Role, User


@login_required
@require_POST
def sweep_plan(request: HttpRequest, slug: str) -> HttpResponse:
    """How many runs the fold describes, with what is wrong with it: the part of the form below the axes."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form, part = RunForm(request.POST, project=project), SweepPart(request.POST)
    if form.is_valid() and form.config is not None and part.used:
        _plan(project, form.config, part)
    part.show(form)
    context = {"project": project, "sweep": part, "form": form, "can_edit": can_edit(project), "asked": part.used}
    return render(request, "sweeps/_plan.html", context)


@login_required
@require_POST
def sweep_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Launch all runs that the form and its fold describe, and open the sweep's page."""
    project = project_for(request.user, slug, need=role_to_launch(class_sent(request.POST)))
    form, part = RunForm(request.POST, project=project), SweepPart(request.POST)
    if form.is_valid() and form.config is not None:
        if form.cleaned_data["checkpoint"] or form.cleaned_data["draft"]:
            part.general = _("A run that continues another one, or a draft, cannot be a sweep.")
        else:
            made = _launch(request, project, form, part)
            if made is not None:
                return made
    part.show(form)
    return render(request, "runs/new.html", form_context(request, project, form, sweep=part), status=422)


def _plan(project: Project, config: JobConfig, part: SweepPart) -> None:
    try:
        part.plan = plan_of(project, config, part.axes, part.mode)
    except ConfigError as exc:
        if not part.place(exc):
            part.general = exc.message


def _launch(request: HttpRequest, project: Project, form: RunForm, part: SweepPart) -> HttpResponse | None:
    try:
        sweep = sweep_create(
            project=project,
            user=cast(User, request.user),
            name=form.cleaned_data["name"],
            config=cast(JobConfig, form.config),
            axes=part.axes,
            mode=part.mode,
            idempotency_key=form.cleaned_data["idempotency_key"],
            anyway=request.POST.get("launch_anyway") == "yes",
            priority=form.chosen_class,
        )
    except ValidationError as exc:
        add_errors(form, exc)
    except ConfigError as exc:
        if not part.place(exc):
            form.place(exc.option, exc.sentence)
    else:
        return redirect("sweep-detail", project.slug, sweep.pk)
    return None
