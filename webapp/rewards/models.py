"""Reward specs: named, versioned lists of weighed components."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.ids import UuidModel, name_validator
from webapp.teams.models import Project


class RewardSpec(UuidModel):
    """One version of one reward spec; saving an edit makes the next version, so a run's spec never changes under it."""

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
        return f"reward:{self.name}@{self.version}"
