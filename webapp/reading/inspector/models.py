"""Views of rollouts that people named."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel, name_validator
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class SavedView(UuidModel):
    """Filters and an order under a name, of a run or of the project: everyone who opens its address sees the same."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="rollout_views")
    run = models.ForeignKey(Run, null=True, on_delete=models.CASCADE, related_name="rollout_views")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    query = models.TextField(help_text="the query string, as webapp.reading.inspector.filters writes it")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="saved_view_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def url(self) -> str:
        """Address of the page that shows it."""
        return reverse("rollout-view", args=[self.project.slug, self.pk])
