"""Pages that play a spec against an environment: they launch runs of kind ``sample``."""

from __future__ import annotations

import uuid
from typing import Any, cast, get_args
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from training.config import JobConfig, Policy
from training.errors import ConfigError
from webapp.common.pages import add_errors, probe_allowed
from webapp.launch.checked import check_record, launch_checked
from webapp.launch.findings import Outcome
from webapp.launch.forms import reference_choices, suggested_name
from webapp.launch.preflight import preflight
from webapp.people.teams.access import own
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.selectors import specs_of
from webapp.runs.models import Run

# --- Play forms -----------------------------------------------------------------------------------------------------
# The short forms that play a spec: the test-bed of scripted policies, and a handful of rollouts of a model.

ROLLOUTS_AT_ONCE = 96
"""What a server has room for: each task is played once by every policy."""
TASKS_AT_ONCE = 16
ENOUGH_WORDS = 262_144  # scripted policies read no prompt, so no prompt is too long for them
FIELD_OF = {
    "environment.name": "environment",
    "environment.url": "environment",
    "data.train": "dataset",
    "model.source": "model",
    "rollout.num_generations": "generations",
}


class BedForm(forms.Form):
    """Which environment is played, on which tasks, and how long."""

    base_name = "test-bed of"
    tasks_at_once = ROLLOUTS_AT_ONCE // len(get_args(Policy))
    environment = forms.ChoiceField(
        label=gettext_lazy("Environment"), help_text=gettext_lazy("Every episode is played on its servers.")
    )
    dataset = forms.ChoiceField(
        label=gettext_lazy("Tasks"),
        required=False,
        help_text=gettext_lazy(
            "Rewards that compare with an answer in the row need a dataset; without one the environment draws tasks."
        ),
    )
    tasks = forms.IntegerField(label=gettext_lazy("Number of tasks"), min_value=1, max_value=256, initial=16)
    turns = forms.IntegerField(
        label=gettext_lazy("Turns at most"),
        min_value=1,
        max_value=200,
        initial=30,
        help_text=gettext_lazy("Longer episodes are cut off."),
    )
    idempotency_key = forms.CharField(widget=forms.HiddenInput, max_length=64, required=False)

    def __init__(self, data: Any = None, *, project: Project, spec: RewardSpec) -> None:
        super().__init__(data, initial={"idempotency_key": uuid.uuid4().hex})
        self.spec = spec
        offered = reference_choices(project)
        self._choose("environment", offered["environment.name"])
        drawn = ("", _("— drawn by the environment —"))
        self._choose("dataset", [drawn, *(item for item in offered["data.train"] if item[0])])
        self.models = offered["model.source"]

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared above
        field.choices = choices

    def config(self) -> JobConfig:
        """The job of a valid form."""
        return JobConfig.model_validate(self.job())

    def job(self) -> dict[str, Any]:
        """The job's options: all policies, tasks in batches that a server has room for."""
        data = self.cleaned_data
        at_once = max(count for count in range(1, self.tasks_at_once + 1) if data["tasks"] % count == 0)
        return {
            "kind": "sample",
            "data": {"train": data["dataset"]},
            "environment": {"name": data["environment"]},
            "rewards": {"spec": self.spec.reference},
            "rollout": {
                "prompts_per_step": at_once,
                "max_turns": data["turns"],
                "max_turn_tokens": 256,
                "max_completion_tokens": ENOUGH_WORDS,
                "max_prompt_tokens": ENOUGH_WORDS,
            },
            "sample": {"policies": list(get_args(Policy))},
            "run": {"max_steps": data["tasks"] // at_once},
        }

    def place(self, path: str, sentence: str) -> None:
        """Show a problem of an option next to the field that it comes from."""
        field = FIELD_OF.get(path)
        self.add_error(field if field in self.fields else None, sentence)


class SampleForm(BedForm):
    """A model plays, several times on each task."""

    base_name = "sample of"
    tasks_at_once = TASKS_AT_ONCE
    model = forms.ChoiceField(label=gettext_lazy("Model"))
    generations = forms.IntegerField(
        label=gettext_lazy("Rollouts of each task"),
        min_value=2,
        max_value=64,
        initial=8,
        help_text=gettext_lazy("They form a group; a run would learn from the reward differences in it."),
    )
    field_order = ("model", "environment", "dataset", "tasks", "generations", "turns")

    def __init__(self, data: Any = None, *, project: Project, spec: RewardSpec) -> None:
        super().__init__(data, project=project, spec=spec)
        self.fields["turns"].initial = 8
        self._choose("model", self.models)

    def job(self) -> dict[str, Any]:
        """The same job, played by the model within a model's limits."""
        job, data = super().job(), self.cleaned_data
        limits = {"max_turn_tokens": 256, "max_completion_tokens": 4096, "max_prompt_tokens": 8192}
        return job | {
            "model": {"source": data["model"]},
            "sample": {},
            "rollout": job["rollout"] | limits | {"num_generations": data["generations"]},
        }


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
    project, spec = own(request, slug, RewardSpec, pk, need=Role.EDITOR, within=specs_of)
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
