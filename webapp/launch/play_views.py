"""Pages that play a spec against an environment: they launch runs of kind ``sample``."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from training.errors import ConfigError
from webapp.common.pages import add_errors, probe_allowed
from webapp.launch.checked import check_record, launch_checked
from webapp.launch.findings import Outcome
from webapp.launch.forms import suggested_name
from webapp.launch.play_forms import BedForm, SampleForm
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.views import own_spec
from webapp.runs.models import Run


@login_required
@require_http_methods(["GET", "POST"])
def reward_testbed(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Let the scripted policies play, to see what the spec pays them."""
    return _play_page(request, slug, pk, BedForm)


@login_required
@require_http_methods(["GET", "POST"])
def reward_sample(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Let a model play, to see what the spec says of fresh rollouts."""
    return _play_page(request, slug, pk, SampleForm)


def _play_page(request: HttpRequest, slug: str, pk: UUID, kind: type[BedForm]) -> HttpResponse:
    project, spec = own_spec(request, slug, pk, need=Role.EDITOR)
    form = kind(request.POST if request.method == "POST" else None, project=project, spec=spec)
    context: dict[str, Any] = {
        "project": project,
        "spec": spec,
        "form": form,
        "can_edit": True,
        "testbed": kind is BedForm,
    }
    if not form.is_bound:
        return render(request, "rewards/play.html", context)
    if request.GET.get("check"):
        return _check_response(request, project, form, context)
    if form.is_valid():
        run = _launch_run(request, project, form)
        if run is not None:
            return redirect("run-detail", slug, run.pk)
    return render(request, "rewards/play.html", context, status=422)


def _check_response(request: HttpRequest, project: Project, form: BedForm, context: dict[str, Any]) -> HttpResponse:
    """The preflight alone."""
    if not probe_allowed(request.user):
        context["sentence"] = _("Too many checks in one minute; wait a moment.")
    elif form.is_valid():
        context["outcome"] = outcome = _preflight_outcome(project, form)
        check_record(project=project, user=cast(User, request.user), config=form.config(), outcome=outcome)
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "runs/new_preflight.html" if fragment else "rewards/play.html", context)


def _preflight_outcome(project: Project, form: BedForm) -> Outcome:
    outcome = preflight(project, form.config())
    for check in outcome.checks:
        if check.hard and not check.ok:
            form.place(check.path, check.sentence)
    return outcome


def _launch_run(request: HttpRequest, project: Project, form: BedForm) -> Run | None:
    """The run, which a worker checks and queues, or ``None`` with the reason next to its field."""
    config, spec = form.config(), form.spec
    try:
        return launch_checked(
            project=project,
            user=cast(User, request.user),
            config=config,
            name=suggested_name(project, config, f"{form.base_name} {spec.name[:50]} v{spec.version}"),
            idempotency_key=form.cleaned_data["idempotency_key"] or None,
            anyway=request.POST.get("launch_anyway") == "yes",
        )
    except ValidationError as exc:
        add_errors(form, exc)
    except ConfigError as exc:
        form.place(exc.option, exc.sentence)
    return None
