"""Pages that play a spec in runs of kind ``sample``, and the figures of a test-bed."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast, get_args
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from training.config import JobConfig, Policy, RewardComponent, SampleConfig
from training.errors import ConfigError
from training.rewards.combining import term_of
from training.rewards.lab import RIGHT, SILENT
from training.rewards.scoring import COMPONENTS
from webapp.common.pages import add_errors, probe_allowed
from webapp.launch.background import check_record, launch_checked
from webapp.launch.findings import Outcome
from webapp.launch.forms import reference_choices, suggested_name
from webapp.launch.preflight import preflight
from webapp.people.teams.access import own
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.selectors import specs_of
from webapp.runs.config import config_of, title_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

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
            idempotency_key=form.cleaned_data["idempotency_key"],
            anyway=request.POST.get("launch_anyway") == "yes",
        )
    except ValidationError as exc:
        add_errors(form, exc)
    except ConfigError as exc:
        form.place(exc.option, exc.sentence)
    return None


# The figures of a test-bed: the reward that each scripted policy earned, and the best that the spec can give.

MAX_ROLLOUTS = 20_000
PAYS, TEMPTS = 0.5, 0.1  # shares of the best reward


class PolicyRow(NamedTuple):
    """One policy: means over its scored rollouts, ``None`` where there is none.

    ``share`` is its reward as a percentage of the scale, from 0 to 100; ``level`` is "bad" where nothing was done and
    much was paid, "warn" where something was, "refused" where a right answer earned little, else "ok" or "none".
    """

    name: str
    meaning: str
    reward: float | None
    parts: list[tuple[str, float | None]]
    turns: float | None
    tokens: float | None
    rollouts: int
    excluded: int
    share: int
    level: str


class PolicyTable(NamedTuple):
    """The table; ``best`` is ``None`` where it is not known, and ``why`` says why.

    ``paid`` did not do the task and earned much; ``refused`` gave the right answer and earned little.
    """

    rows: list[PolicyRow]
    components: list[tuple[str, str]]
    best: float | None
    why: str
    paid: list[str]
    refused: list[str]


def policy_table(run: Run) -> PolicyTable | None:
    """The table of a run that scripted policies play; ``None`` for any other run."""
    config = config_of(run) if run.method.scripted else None
    if config is None or not config.policies:
        return None
    components = config.rewards.components
    best, why = best_reward(components)
    found = _newest_policy_rows(run)
    means = {name: _known_mean(row["reward"] for row in found if row["policy"] == name) for name in config.policies}
    top = best if best else max((value for value in means.values() if value is not None), default=0.0)
    rows = [
        _policy_row(name, [row for row in found if row["policy"] == name], components, best, top)
        for name in config.policies
    ]
    rows.sort(key=lambda row: -math.inf if row.reward is None else row.reward, reverse=True)
    paid = [row.name for row in rows if row.level == "bad"]
    refused = [row.name for row in rows if row.level == "refused"]
    return PolicyTable(rows, [(item.name, title_of(item)) for item in components], best, why, paid, refused)


def _newest_policy_rows(run: Run) -> list[dict[str, Any]]:
    """The rollouts of policies, of each step those of its newest attempt."""
    rows = Rollout.objects.filter(run=run).exclude(policy="").order_by("-attempt", "-step")
    fields = ("policy", "attempt", "step", "status", "reward", "parts", "turns", "tokens")
    found = list(rows.values(*fields)[:MAX_ROLLOUTS])
    newest: dict[int, int] = {}
    for row in found:
        newest[row["step"]] = max(row["attempt"], newest.get(row["step"], 0))
    return [row for row in found if row["attempt"] == newest[row["step"]]]


def _policy_row(
    name: str, found: Sequence[dict[str, Any]], components: Sequence[RewardComponent], best: float | None, top: float
) -> PolicyRow:
    scored = [row for row in found if row["reward"] is not None]
    reward = _known_mean(row["reward"] for row in scored)
    tokens = _known_mean(row["tokens"] for row in scored)
    share = 0.0 if reward is None or top <= 0 else max(0.0, min(1.0, reward / top))
    return PolicyRow(
        name,
        _(_policy_titles().get(name, name)),
        reward,
        [(item.name, _known_mean(row["parts"].get(item.name) for row in scored)) for item in components],
        _known_mean(row["turns"] for row in scored),
        tokens,
        len(found),
        sum(row["status"] == RolloutStatus.EXCLUDED for row in found),
        round(100 * share),
        _right_level(reward, best, tokens) if name in RIGHT else _pay_level(reward, best),
    )


def _pay_level(reward: float | None, best: float | None) -> str:
    """A level for the reward of a policy that did nothing, relative to the best, or else to 1 (a solved task)."""
    if reward is None:
        return "none"
    share = reward / (best or 1.0)
    return "bad" if share >= PAYS else "warn" if share >= TEMPTS else "ok"


def _right_level(reward: float | None, best: float | None, tokens: float | None) -> str:
    """Of a policy that gives the right answer: it should be paid, where it had an answer to give."""
    if reward is None or tokens is None or tokens <= max(SILENT):
        return "none"
    return "ok" if reward >= PAYS * (best or 1.0) else "refused"


def _policy_titles() -> dict[str, str]:
    extra = SampleConfig.model_fields["policies"].json_schema_extra
    return dict(extra["choices"]) if isinstance(extra, dict) and isinstance(extra["choices"], dict) else {}  # type: ignore[arg-type]


def _known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known else None


def best_reward(components: Sequence[RewardComponent]) -> tuple[float | None, str]:
    """The highest reward that a spec can give, by the bounds of its components, and else why it is not known."""
    total = 0.0
    for item in components:
        known = COMPONENTS.get(item.registered)
        if item.weight == 0:
            continue
        plain = item.model_copy(update={"gate": None, "schedule": None})
        raw = math.inf if known is None else known.high if item.weight > 0 else known.low
        term = term_of(plain, {item.name: raw}) or 0.0
        if not math.isfinite(term):
            text = _("“%(name)s” has no upper bound: a higher value always earns more.")
            return None, text % {"name": title_of(item)}
        if known is None or (item.clip is None and item.params != {} and not _has_default_params(item)):
            text = _("The parameters of “%(name)s” were changed, so its highest value is unknown.")
            return None, text % {"name": title_of(item)}
        total += item.weight * term
    return total, ""


def _has_default_params(item: RewardComponent) -> bool:
    """Whether its parameters are those by which the bounds are stated."""
    params = COMPONENTS[item.registered].params
    return params.model_validate(item.params) == params()
