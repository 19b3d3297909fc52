"""The form of a new run, made from ``training.config.JobConfig``: every option is a field named by its path.

``RunForm.config`` is the checked config. Errors that concern several options start with the path of the one they belong
to (``optim.micro_batch_size: …``) and are placed next to it.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms.boundfield import BoundField
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError
from pydantic.fields import FieldInfo

from training.config import DEFAULT_KIND, METHODS, JobConfig, Method, Part, RewardComponent, Stage, name_in
from training.words import option_of
from webapp.common.fields import YamlListField, error_sentence, fields_of, help_text
from webapp.common.ids import name_validator
from webapp.common.text import translated
from webapp.datasets.selectors import ready_datasets
from webapp.endpoints.selectors import endpoints_of
from webapp.engine.resolve import NO_ENVIRONMENT, Resolved
from webapp.environments.selectors import environments_of
from webapp.launch.held_out import hold_out
from webapp.people.teams.models import Project
from webapp.rewards.selectors import specs_of
from webapp.runs.config import Changed, differences
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import models_of, registered_as, unregistered_runs
from webapp.runs.states import TERMINAL, Priority

MAX_OPTIONS = 200
M = TypeVar("M", bound=Model)
# Docstrings of the config's groups, repeated here only so that makemessages finds them; a test compares them.
GROUP_HELP = (
    gettext_noop("The model that is trained, and how it is held in memory."),
    gettext_noop("What the model is trained on."),
    gettext_noop("The environment server that plays the episodes, and how long each stage may take."),
    gettext_noop("What is rewarded. Raw component values are stored for each rollout, weights applied on top."),
    gettext_noop("How trajectories are sampled."),
    gettext_noop("The vLLM server that samples, used where the sampler is `vllm`."),
    gettext_noop("The loss. TRL's GRPOTrainer computes it."),
    gettext_noop("REINFORCE with the mean of a group's other rollouts as the baseline, used by jobs of kind `rloo`."),
    gettext_noop(
        "Clipped policy gradient with a value head that predicts the return at each token, used by jobs of kind `ppo`."
    ),
    gettext_noop("Learning from preference pairs, used by jobs of kind `dpo`."),
    gettext_noop("Supervised fine-tuning, used by jobs of kind `sft`."),
    gettext_noop("Playing and scoring without training, used by jobs of kind `sample`."),
    gettext_noop(
        "Playing tasks without learning from them: jobs of kind `evaluate`, and training on rollouts every few steps."
    ),
    gettext_noop(
        "An OpenAI-compatible endpoint that plays instead of the model; one of the project is chosen as the model."
    ),
    gettext_noop("The optimiser (AdamW) and its batch."),
    gettext_noop("Several environments in one run: the groups of each sampling are divided among its parts."),
    gettext_noop("Stages of one run, each with its own data, rewards and options."),
    gettext_noop("On how many devices a model is trained, and by what."),
    gettext_noop("How long the job runs, how often it saves, and where."),
    gettext_noop("Other trackers that receive the run's metrics while it runs."),
)


class OptionField(NamedTuple):
    """One option as the template lays it out."""

    field: BoundField
    unit: str
    basic: bool
    path: str
    warning: str = ""
    default: str = ""  # as its control would show it


class OptionGroup(NamedTuple):
    """One fold of the form; ``kinds`` names the methods it matters to."""

    name: str
    title: str
    help: str
    basic: list[OptionField]
    more: list[OptionField]
    kinds: str
    relevant: bool
    open: bool


def option_groups() -> Iterator[tuple[str, type[BaseModel], FieldInfo]]:
    """The groups of the config in their order."""
    for name, info in JobConfig.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield name, info.annotation, info


class RunForm(forms.Form):
    """Name, and every option of ``JobConfig``."""

    use_required_attribute = False  # a hidden group must not keep the browser from sending the form
    name = forms.CharField(label=gettext_lazy("Name"), max_length=80, validators=[name_validator])
    idempotency_key = forms.CharField(widget=forms.HiddenInput, max_length=64, required=False)
    checkpoint = forms.ModelChoiceField(Checkpoint.objects.none(), widget=forms.HiddenInput, required=False)
    origin = forms.ModelChoiceField(Run.objects.none(), widget=forms.HiddenInput, required=False)
    draft = forms.ModelChoiceField(Run.objects.none(), widget=forms.HiddenInput, required=False)
    hold_out = forms.BooleanField(
        label=gettext_lazy("Hold tasks out, and evaluate on them"),
        help_text=gettext_lazy(
            "A tenth of the dataset, at least 32 tasks and at most half of it, is not trained on: it is played at the "
            "start and after each fifth of the run, and the best checkpoint is chosen by it. Remove the tick to train "
            "on all tasks; a share or a dataset under Evaluation takes its place."
        ),
        required=False,
    )
    priority = forms.ChoiceField(
        label=gettext_lazy("Priority"),
        help_text=gettext_lazy("Every run of a higher class goes first. Owners choose it, and can change it later."),
        choices=Priority.choices,
        required=False,
    )

    def __init__(
        self,
        data: Any = None,
        *,
        project: Project,
        config: JobConfig | None = None,
        name: str = "",
        checkpoint: Checkpoint | None = None,
        origin: Run | None = None,
        draft: Run | None = None,
        hold_out: bool = False,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        given = {"name": name, "checkpoint": checkpoint, "origin": origin, "draft": draft, "hold_out": hold_out}
        given["priority"] = priority
        super().__init__(data, initial=given | {"idempotency_key": uuid.uuid4().hex})
        self.project = project
        for field in ("origin", "draft"):
            self.fields[field].queryset = Run.objects.filter(project=project)  # type: ignore[attr-defined]
        self.fields["checkpoint"].queryset = Checkpoint.objects.filter(project=project).select_related("run")  # type: ignore[attr-defined]
        self.config: JobConfig | None = None
        self.resolved: Resolved | None = None  # where it was needed to read the form
        self.warnings: dict[str, str] = {}
        start = self.start = config or JobConfig()
        self._add_group("", JobConfig, start)
        for group, model, _info in option_groups():
            self._add_group(f"{group}.", model, getattr(start, group))
        self._reference_choices()
        mixed = bool(self.data.get("mix.parts") if self.is_bound else start.mix.parts)  # whose parts have their own
        self.fields["data.train"].required = not (self.method.draws_tasks or mixed)
        self.fields["rollout.num_generations"].error_messages["min_value"] = _(
            "A group needs at least 2 rollouts: with one there is no baseline, and nothing is learned."
        )
        self.fields["environment.name"].required = self.method.plays and not mixed

    def _add_group(self, prefix: str, model: type[BaseModel], values: BaseModel) -> None:
        made = fields_of(model)
        made.pop("version", None)
        for key, field in made.items():
            field.initial = getattr(values, key)
            self.fields[prefix + key] = field
        if prefix == "rewards.":
            info = model.model_fields["components"]
            self.fields["rewards.components"] = YamlListField(
                RewardComponent,
                wanted=_("Write a list, each item with name and weight."),
                label=translated(info.title),
                help_text=help_text(info.description),
                initial=cast(Any, values).components,
            )
        if prefix == "curriculum.":
            wanted = _("Write a list, each item with the name of a stage and its options.")
            self._add_list(prefix, model, "stages", Stage, wanted, cast(Any, values).stages)
        if prefix == "mix.":
            wanted = _("Write a list, each item with the name of a part, its weight and its options.")
            self._add_list(prefix, model, "parts", Part, wanted, cast(Any, values).parts)

    def _add_list(
        self, prefix: str, model: type[BaseModel], name: str, item: type[BaseModel], wanted: str, values: list[Any]
    ) -> None:
        """A list of parts of a run, as YAML."""
        info = model.model_fields[name]
        self.fields[prefix + name] = YamlListField(
            item,
            wanted=wanted,
            rows=12,
            brief=True,
            label=translated(info.title),
            help_text=help_text(info.description),
            initial=values,
        )

    def _reference_choices(self) -> None:
        """Selects for what the project has. A value from elsewhere (a clone, a YAML) stays visible as such."""
        choices = reference_choices(self.project)
        for path, options in choices.items():
            field = self.fields[path]
            current = str((self.data.get(path) if self.is_bound else field.initial) or "")
            if current and current not in dict(options):
                twin = registered_as(self.project, current) if path == "model.source" else ""
                if twin:  # the same weights under another name: listed once, as what the config says
                    options = [(current if value == twin else value, label) for value, label in options]
                else:
                    options.append((current, self._unlisted(current)))
            field.widget = forms.Select(choices=options)

    def _unlisted(self, value: str) -> str:
        """The label of a value that no list has: a run that is still training, or something from elsewhere."""
        name = name_in("run", value)
        if name != value and Run.objects.filter(project=self.project, name=name).exclude(state__in=TERMINAL).exists():
            return _("%(name)s · still training") % {"name": name}
        return _("%(value)s (not in this project)") % {"value": value}

    @property
    def chosen_class(self) -> Priority | None:
        """The class that was sent; ``None`` where the form had no such field."""
        return class_sent(self.cleaned_data)

    @cached_property
    def source(self) -> Checkpoint | None:
        """The checkpoint that the run starts from, if it is a child."""
        return cast(Checkpoint | None, self._hidden("checkpoint"))

    @cached_property
    def origin_run(self) -> Run | None:
        """The run whose config this form began with, if it was cloned or is continued."""
        return cast(Run | None, self._hidden("origin"))

    def _hidden(self, name: str) -> Any:
        try:
            return self.fields[name].clean(self[name].value())
        except ValidationError:
            return None

    def changed_options(self) -> list[Changed]:
        """The options in which the form differs from the run that it began with."""
        origin, config = self.origin_run, self.config if self.is_bound else self.start
        if origin is None or config is None:
            return []
        return differences(config_of(origin).model_dump(mode="json"), config.model_dump(mode="json"))

    @property
    def kind(self) -> str:
        """The method that is chosen now."""
        value = str(self["kind"].value() or DEFAULT_KIND)
        return value if value in METHODS else DEFAULT_KIND

    @property
    def method(self) -> Method:
        """Its row in the table of methods."""
        return METHODS[self.kind]

    @property
    def learning_kinds(self) -> str:
        """The methods that learn from rollouts, which may hold tasks out."""
        return " ".join(kind for kind, method in METHODS.items() if method.learns_from == "rollouts")

    @property
    def playing_kinds(self) -> str:
        """The methods that play rollouts, as the form's script reads them."""
        return " ".join(kind for kind, method in METHODS.items() if method.plays)

    def head_fields(self) -> list[OptionField]:
        """Options that belong to no group."""
        return [OptionField(self["kind"], "", True, "kind")]

    def option_groups(self) -> Iterator[OptionGroup]:
        """The groups with their options, basic ones first."""
        for name, model, info in option_groups():
            options = [self._option(name, key, option) for key, option in model.model_fields.items()]
            shown = [option for option in options if option is not None]
            more = [option for option in shown if not option.basic]
            kinds = " ".join(kind for kind, method in METHODS.items() if name in method.groups)
            yield OptionGroup(
                name,
                translated(info.title),
                translated((model.__doc__ or "").strip()),
                [option for option in shown if option.basic],
                more,
                kinds,
                name in self.method.groups,
                any(self.errors.get(option.path) or option.warning for option in more),
            )

    def _option(self, group: str, key: str, info: FieldInfo) -> OptionField | None:
        path = f"{group}.{key}"
        if path not in self.fields:
            return None
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        unit = str(extra.get("unit") or "")
        basic, default = bool(extra.get("basic")), _shown(info.get_default(call_default_factory=True))  # type: ignore[call-arg]
        return OptionField(self[path], translated(unit), basic, path, self.warnings.get(path, ""), default)

    def count(self) -> int:
        """How many options the form has."""
        return sum("." in path for path in self.fields)

    def clean(self) -> dict[str, Any]:
        """Build the config; each problem is shown next to its option."""
        cleaned = super().clean() or {}
        if any(path in self.errors for path in self.fields if path != "name"):
            return cleaned
        raw: dict[str, Any] = {"kind": cleaned["kind"]}
        for path, value in cleaned.items():
            group, dot, key = path.partition(".")
            if dot:
                raw.setdefault(group, {})[key] = value
        try:
            self.config = self._holding_out(raw) if cleaned["hold_out"] else JobConfig.model_validate(raw)
        except ShapeError as exc:
            for error in exc.errors(include_url=False, include_input=False):
                self.place(option_of(error), error_sentence(error))
        return cleaned

    def _holding_out(self, raw: dict[str, Any]) -> JobConfig:
        """The config with the default share held out, where it does not say itself what is. Raises ``ShapeError``."""
        every = raw["evaluate"]["every"]  # which no config may have without a share
        config = JobConfig.model_validate(raw | {"evaluate": raw["evaluate"] | {"every": 0}})
        self.resolved = hold_out(self.project, config, every)
        return config if config.evaluate.every else JobConfig.model_validate(raw)

    def place(self, option: str, sentence: str) -> None:
        """Put a sentence next to the option or its group; above the form where neither is a field."""
        path = option
        while path and path not in self.fields:
            path = path.rpartition(".")[0]
        entry = option.removeprefix(f"{path}.")
        if entry.isdecimal():
            sentence = _("Entry %(number)d: %(problem)s") % {"number": int(entry) + 1, "problem": sentence}
        elif path != option:
            sentence = f"{option}: {sentence}"
        self.add_error(path or None, sentence)


def class_sent(sent: Mapping[str, Any]) -> Priority | None:
    """The class that a person sent with a form; ``None`` where there is none."""
    value = sent.get("priority", "")
    return Priority(value) if value in Priority.values else None


def _shown(value: Any) -> str:
    """A value as its control shows it; a list as its items, one a line."""
    if isinstance(value, bool):
        return str(value).lower()
    return "\n".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def config_of(run: Run) -> JobConfig:
    """A run's config; options that no longer exist (an old run) are left at their defaults, and only those."""
    raw = copy.deepcopy(run.config)
    for _round in range(MAX_OPTIONS):
        try:
            return JobConfig.model_validate(raw)
        except ShapeError as exc:
            if not any(_leave_out(raw, error["loc"]) for error in exc.errors(include_url=False)):
                break
    return JobConfig()


def _leave_out(raw: dict[str, Any], place: tuple[int | str, ...]) -> bool:
    """Drop the option at ``(group, option, …)``; false where it is not there."""
    if not place:
        return False
    group = raw.get(str(place[0]))
    if len(place) > 1 and isinstance(group, dict):
        return group.pop(str(place[1]), raw) is not raw
    return raw.pop(str(place[0]), raw) is not raw


def reference_choices(project: Project) -> dict[str, list[tuple[str, str]]]:
    """The choices of each reference option in a project, as (value, label)."""
    datasets = [
        (item.reference, _("%(name)s · %(rows)s rows") % {"name": item, "rows": item.rows})
        for item in _option_rows(ready_datasets(project), "name", "version", "rows")
    ]
    environments = [
        (item.reference, item.name if item.healthy else _("%(name)s (not answering)") % {"name": item.name})
        for item in _option_rows(environments_of(project), "name", "healthy")
    ]
    specs = _option_rows(specs_of(project).order_by("name", "-version"), "name", "version")
    empty = ("", _("— choose —"))
    return {
        "model.source": model_choices(project),
        "data.train": [empty, *datasets],
        "evaluate.data": [("", _("— none —")), *datasets],
        "environment.name": [empty, *environments, (NO_ENVIRONMENT, _("none · one turn, scored by the rewards alone"))],
        "rewards.spec": [
            ("", _("— the components below, or the default ones —")),
            *((item.reference, str(item)) for item in specs),
        ],
    }


def model_choices(project: Project) -> list[tuple[str, str]]:
    """Models, finished runs whose model has no name yet, and endpoints."""
    models = [("starter", _("starter · a tiny model built from scratch"))]
    kinds = {kind.value: str(kind.label) for kind in ModelKind}
    models += [
        (item.reference, f"{item.name} · {kinds.get(item.kind, item.kind)}")
        for item in _option_rows(models_of(project).defer(None), "name", "kind")
    ]
    models += [
        (run.reference, _("%(name)s · final model of this run") % {"name": run.name})
        for run in _option_rows(unregistered_runs(project), "name")
    ]
    return models + [
        (item.reference, _("%(name)s · endpoint (%(model)s)") % {"name": item.name, "model": item.model})
        for item in _option_rows(endpoints_of(project), "name", "model")
    ]


def _option_rows(rows: QuerySet[M], *fields: str) -> QuerySet[M]:
    """The rows that a select lists, with only the fields of its lines: reports and configs are large."""
    return rows.select_related(None).prefetch_related(None).only(*fields)[:MAX_OPTIONS]


def suggested_name(project: Project, config: JobConfig, base: str = "", *, stem: str = "") -> str:
    """A run name that is not taken: ``<base or environment or dataset>-<kind>-<number>``, or ``<stem>-<number>``."""
    if not stem:
        stem = _name_stem(config, base)
    taken = set(Run.objects.filter(project=project, name__startswith=f"{stem}-").values_list("name", flat=True))
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)


def _name_stem(config: JobConfig, base: str) -> str:
    reference = config.environment.name or config.data.train or "run"
    stem = base or f"{reference.partition(':')[2].partition('@')[0] or reference}-{config.kind}"
    return re.sub(r"-\d+$", "", re.sub(r"[^\w.()+ -]", "-", stem)).strip(" -._")[:70] or "run"
