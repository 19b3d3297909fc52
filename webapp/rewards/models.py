"""Reward specs, single episodes that a spec is tested on, and frozen sets of episodes for the reward lab."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from training.config import Reference
from webapp.common.ids import UuidModel, name_validator
from webapp.common.storage import rollout_set_dir
from webapp.common.work import Work
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class RewardSpec(UuidModel):
    """One version of one reward spec; saving an edit makes the next version, so the spec of a run never changes."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reward_specs")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    version = models.PositiveIntegerField(default=1)
    components = models.JSONField(help_text="list of {name, weight, params}: training.config.RewardComponent")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name", "version"], name="reward_spec_version_once")]
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def reference(self) -> str:
        """How a job's config names this version."""
        return str(Reference("reward", f"{self.name}@{self.version}"))


class RewardCase(UuidModel):
    """A finished episode with the scores that a good spec gives it."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reward_cases")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    environment = models.CharField(max_length=80, blank=True, help_text="name of the environment that played it")
    messages = models.JSONField(help_text="the whole conversation: list of envs.wire.Message")
    prompt_length = models.PositiveIntegerField(help_text="how many of the messages came from the task")
    row = models.JSONField(default=dict, help_text="the task, as rewards see it")
    env_reward = models.FloatField(null=True, help_text="None where the environment gave no verdict")
    env_parts = models.JSONField(default=dict)
    truncated = models.BooleanField(default=False, help_text="ended before the environment said that it was done")
    expected = models.JSONField(default=dict, help_text="{component: [lowest, highest]}")
    total = models.JSONField(null=True, help_text="[lowest, highest] of the weighted sum, or None")
    origin = models.JSONField(
        default=dict, help_text="of a recorded rollout: {run, run_name, rollout, step, group, index, view}"
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="reward_case_name_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SetKind(models.TextChoices):
    """Where the episodes of a rollout set come from."""

    RUN = "run", _("a run")
    PASTED = "pasted", _("pasted text")
    CASES = "cases", _("reward test cases")


class SetState(models.TextChoices):
    """The state of a rollout set between its making and its use."""

    BUILDING = "building", _("building")
    READY = "ready", _("ready")
    FAILED = "failed", _("failed")


class RolloutSet(UuidModel, Work):
    """A frozen set of finished episodes. It keeps them when its run is deleted."""

    OPEN = (SetState.BUILDING,)
    LIMIT_S = 1800

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rollout_sets")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    kind = models.CharField(max_length=10, choices=SetKind.choices)
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="rollout_sets")
    run_name = models.CharField(max_length=80, blank=True, help_text="also of a run that is gone")
    first_step = models.PositiveIntegerField(null=True, help_text="None: from the first")
    last_step = models.PositiveIntegerField(null=True, help_text="None: to the newest")
    found_by = models.CharField(max_length=500, blank=True, help_text="how its groups were chosen, where they were")
    state = models.CharField(max_length=10, choices=SetState.choices, default=SetState.BUILDING)
    rollouts = models.PositiveIntegerField(default=0)
    groups = models.PositiveIntegerField(default=0)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo of a set that could not be built")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name

    @property
    def folder(self) -> Path:
        """Where its episodes and columns are."""
        return rollout_set_dir(self.id)

    @property
    def groups_path(self) -> Path:
        """The file with the groups that were chosen; without it the set has all groups of its steps."""
        return self.folder / "groups.json"
