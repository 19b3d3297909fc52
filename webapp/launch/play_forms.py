"""The short forms that play a spec: the test-bed of scripted policies, and a handful of rollouts of a model."""

from __future__ import annotations

import uuid
from typing import Any, get_args

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.config import JobConfig, Policy
from webapp.launch.forms import reference_choices
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec

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
