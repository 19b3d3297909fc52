"""Pages that make a run: one form, its YAML, the preflight, and what a model would see of a dataset."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pydantic
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header, urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.children import limited_child
from training.config import JobConfig, config_to_yaml, kind_in
from training.data import Rendered, RenderedRow, why_words
from training.errors import ConfigError
from training.plain import number_in
from webapp.common.pages import add_errors, probe_allowed
from webapp.common.text import in_words
from webapp.engine.resolve import resolve
from webapp.engine.services import role_to_launch
from webapp.launch import background
from webapp.launch.findings import Outcome, YamlProblem, config_from_text, options_of, yaml_set
from webapp.launch.forms import RunForm, class_sent, reference_choices, suggested_name
from webapp.launch.memory_views import device_context
from webapp.launch.models import Preparation, PreparationState
from webapp.launch.preflight import child_environment, one_of_few, preflight
from webapp.launch.start import chosen_of, gallery, start_of
from webapp.launch.sweep_form import SweepPart
from webapp.people.teams.access import can_edit, own, project_for, role_of
from webapp.people.teams.models import Project, Role, User
from webapp.runs.models import Run
from webapp.runs.states import Priority


def form_context(request: HttpRequest, project: Project, form: RunForm, **more: Any) -> dict[str, Any]:
    """The page with the form."""
    chosen = more.pop("chosen", None)
    return {
        **device_context(request, None if form.is_bound else form.start, chosen),
        "project": project,
        "form": form,
        "systems": gallery(chosen),
        "chosen": chosen,
        "can_edit": can_edit(project),
        "tab": "form",
        "sweep": SweepPart(),
        **more,
    }


def _yaml_context(request: HttpRequest, project: Project, name: str, text: str, **more: Any) -> dict[str, Any]:
    """The page with a config as text; name and priority are the run's, which go back and forth with it."""
    shown = {"tab": "yaml", "name": name, "yaml": text, **device_context(request, more.pop("config", None))}
    return {"project": project, "can_edit": can_edit(project), **shown, **more}


@login_required
@require_http_methods(["GET", "POST"])
def run_new(request: HttpRequest, slug: str) -> HttpResponse:
    """The form of a new run; POST makes the run, which a worker checks and queues, and opens its page."""
    need = Role.VIEWER if request.method == "GET" else role_to_launch(class_sent(request.POST))
    project = project_for(request.user, slug, need=need)
    if request.method == "GET":
        start = start_of(request, project)
        form = RunForm(
            project=project,
            config=start.config,
            name=start.name,
            checkpoint=start.checkpoint,
            origin=start.origin,
            draft=start.draft,
            hold_out=start.hold_out,
            priority=start.priority,
        )
        return render(request, "runs/new.html", form_context(request, project, form, chosen=start.chosen))
    form = RunForm(request.POST, project=project)
    if not form.is_valid() or form.config is None:
        return render(request, "runs/new.html", form_context(request, project, form), status=422)
    try:
        run = background.launch_checked(
            project=project,
            user=cast(User, request.user),
            name=form.cleaned_data["name"],
            config=form.config,
            idempotency_key=form.cleaned_data["idempotency_key"],
            checkpoint=form.cleaned_data["checkpoint"],
            draft=form.cleaned_data["draft"],
            anyway=request.POST.get("launch_anyway") == "yes",
            priority=form.chosen_class if role_of(project) == Role.OWNER else None,
        )
    except ValidationError as exc:
        add_errors(form, exc)
    except ConfigError as exc:
        form.place(exc.option, exc.sentence)
    else:
        return redirect("run-detail", slug, run.pk)
    return render(request, "runs/new.html", form_context(request, project, form), status=422)


def _place_problems(form: RunForm, outcome: Outcome) -> None:
    """Show problems next to their option too: hard ones as errors, others as warnings."""
    for check in outcome.checks:
        if not check.ok and check.path in form.fields:
            if check.hard:
                form.add_error(check.path, check.sentence)
            else:
                form.warnings[check.path] = check.sentence


@login_required
@require_POST
def run_preflight(request: HttpRequest, slug: str) -> HttpResponse:
    """Check the present form without launching."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    form = RunForm(request.POST, project=project)
    outcome, sentence = None, ""
    if not probe_allowed(request.user):
        sentence = _("Too many checks in one minute; wait a moment.")
    elif form.is_valid() and form.config is not None:
        outcome = preflight(project, form.config)
        background.check_record(project=project, user=cast(User, request.user), config=form.config, outcome=outcome)
        _place_problems(form, outcome)
    context = form_context(request, project, form, outcome=outcome, sentence=sentence)
    fragment = request.headers.get("HX-Request") == "true"
    return render(request, "runs/new_preflight.html" if fragment else "runs/new.html", context)


@login_required
@require_POST
def run_launch(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Check a draft and queue it; with ``anyway`` only what needs a change stops it."""
    _project, run = own(request, slug, Run, pk, need=Role.EDITOR)
    try:
        begun = background.check_begin(
            run=run, user=cast(User, request.user), anyway=request.POST.get("anyway") == "yes"
        )
    except ConfigError as exc:  # what it refers to is no longer there
        messages.error(request, exc.message)
    else:
        if begun is None:
            sentence = _("That is not possible now: the run is %(state)s.")
            messages.warning(request, sentence % {"state": run.get_state_display()})
    return redirect("run-detail", slug, pk)


@login_required
@require_GET
def run_check(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The check of a run, as a part of its page that polls while it lasts."""
    project, run = own(request, slug, Run, pk)
    context = {"project": project, "run": run, "check": background.check_view(run), "can_edit": can_edit(project)}
    return render(request, "runs/_launch_check.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def run_yaml(request: HttpRequest, slug: str) -> HttpResponseBase:
    """The config as YAML: GET exports a run's (``?from=``), POST turns the form into YAML or YAML into the form."""
    project = project_for(request.user, slug, need=Role.VIEWER if request.method == "GET" else Role.EDITOR)
    if request.method == "GET":
        start = start_of(request, project)
        if start.origin is not None:
            return _yaml_download(start.config, start.origin.name)
        return _yaml_page(request, project, start.config, start.name, start.priority)
    if "yaml" in request.POST:
        return _from_yaml(request, project)
    form = RunForm(request.POST, project=project)
    if not form.is_valid() or form.config is None:
        return render(request, "runs/new.html", form_context(request, project, form), status=422)
    if request.POST.get("download") == "yes":
        return _yaml_download(form.config, form.cleaned_data["name"])
    return _yaml_page(request, project, form.config, form.cleaned_data["name"], form.chosen_class)


def _from_yaml(request: HttpRequest, project: Project) -> HttpResponse:
    """Show pasted YAML as the form, or its problems next to their lines."""
    text, name, priority = request.POST.get("yaml", ""), request.POST.get("name", "")[:80], class_sent(request.POST)
    try:
        config = config_from_text(text)
    except YamlProblem as exc:
        context = _yaml_context(request, project, name, text, priority=priority, problems=exc.problems)
        return render(request, "runs/new.html", context, status=422)
    if request.POST.get("download") == "yes":
        return _yaml_download(config, name or "run")
    if "set" in request.POST:
        text = _text_set(text, request.POST["set"])
        context = _yaml_context(request, project, name, text, priority=priority, config=config)
        return render(request, "runs/new.html", context)
    name = name or suggested_name(project, config)
    form = RunForm(project=project, config=config, name=name, priority=priority or Priority.NORMAL)
    return render(request, "runs/new.html", form_context(request, project, form, imported=True))


def _yaml_page(
    request: HttpRequest, project: Project, config: JobConfig, name: str, priority: Priority | None
) -> HttpResponse:
    context = _yaml_context(request, project, name, config_to_yaml(config), priority=priority, config=config)
    return render(request, "runs/new.html", context)


def _text_set(text: str, values: str) -> str:
    """The text with options set, which the card of the memory offers; as it is where they are none."""
    try:
        return yaml_set(text, options_of(values))
    except YamlProblem:
        return text


@login_required
@require_http_methods(["GET", "POST"])
def run_needs(request: HttpRequest, slug: str) -> HttpResponse:
    """What a preset needs: GET looks, POST has it made in the background, and launched with ``launch``."""
    making = request.method == "POST"
    project = project_for(request.user, slug, need=Role.EDITOR if making else Role.VIEWER)
    chosen = chosen_of(request.POST if making else request.GET, project)
    if chosen is None:
        messages.error(request, _("There is no such preset."))
        return redirect("run-new", slug)
    problem = ""
    if making:
        try:
            background.preparation_open(
                project=project,
                user=cast(User, request.user),
                preset=chosen.preset,
                size=chosen.size,
                launch=request.POST.get("launch") == "yes",
            )
        except ValidationError as exc:
            problem = " ".join(exc.messages)
        chosen = chosen_of(request.POST, project) or chosen
    page = background.preset_page(project, chosen.preset.id, chosen.size)
    if request.headers.get("HX-Request") != "true":
        if problem:
            messages.error(request, problem)
        return redirect(page)
    ended = background.preparation_ended(project, request.GET.get("watched", ""))
    if ended is not None and ended.run is not None:
        return HttpResponse(headers={"HX-Redirect": reverse("run-detail", args=[slug, ended.run.pk])})
    failed = chosen.preparation is not None and chosen.preparation.state == PreparationState.FAILED
    if not problem and not failed and chosen.now.settled and not chosen.going_on:
        return HttpResponse(headers={"HX-Redirect": page})  # the form is filled with what was made
    context = {"project": project, "chosen": chosen, "problem": problem, "can_edit": can_edit(project)}
    return render(request, "runs/_needs.html", context)


@login_required
@require_POST
def preparation_leave(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Stop a preparation, or hide its failure."""
    project, item = own(request, slug, Preparation, pk, need=Role.EDITOR)
    background.preparation_drop(item=item)
    if request.POST.get("stay") == "yes":
        return redirect(background.preset_page(project, item.preset, item.size))
    return redirect("run-list", slug)


def _yaml_download(config: JobConfig, name: str) -> HttpResponse:
    response = HttpResponse(config_to_yaml(config), content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{name}.yaml") or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    return response


# The page *Rendered*: what a model would see of a dataset, and what a run would learn of it.

# Rows as a model reads them, before a run: ``python -m training rendered`` in its own process, with a wall limit.

SHOWN = 4
"""Rows on a page."""
WALL_LIMIT_S = 60.0
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class View:
    """The content of the page: rows and counts, or one sentence why there are none."""

    found: Rendered | None = None
    problem: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    @property
    def percent(self) -> float:
        """Tokens that are learned, in percent of all."""
        return 100 * self.found.learned / self.found.tokens if self.found and self.found.tokens else 0.0


def rendered(project: Project, dataset: str, model: str, first: int) -> View:
    """The rows of a dataset from number ``first`` on, as ``model`` reads them; both are references of the project."""
    job = {"kind": "sft", "model": {"source": model}, "data": {"train": dataset}}
    try:
        config = resolve(project, JobConfig.model_validate(job)).config
    except ConfigError as exc:
        return View(problem=capfirst(in_words(exc.sentence)))
    except pydantic.ValidationError:
        return View(problem=_("Choose a dataset and a model."))
    source = config.model.source
    if source != "starter" and not Path(source).is_dir():
        return View(problem=_("The files of this model are not here yet, so nothing can be rendered with it."))
    return _render_in_child(Path(config.data.train), source, first)


def _render_in_child(rows: Path, model: str, first: int) -> View:
    command = [sys.executable, "-m", "training", "rendered", str(rows), "--model", model]
    command += ["--first", str(first), "--count", str(SHOWN)]
    with one_of_few(WALL_LIMIT_S / 2) as free, tempfile.TemporaryFile(dir=settings.DATA_DIR) as err:
        if not free:
            return View(problem=_("Other checks are still running. Try again in a moment."))
        with limited_child(
            command, wall_s=WALL_LIMIT_S, env=child_environment({}), stderr=err, cwd=settings.BASE_DIR
        ) as child:
            printed = child.output(MAX_BYTES)
            in_time = child.wait()
        err.seek(0)
        stderr_text = err.read(2000).decode("utf-8", "replace").strip()
    if not in_time:
        return View(problem=_("Rendering took longer than %(s)g seconds.") % {"s": WALL_LIMIT_S})
    try:
        return _view_of_rendered(Rendered.model_validate_json(printed or b""))
    except pydantic.ValidationError:
        return View(
            problem=stderr_text.splitlines()[-1] if stderr_text else _("The rows could not be rendered on this server.")
        )


def _view_of_rendered(found: Rendered) -> View:
    rows = [
        {
            "item": row,
            "tokens": sum(len(part.tokens) for part in row.parts),
            "learned": _learned_tokens(row),
            "why": _reason_text(row),
        }
        for row in found.rows
    ]
    left_out = [(count, in_words(why_words(code, "sft.max_length"))) for code, count in found.left_out.items()]
    return View(found, rows=rows, left_out=left_out)


def _learned_tokens(row: RenderedRow) -> int:
    return sum(len(part.tokens) for part in row.parts if part.kind == "learned")


def _reason_text(row: RenderedRow) -> str:
    return in_words(why_words(row.why, "sft.max_length")) if row.why else ""


@login_required
@require_GET
def run_rendered(request: HttpRequest, slug: str) -> HttpResponse:
    """A dataset and a model to choose; the page asks for their rows by itself once both are chosen."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    choices = reference_choices(project)
    query: dict[str, str | int] = {"dataset": dataset, "model": model, "first": first}
    context = {
        "project": project,
        "datasets": choices["data.train"],
        "models": [choice for choice in choices["model.source"] if kind_in(choice[0]) != "endpoint"],
        "dataset": dataset,
        "model": model,
        "query": urlencode(query),
    }
    return render(request, "runs/rendered.html", context)


@login_required
@require_GET
def run_rendered_rows(request: HttpRequest, slug: str) -> HttpResponse:
    """The rows themselves, which takes some seconds."""
    project = project_for(request.user, slug)
    dataset, model, first = _query_of(request)
    view = rendered(project, dataset, model, first)
    shown = {"view": view, "first": first, "last": first + SHOWN - 1, "next": first + SHOWN}
    before = max(1, first - SHOWN) if first > 1 else None
    context = {"project": project, "dataset": dataset, "model": model, "before": before, **shown}
    return render(request, "runs/_rendered.html", context)


@login_required
@require_POST
def run_rendered_of_form(request: HttpRequest, slug: str) -> HttpResponse:
    """From the form of a new run to the page of its dataset and model."""
    project = project_for(request.user, slug)
    chosen = {"dataset": request.POST.get("data.train", ""), "model": request.POST.get("model.source", "")}
    return redirect(f"{reverse('run-rendered', args=[project.slug])}?{urlencode(chosen)}")


def _query_of(request: HttpRequest) -> tuple[str, str, int]:
    """The dataset, the model, and the number of the first row."""
    number = number_in(request.GET.get("first", ""), 8) or 1
    return request.GET.get("dataset", ""), request.GET.get("model", ""), number
