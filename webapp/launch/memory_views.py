"""The memory of a job next to its form: the card asks when the form changes, and again until a worker has the table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST
from pydantic import ValidationError as ShapeError

from training.config import JobConfig
from training.errors import ConfigError
from training.memory.devices import CLOSE, gib
from training.words import option_of
from webapp.common.fields import error_sentence
from webapp.common.text import in_words, translated
from webapp.common.words import failure
from webapp.engine.resolve import Resolved, components_meant, resolve
from webapp.launch import estimates
from webapp.launch.findings import YamlProblem, config_from_text, option_name
from webapp.launch.forms import RunForm
from webapp.launch.models import MemoryEstimate
from webapp.launch.start import Chosen
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, User
from webapp.rewards.cases import Paid, paid_for

# --- Memory view ----------------------------------------------------------------------------------------------------
# An estimate of memory as pages and the API show it, and a form or a YAML text as the job that it is about.

PARTS = ("kept", "learning", "sampling")
WIDE = 100.0  # a bar that fills its line


class Line(NamedTuple):
    """One term. ``width`` is of 100."""

    title: str
    size: str
    why: str
    width: float


class Part(NamedTuple):
    """Terms that are there at the same time. ``sum`` is all that is in memory then; ``largest``: nothing needs more."""

    key: str
    title: str
    sum: str
    largest: bool
    lines: list[Line]


class Change(NamedTuple):
    """Options that make the job fit. ``values`` are theirs by path, as JSON; empty where a stage says otherwise."""

    options: list[str]
    size: str
    values: str


class Table(NamedTuple):
    """The table of a job. ``level``: ok, close or short; ``used`` and ``edge`` are of 100: what the job needs, and
    where the device ends. ``note`` says how far it was checked."""

    level: str
    verdict: str
    hint: str
    note: str
    used: float
    edge: float
    parts: list[Part]
    change: Change | None


class MemoryView(NamedTuple):
    """The content of the card. ``state``: open, done, failed, dropped, none, unknown or invalid.

    ``sentence`` and ``hint`` replace the table; ``problems`` are the errors of the form. While it is ``open`` the table
    may be the earlier one.
    """

    state: str
    row: MemoryEstimate | None = None
    table: Table | None = None
    sentence: str = ""
    hint: str = ""
    problems: tuple[str, ...] = ()
    shown: MemoryEstimate | None = None

    @property
    def seconds(self) -> float:
        """For how many seconds the estimate has been waited for."""
        return (timezone.now() - self.row.created_at).total_seconds() if self.row is not None else 0.0


class Problems(Exception):
    """The form is not a valid job yet."""

    def __init__(self, found: list[str]) -> None:
        super().__init__("; ".join(found))
        self.found = found


# --- From what was sent ---------------------------------------------------------------------------------------------
class Sent(NamedTuple):
    """The job that was sent, and what it means where that is known already."""

    config: JobConfig
    resolved: Resolved | None = None


def job_of(data: QueryDict, project: Project, left_out: Collection[str] = estimates.UNRELATED) -> Sent:
    """The job of a form, or of a YAML text. Where the form is not filled in yet, the groups ``left_out`` have their
    defaults: by default all that memory does not depend on. Raises ``Problems``."""
    if "yaml" in data:
        return Sent(_job_of_yaml(str(data["yaml"])))
    form = RunForm(data, project=project)
    if form.is_valid() and form.config is not None:
        return Sent(form.config, form.resolved)
    raw: dict[str, Any] = {"kind": form.cleaned_data.get("kind", form.kind)}
    for path, value in form.cleaned_data.items():
        group, dot, option = path.partition(".")
        if dot and group not in left_out:
            raw.setdefault(group, {})[option] = value
    wrong = [path for path in form.errors if (path.partition(".")[0] in raw and "." in path) or path == "kind"]
    if wrong:
        raise Problems([f"{form[path].label}: {text}" for path in wrong for text in form.errors[path]])
    try:
        return Sent(JobConfig.model_validate(raw))
    except ShapeError as exc:
        found = exc.errors(include_url=False, include_input=False)
        raise Problems([_problem_line(option_of(error), error_sentence(error)) for error in found[:5]]) from exc


def _job_of_yaml(text: str) -> JobConfig:
    try:
        return config_from_text(text)
    except YamlProblem as exc:
        line = _("Line {line}: {problem}")
        found = [
            line.format(line=item.line, problem=_problem_line(item.path, item.message))
            if item.line
            else _problem_line(item.path, item.message)
            for item in exc.problems[:5]
        ]
        raise Problems(found) from exc


def _problem_line(option: str, sentence: str) -> str:
    return f"{option_name(option)}: {sentence}" if option else sentence


# --- To what is shown -----------------------------------------------------------------------------------------------
def view_of(asked: estimates.Asked, shown: MemoryEstimate | None = None) -> MemoryView:
    """The card for a job. ``shown`` is the estimate that the page has, for as long as there is no other."""
    if asked.nothing:
        sentence = _("Nothing is held on a device: no model of this job is loaded here.")
        return MemoryView("none", sentence=sentence)
    if asked.unknown or asked.row is None:
        return _unknown_shape_view(asked.unknown)
    return row_view(asked.row, shown)


def row_view(row: MemoryEstimate, shown: MemoryEstimate | None = None) -> MemoryView:
    """``view_of`` for a row."""
    if row.state == estimates.DONE:
        return MemoryView(row.state, row, _memory_table(row), shown=row)
    if row.state == estimates.OPEN:
        before = shown if shown is not None and shown.state == estimates.DONE else None
        return MemoryView(row.state, row, _memory_table(before) if before else None, shown=before)
    if row.state == estimates.FAILED:
        return _failed_view(row)
    return MemoryView(row.state, row, sentence=_("Cancelled: you asked for another estimate meanwhile."))


def refused_view(error: ConfigError) -> MemoryView:
    """The view for a model that is not there."""
    return MemoryView("invalid", problems=(_problem_line(error.option, in_words(error.sentence)),))


def _unknown_shape_view(source: str) -> MemoryView:
    sentence = _("The shape of {model} is not known here, so its memory cannot be estimated.")
    hint = _(
        "Put its folder (config.json and safetensors) into the models folder and register it; its memory is then "
        "shown here. Otherwise the run tries its longest rows before the first step."
    )
    return MemoryView("unknown", sentence=sentence.format(model=source), hint=hint)


def _failed_view(row: MemoryEstimate) -> MemoryView:
    shown = failure(row.answer.get("error"))
    if shown is None:
        return MemoryView(row.state, row)
    hint = " ".join(part for part in (shown.detail, shown.hint) if part)
    return MemoryView(row.state, row, sentence=shown.title, hint=hint)


def _memory_table(row: MemoryEstimate) -> Table:
    answer = row.answer
    whole, device = int(answer["whole"]), int(answer["device"]["bytes"])
    scale = max(whole, device)
    level = "short" if not answer["fits"] else "close" if whole > CLOSE * device else "ok"
    sentences = answer["told"]
    return Table(
        level=level,
        verdict=in_words(sentences["verdict"]),
        hint=in_words(sentences["hint"]),
        note=in_words(answer.get("note")),
        used=WIDE * whole / scale,
        edge=WIDE * device / scale,
        parts=[part for key in PARTS if (part := _table_part(key, answer, whole)).lines],
        change=_suggested_change(row) if answer.get("change") else None,
    )


def _table_part(key: str, answer: Mapping[str, Any], whole: int) -> Part:
    titles = {"kept": _("Kept for the whole run"), "learning": _("While learning"), "sampling": _("While sampling")}
    terms = [term for term in answer["terms"] if term["part"] == key]
    kept = sum(term["bytes"] for term in answer["terms"] if term["part"] == "kept")
    total = kept if key == "kept" else int(answer[key])
    most = max(term["bytes"] for term in answer["terms"]) or 1
    lines = [
        Line(translated(term["title"]), gib(term["bytes"]), in_words(term["told"]), WIDE * term["bytes"] / most)
        for term in terms
    ]
    return Part(key, titles[key], gib(total), key != "kept" and total == whole, lines)


def _suggested_change(row: MemoryEstimate) -> Change:
    values: dict[str, Any] = row.answer["change"]
    options = [f"{option_name(path)}: {_value_text(value)}" for path, value in values.items()]
    stages = row.config.get("curriculum", {}).get("stages", [])
    counts = not any(_stage_sets(stage, path) for stage in stages for path in values)
    return Change(options, gib(int(row.answer["changed"])), json.dumps(values) if counts else "")


def _stage_sets(stage: Mapping[str, Any], path: str) -> bool:
    """Whether a stage sets the option itself, which hides the run's value."""
    group, _dot, option = path.partition(".")
    return option in (stage.get(group) or {})


def _value_text(value: Any) -> str:
    return (_("on") if value else _("off")) if isinstance(value, bool) else str(value)


DEVICE = "memory_device"  # the select of the card; no option of the job


def device_context(request: HttpRequest, config: JobConfig | None, chosen: Chosen | None = None) -> dict[str, Any]:
    """The devices that the card offers, and the one that is chosen: the person's, else what suits the job."""
    preset = chosen.preset if chosen is not None and chosen.size == "full" else None
    device, own = request.POST.get(DEVICE, ""), estimates.own_devices()
    if not estimates.device_known(device):
        device = estimates.device_default(config, preset, own)
    return {"own_devices": own, "other_devices": estimates.other_devices(), "device": device}


@login_required
@require_POST
def run_memory(request: HttpRequest, slug: str) -> HttpResponse:
    """The memory card for the job of a form or a YAML text: with its table, or while it is computed."""
    project = project_for(request.user, slug)
    device, paid = request.POST.get(DEVICE, ""), None
    try:
        config, resolved = job_of(request.POST, project)
        paid = _paid_for(project, config, resolved, request.POST.get("rewards.spec", ""))
        asked = estimates.estimate_begin(
            project=project,
            user=cast(User, request.user),
            config=config,
            device=device if estimates.device_known(device) else estimates.device_default(config),
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
    """The progress of an estimate; the card asks for this until it is done."""
    project, row = own(request, slug, MemoryEstimate, pk)
    return _render_card(request, project, row_view(row, _shown_estimate(project, request.GET.get("shown", ""))))


def _shown_estimate(project: Project, pk: str) -> MemoryEstimate | None:
    """The estimate that the page shows until there is another."""
    try:
        return project.memory_estimates.filter(pk=UUID(pk)).first()
    except ValueError:
        return None


def _paid_for(project: Project, config: JobConfig, resolved: Resolved | None, spec: str) -> Paid | None:
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
        meant = resolved or resolve(project, config)
        return paid_for(project, meant.config.courses[0].rewards.components)
    except ConfigError:
        return None


def _render_card(request: HttpRequest, project: Project, view: MemoryView, **more: Any) -> HttpResponse:
    yaml = "yaml" in request.POST or request.GET.get("tab") == "yaml"
    context = {"project": project, "memory": view, "yaml_tab": yaml, "can_edit": can_edit(project), **more}
    context["of_form"] = request.method == "POST" and not yaml
    return render(request, "runs/_memory.html", context)
