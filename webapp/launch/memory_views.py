"""The memory of a job next to its form: the card asks when the form changes, and again until a worker has the table."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from training.config import JobConfig
from training.errors import ConfigError
from webapp.engine.resolve import components_meant, resolve
from webapp.launch.memory import device_default, device_known, estimate_begin, other_devices, own_devices
from webapp.launch.memory_view import MemoryView, Problems, job_of, refused_view, row_view, view_of
from webapp.launch.start import Chosen
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, User
from webapp.rewards.paid import Paid, paid_for
from webapp.runs.models import MemoryEstimate

DEVICE = "memory_device"  # the select of the card; no option of the job


def device_context(request: HttpRequest, config: JobConfig | None, chosen: Chosen | None = None) -> dict[str, Any]:
    """The devices that the card offers, and the one that is chosen: the person's, else what suits the job."""
    preset = chosen.preset if chosen is not None and chosen.size == "full" else None
    device, own = request.POST.get(DEVICE, ""), own_devices()
    if not device_known(device):
        device = device_default(config, preset, own)
    return {"own_devices": own, "other_devices": other_devices(), "device": device}


@login_required
@require_POST
def run_memory(request: HttpRequest, slug: str) -> HttpResponse:
    """What the job of a form, or of a YAML text, needs: known already, or being worked out."""
    project = project_for(request.user, slug)
    device, paid = request.POST.get(DEVICE, ""), None
    try:
        config = job_of(request.POST, project)
        paid = _paid_for(project, config, request.POST.get("rewards.spec", ""))
        asked = estimate_begin(
            project=project,
            user=cast(User, request.user),
            config=config,
            device=device if device_known(device) else device_default(config),
        )
    except Problems as exc:
        return _render_card(request, project, MemoryView("invalid", problems=tuple(exc.found)))
    except ConfigError as exc:
        return _render_card(request, project, refused_view(exc), paid=paid)
    return _render_card(
        request, project, view_of(asked, _shown_estimate(project, request.POST.get("memory_shown", ""))), paid=paid
    )


@login_required
@require_GET
def run_memory_part(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How far an estimate is; the card asks for this until it is done."""
    project = project_for(request.user, slug)
    row = object_for(request.user, MemoryEstimate, pk, within=project.memory_estimates.all())
    return _render_card(request, project, row_view(row, _shown_estimate(project, request.GET.get("shown", ""))))


def _shown_estimate(project: Project, pk: str) -> MemoryEstimate | None:
    """The estimate that the page shows until there is another."""
    try:
        return project.memory_estimates.filter(pk=UUID(pk)).first()
    except ValueError:
        return None


def _paid_for(project: Project, config: JobConfig, spec: str) -> Paid | None:
    """What the first stage's reward pays for, where that is not solving the task; the checks cover each stage.

    ``spec`` is the form's own: a form that lacks its data is read without them and without rewards. The default
    rewards are known once data and environment are chosen.
    """
    course = config.courses[0].model_copy(deep=True)
    course.rewards.spec = course.rewards.spec or ("" if course.rewards.components else spec)
    if course.method.learns_from != "rollouts":
        return None
    try:
        if course.rewards.spec or course.rewards.components:
            return paid_for(project, components_meant(project, course))
        return paid_for(project, resolve(project, config).config.courses[0].rewards.components)
    except ConfigError:
        return None


def _render_card(request: HttpRequest, project: Project, view: MemoryView, **more: Any) -> HttpResponse:
    yaml = "yaml" in request.POST or request.GET.get("tab") == "yaml"
    context = {"project": project, "memory": view, "yaml_tab": yaml, "can_edit": can_edit(project), **more}
    context["of_form"] = request.method == "POST" and not yaml
    return render(request, "runs/_memory.html", context)
