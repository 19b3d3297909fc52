"""Pages of suites."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.config import JobConfig
from training.errors import ConfigError
from training.plain import number_in
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.evaluation.suites import services
from webapp.evaluation.suites.models import Suite, SuiteVersion
from webapp.launch.forms import reference_choices
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.config import config_of
from webapp.runs.models import Run

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form of a suite: the options of all parts, and a row for each part.

ROWS = 4
MOST_ROWS = 12


class SuiteForm(forms.Form):
    """The options of the whole suite."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=80, validators=[name_validator])
    note = forms.CharField(
        label=gettext_lazy("What it is for"),
        max_length=500,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    samples = forms.IntegerField(
        label=gettext_lazy("Tries of a task"),
        min_value=1,
        max_value=64,
        initial=4,
        help_text=gettext_lazy("More tries make each task surer and give pass@k and pass^k."),
    )
    temperature = forms.FloatField(label=gettext_lazy("Temperature"), min_value=0.01, max_value=2, initial=1.0)
    max_turns = forms.IntegerField(label=gettext_lazy("Turns at most"), min_value=1, max_value=1000, initial=10)
    seed = forms.IntegerField(
        label=gettext_lazy("Seed"),
        min_value=0,
        max_value=2**31 - 1,
        initial=42,
        help_text=gettext_lazy("The same for all contestants, so that all play the same episodes."),
    )

    def __init__(self, *args: Any, version: SuiteVersion | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if version is not None:
            del self.fields["name"]


class PartForm(forms.Form):
    """One part. ``base`` is where the options that the form does not show come from."""

    base = forms.CharField(required=False, max_length=60, widget=forms.HiddenInput)
    title = forms.CharField(label=gettext_lazy("Title"), max_length=60, required=False)
    weight = forms.FloatField(label=gettext_lazy("Weight"), min_value=0, max_value=1000, required=False)
    dataset = forms.ChoiceField(label=gettext_lazy("Dataset"), required=False)
    environment = forms.ChoiceField(label=gettext_lazy("Environment"), required=False)
    spec = forms.ChoiceField(label=gettext_lazy("Reward spec"), required=False)
    tasks = forms.IntegerField(
        label=gettext_lazy("Tasks"), min_value=0, max_value=1_000_000, required=False, help_text=gettext_lazy("0: all")
    )
    share = forms.FloatField(
        label=gettext_lazy("Held-out share"),
        min_value=0,
        max_value=0.5,
        required=False,
        help_text=gettext_lazy("Only the rows that runs with this share held out; 0: all rows."),
    )

    def __init__(self, *args: Any, project: Project, choices: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        drawn = ("", _("— drawn by the environment —"))
        options = {
            "dataset": [drawn, *choices["data.train"][1:]],
            "environment": choices["environment.name"],
            "spec": [("", _("— the default components —")), *choices["rewards.spec"][1:]],
        }
        for field, offered in options.items():
            current = str(self.initial.get(field) or "")
            if current and current not in dict(offered):
                offered = [*offered, (current, current)]
            self.fields[field].choices = offered  # type: ignore[attr-defined]

    @property
    def empty(self) -> bool:
        """Whether the form was left empty."""
        return not any(self.cleaned_data.get(name) for name in ("title", "dataset", "environment"))

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if (data.get("title") or data.get("dataset")) and not data.get("environment"):
            self.add_error("environment", _("Choose an environment, or `none`."))
        return data


def part_forms(project: Project, data: Any = None, rows: list[dict[str, Any]] | None = None) -> list[PartForm]:
    """A form for each row, some of them empty."""
    choices = reference_choices(project)
    filled = rows or []
    count = min(MOST_ROWS, max(ROWS, len(filled) + 1))
    if data is not None:
        count = min(MOST_ROWS, max([count, *(n + 1 for n in range(MOST_ROWS) if f"part{n}-weight" in data)]))
    return [
        PartForm(
            data,
            prefix=f"part{number}",
            project=project,
            choices=choices,
            initial=filled[number] if number < len(filled) else {"weight": 1},
        )
        for number in range(count)
    ]


def rows_of_version(version: SuiteVersion) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The initial values of a version's forms: the common options, as the first part has them, and a row for each
    part."""
    first = JobConfig.model_validate(version.parts[0]["config"])
    rows = [
        _form_row(JobConfig.model_validate(part["config"]), f"part:{number}", part["title"], part["weight"])
        for number, part in enumerate(version.parts)
    ]
    return _common_options(first) | {"note": version.suite.note}, rows


def rows_of_runs(runs: list[Run]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same of evaluations that a suite is to repeat."""
    written = [(run, JobConfig.model_validate(run.config)) for run in runs if config_of(run) is not None]
    rows = [_form_row(config, f"run:{run.pk}", _part_title(config), 1.0) for run, config in written]
    return (_common_options(written[0][1]) if written else {}), rows


def _common_options(config: JobConfig) -> dict[str, Any]:
    return {
        "samples": config.rollout.num_generations,
        "temperature": config.rollout.temperature,
        "max_turns": config.rollout.max_turns,
        "seed": config.run.seed,
    }


def _part_title(config: JobConfig) -> str:
    reference = config.data.train or config.environment.name
    return reference.partition(":")[2].partition("@")[0][:60] or "tasks"


def _form_row(config: JobConfig, base: str, title: str, weight: float) -> dict[str, Any]:
    return {
        "base": base,
        "title": title,
        "weight": weight,
        "dataset": config.data.train,
        "environment": config.environment.name,
        "spec": config.rewards.spec,
        "tasks": config.evaluate.tasks,
        "share": config.evaluate.share,
    }


def parts_from(
    project: Project, common: dict[str, Any], forms_filled: list[PartForm], version: SuiteVersion | None = None
) -> list[dict[str, Any]]:
    """The parts that the forms describe, as services take them."""
    parts = []
    for form in forms_filled:
        if form.empty:
            continue
        row = form.cleaned_data
        config = _base_config(project, row["base"], version)
        config["kind"] = "evaluate"
        config["data"] = config.get("data", {}) | {"train": row["dataset"]}
        config["environment"] = config.get("environment", {}) | {"name": row["environment"]}
        rewards = config.get("rewards", {}) | {"spec": row["spec"]}
        config["rewards"] = rewards | ({"components": []} if row["spec"] else {})
        config["rollout"] = config.get("rollout", {}) | {
            "num_generations": common["samples"],
            "temperature": common["temperature"],
            "max_turns": common["max_turns"],
        }
        config["evaluate"] = config.get("evaluate", {}) | {
            "tasks": row["tasks"] or 0,
            "share": row["share"] or 0.0,
        }
        config["run"] = config.get("run", {}) | {"seed": common["seed"]}
        weight = 1.0 if row["weight"] is None else row["weight"]
        title = row["title"] or _part_title(JobConfig.model_validate(config))
        parts.append({"title": title, "weight": weight, "config": config})
    return parts


def _base_config(project: Project, base: str, version: SuiteVersion | None) -> dict[str, Any]:
    """The options that the form does not show: of the part or the run that the row came from."""
    word, _colon, value = base.partition(":")
    if word == "part" and version is not None:
        place = number_in(value)
        return dict(version.parts[place]["config"]) if place is not None and place < len(version.parts) else {}
    if word == "run":
        run = Run.objects.filter(project=project, pk=value).first() if is_uuid(value) else None
        return dict(run.config) if run is not None else {}
    return {}


def is_uuid(text: str) -> bool:
    """Whether a text can be the id of an object."""
    return len(text) == 36 and all(c in "0123456789abcdef-" for c in text)


SHOWN = 100


@login_required
@require_GET
def suite_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The project's suites, each with the best that has played its newest version."""
    project = project_for(request.user, slug)
    rows: list[tuple[Suite, services.SuiteBoard]] = []
    for suite in Suite.objects.filter(project=project)[:SHOWN]:
        newest = suite.versions.first()
        if newest is not None:
            rows.append((suite, services.board_of(newest, judged=False)))
    return render(request, "suites/list.html", {"project": project, "rows": rows, "can_edit": can_edit(project)})


@login_required
@require_http_methods(["GET", "POST"])
def suite_new(request: HttpRequest, slug: str) -> HttpResponse:
    """A new suite; ``c`` names evaluations that it repeats, as the address of a comparison does."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "POST":
        return _save_suite(request, project, None)
    ids = [value for value in request.GET.getlist("c")[:MOST_ROWS] if is_uuid(value)]
    runs = [run for run in Run.objects.filter(project=project, pk__in=ids) if run.method.evaluates]
    common, rows = rows_of_runs(runs)
    return _render_form(request, project, SuiteForm(initial=common), part_forms(project, rows=rows))


@login_required
@require_http_methods(["GET", "POST"])
def suite_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change a suite: other parts make a new version."""
    project, suite = own(request, slug, Suite, pk, need=Role.EDITOR)
    version = _version_of(suite, "")
    if request.method == "POST":
        return _save_suite(request, project, version)
    common, rows = rows_of_version(version)
    form = SuiteForm(initial=common, version=version)
    return _render_form(request, project, form, part_forms(project, rows=rows), version)


def _save_suite(request: HttpRequest, project: Project, version: SuiteVersion | None) -> HttpResponse:
    form = SuiteForm(request.POST, version=version)
    rows = part_forms(project, request.POST, rows_of_version(version)[1] if version else None)
    whole = [form.is_valid(), *[row.is_valid() for row in rows]]
    if not all(whole):
        return _render_form(request, project, form, rows, version, status=422)
    common, user = form.cleaned_data, cast(User, request.user)
    parts = parts_from(project, common, rows, version)
    try:
        if version is None:
            made = services.suite_create(
                project=project, user=user, name=common["name"], note=common["note"], parts=parts
            )
            messages.success(request, _("%(name)s is saved. Have a model play it.") % {"name": made.suite.name})
        else:
            made, new = services.suite_change(suite=version.suite, user=user, parts=parts, note=common["note"])
            message = (
                _("Version %(n)d is saved; it begins without scores.") if new else _("Saved; the parts are the same.")
            )
            messages.success(request, message % {"n": made.number} if new else message)
    except ValidationError as exc:
        add_errors(form, exc)
        return _render_form(request, project, form, rows, version, status=422)
    return redirect("suite-detail", slug=project.slug, pk=made.suite_id)


def _render_form(
    request: HttpRequest,
    project: Project,
    form: SuiteForm,
    rows: list[PartForm],
    version: SuiteVersion | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {"project": project, "form": form, "rows": rows, "version": version}
    return render(request, "suites/form.html", context, status=status)


def _version_of(suite: Suite, raw: str) -> SuiteVersion:
    rows = suite.versions.order_by("-number")
    number = number_in(raw, 8)
    found = rows.first() if number is None else rows.filter(number=number).first()
    if found is None:
        raise Http404
    return found


@login_required
@require_GET
def suite_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """A version of a suite with its leaderboard."""
    project, suite = own(request, slug, Suite, pk)
    asked = request.GET.get("version", "")
    versions = list(suite.versions.order_by("-number")[:SHOWN])
    listed = (item for item in versions if asked in ("", str(item.number)))
    version = next(listed, None) or _version_of(suite, asked)
    board = services.board_of(version)
    context = {
        "project": project,
        "suite": suite,
        "version": version,
        "versions": versions,
        "board": board,
        "compare": _compare_links(project, board),
        "offered": services.contestants_offered(project) if can_edit(project) else [],
        "chosen": request.GET.get("contestant", "")[:200],
        "can_edit": can_edit(project),
    }
    return render(request, "suites/detail.html", context)


def _compare_links(project: Project, board: services.SuiteBoard) -> list[tuple[str, str]]:
    """For each part a comparison of the board's first contestants, task by task."""
    links = []
    for place, part in enumerate(board.version.parts):
        runs = [line.parts[place].run for line in board.lines[:8]]
        ids = [str(run.pk) for run in runs if run is not None]
        if len(ids) > 1:
            address = reverse("compare", args=[project.slug])
            links.append((str(part["title"]), f"{address}?{'&'.join(f'c={one}' for one in ids)}"))
    return links


@login_required
@require_POST
def suite_evaluate_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Have a contestant play the newest version."""
    _project, suite = own(request, slug, Suite, pk, need=Role.EDITOR)
    contestant = request.POST.get("contestant", "")[:200]
    version = _version_of(suite, "")
    try:
        if not services.may_play(contestant):
            raise ValidationError(_("Choose who plays."))
        made = services.suite_evaluate(version=version, contestant=contestant, user=cast(User, request.user))
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    except ConfigError as exc:
        messages.error(request, exc.message)
    else:
        message = _("%(n)d evaluations are queued; their score is shown here once all have ended.")
        messages.success(request, message % {"n": made.runs.count()})
    return redirect("suite-detail", slug=slug, pk=pk)


@login_required
@require_POST
def suite_delete_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a suite; the runs that played it stay."""
    _project, suite = own(request, slug, Suite, pk, need=Role.EDITOR)
    services.suite_delete(suite=suite)
    messages.success(request, _("%(name)s is deleted; the runs that played it stay.") % {"name": suite.name})
    return redirect("suite-list", slug=slug)
