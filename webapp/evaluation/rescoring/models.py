"""Values of reward components that no run recorded: the work that computes them, and what it found."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.common.storage import rescoring_dir
from webapp.common.work import Work
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class RescoringState(models.TextChoices):
    """The state of a scoring of recorded rollouts."""

    WAITING = "waiting", _("waiting")
    SCORING = "scoring", _("being scored")
    DONE = "done", _("scored")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


class Rescoring(UuidModel, Work):
    """The recorded rollouts of some runs that a person had scored by a spec. What it computes is kept as it
    proceeds."""

    OPEN = (RescoringState.WAITING, RescoringState.SCORING)
    LIMIT_S = 2 * 3600

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rescorings")
    name = models.CharField(max_length=200, help_text="of the spec, as people know it")
    components = models.JSONField(help_text="of the spec: list of training.config.RewardComponent")
    runs = models.JSONField(help_text="ids of the runs, in order")
    digest = models.CharField(max_length=64, help_text="of the runs and the components")
    state = models.CharField(max_length=10, choices=RescoringState.choices, default=RescoringState.WAITING)
    rollouts = models.PositiveIntegerField(default=0, help_text="that were looked at in the end")
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["project", "digest", "-created_at"], name="rescoring_newest")]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "digest"],
                condition=models.Q(state__in=("waiting", "scoring")),
                name="rescoring_once",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def done(self) -> int:
        """Rollouts that were scored."""
        return self.progress.get("done", self.rollouts)  # type: ignore[no-any-return]

    @property
    def total(self) -> int:
        """Rollouts to score."""
        return self.progress.get("total", self.rollouts)  # type: ignore[no-any-return]

    @property
    def folder(self) -> Path:
        """Where its episodes are while they are scored."""
        return rescoring_dir(self.id)


class ComputedColumn(models.Model):
    """The values of one component over the rollouts of one run, packed: 28 bytes a rollout.

    An evaluation of 500 tasks × 4 has 56 kB of them for each component; as rows they would be 2,000, and a comparison
    of eight evaluations under three new components would read 48,000 rows instead of 24.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="computed_columns")
    key = models.CharField(max_length=49, help_text="function, parameters and categories: columns.column_key")
    name = models.CharField(max_length=200, help_text="of the component where it was first computed")
    version = models.PositiveIntegerField(default=1, help_text="one more with every change")
    ids = models.BinaryField(help_text="16 bytes for each rollout")
    values = models.BinaryField(help_text="float64, little-endian, in the order of ids; NaN where there is none")
    codes = models.BinaryField(help_text="int32, little-endian: -1 a value, -2 does not count, else a place in reasons")
    reasons = models.JSONField(default=list, help_text="why values are missing: training.words.Sentence as JSON")
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="computed_column_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.run}"
