"""Pages that make a run: one form, its YAML, and the preflight."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST
from pydantic import ValidationError as ShapeError

from training.config import JobConfig, config_to_yaml
from training.errors import ConfigError
from webapp.pages import add_errors, can_edit, probe_allowed
from webapp.runs.forms import RunForm, suggested_name
from webapp.runs.models import Run
from webapp.runs.preflight import Outcome, preflight
from webapp.runs.presets import preset_named, presets
from webapp.runs.services import run_create
from webapp.runs.yaml_text import YamlProblem, config_from_text
from webapp.teams.access import object_for, project_for
from webapp.teams.models import Project, Role, User


def _start(request: HttpRequest, project: Project) -> tuple[JobConfig, str]:
    """The config that a new form shows, and the name to derive one from: a clone, a preset, or the defaults."""
    source = request.GET.get("from") or request.GET.get("clone")
    if source:
        run = object_for(
            request.user, Run, source, within=Run.objects.filter(project=project).select_related("project")
        )
        return _config_of(run), run.name
    preset = preset_named(request.GET.get("preset", ""))
    config = preset.config.model_copy(deep=True) if preset else JobConfig()
    for key, (group, option) in {
        "dataset": ("data", "train"), "model": ("model", "source"), "environment": ("environment", "name"),
        "reward": ("rewards", "spec"),
    }.items():  # fmt: skip
        value = request.GET.get(key, "")
        if 0 < len(value) <= 200:
            setattr(getattr(config, group), option, value)
    return config, preset.id if preset else ""


def _config_of(run: Run) -> JobConfig:
    """A run's config; options that no longer exist (an old run) are left at their defaults."""
    try:
        return JobConfig.model_validate(run.config)
    except ShapeError:
        return JobConfig()


def _context(request: HttpRequest, project: Project, form: RunForm, **more: Any) -> dict[str, Any]:
    return {
        "project": project, "form": form, "presets": presets(), "preset": request.GET.get("preset", ""),
        "can_edit": can_edit(project), "tab": "form", **more,
    }  # fmt: skip


@login_required
@require_http_methods(["GET", "POST"])
def run_new(request: HttpRequest, slug: str) -> HttpResponse:
    """The form of a new run; POST checks, preflights and launches."""
    project = project_for(request.user, slug, need=Role.VIEWER if request.method == "GET" else Role.EDITOR)
    if request.method == "GET":
        config, base = _start(request, project)
        form = RunForm(project=project, config=config, name=suggested_name(project, config, base))
        return render(request, "runs/new.html", _context(request, project, form))
    form = RunForm(request.POST, project=project)
    if not form.is_valid() or form.config is None:
        return render(request, "runs/new.html", _context(request, project, form), status=422)
    outcome = preflight(project, form.config)
    if outcome.blocked or (outcome.problems and request.POST.get("launch_anyway") != "yes"):
        _place(form, outcome)
        return render(request, "runs/new.html", _context(request, project, form, outcome=outcome), status=422)
    try:
        run = run_create(
            project=project, user=cast(User, request.user), name=form.cleaned_data["name"], config=form.config,
            idempotency_key=form.cleaned_data["idempotency_key"] or None,
        )  # fmt: skip
    except ValidationError as exc:
        add_errors(form, exc)
    except ConfigError as exc:
        form.place([exc.message])
    else:
        return redirect("run-detail", slug, run.pk)
    return render(request, "runs/new.html", _context(request, project, form), status=422)


def _place(form: RunForm, outcome: Outcome) -> None:
    """Say hard problems beside their option too."""
    for check in outcome.checks:
        if check.hard and not check.ok and check.path in form.fields:
            form.add_error(check.path, check.sentence)


@login_required
@require_POST
def run_preflight(request: HttpRequest, slug: str) -> HttpResponse:
    """Check the form as it stands, without launching."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form = RunForm(request.POST, project=project)
    outcome, sentence = None, ""
    if not probe_allowed(request.user):
        sentence = _("That was many checks in one minute; wait a little.")
    elif form.is_valid() and form.config is not None:
        outcome = preflight(project, form.config)
        _place(form, outcome)
    context = _context(request, project, form, outcome=outcome, sentence=sentence)
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "runs/new_preflight.html" if fragment else "runs/new.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def run_yaml(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The config as YAML: GET exports a run's (``?from=``), POST turns the form into YAML or YAML into the form."""
    project = project_for(request.user, slug, need=Role.VIEWER if request.method == "GET" else Role.EDITOR)
    if request.method == "GET":
        config, base = _start(request, project)
        return (
            _download(config, base or "run")
            if {"from", "clone"} & set(request.GET)
            else _yaml_page(request, project, config)
        )
    if "yaml" in request.POST:
        return _from_yaml(request, project)
    form = RunForm(request.POST, project=project)
    if not form.is_valid() or form.config is None:
        return render(request, "runs/new.html", _context(request, project, form), status=422)
    if request.POST.get("download") == "yes":
        return _download(form.config, form.cleaned_data["name"])
    return _yaml_page(request, project, form.config, name=form.cleaned_data["name"])


def _from_yaml(request: HttpRequest, project: Project) -> HttpResponse:
    """Show pasted YAML as the form, or its problems beside their lines."""
    text, name = request.POST.get("yaml", ""), request.POST.get("name", "")[:80]
    try:
        config = config_from_text(text)
    except YamlProblem as exc:
        context = _context(request, project, RunForm(project=project, name=name), tab="yaml", yaml=text,
                           problems=exc.problems)  # fmt: skip
        return render(request, "runs/new.html", context, status=422)
    if request.POST.get("download") == "yes":
        return _download(config, name or "run")
    form = RunForm(project=project, config=config, name=name or suggested_name(project, config))
    return render(request, "runs/new.html", _context(request, project, form, imported=True))


def _yaml_page(request: HttpRequest, project: Project, config: JobConfig, *, name: str = "") -> HttpResponse:
    form = RunForm(project=project, config=config, name=name or suggested_name(project, config))
    context = _context(request, project, form, tab="yaml", yaml=config_to_yaml(config))
    return render(request, "runs/new.html", context)


def _download(config: JobConfig, name: str) -> HttpResponse:
    response = HttpResponse(config_to_yaml(config), content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{name}.yaml") or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response
