"""Registered environment servers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.ids import UuidModel, name_validator
from webapp.teams.models import Project


class Environment(UuidModel):
    """A server that plays episodes. ``server_name`` is the identity its ``/health`` must report."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="environments")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    url = models.URLField(_("URL"), max_length=500)
    server_name = models.CharField(max_length=80, blank=True)
    healthy = models.BooleanField(null=True, help_text="None until the first check")
    health = models.JSONField(default=dict, help_text="last envs.wire.Health, or {error: ErrorInfo}")
    checked_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="environment_name_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def reference(self) -> str:
        """How a job's config names this environment."""
        return f"environment:{self.name}"

    def job_values(self) -> dict[str, Any]:
        """The options of ``EnvironmentConfig`` that this registration fills in."""
        return {
            "name": self.server_name or self.name,
            "url": self.url,
            "protocol": "openenv",
            "options": {},
            "replicas": [],
            "deterministic": self.health.get("deterministic") is True,
        }
