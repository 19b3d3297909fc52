"""Pinned charts."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from webapp.common.ids import UuidModel
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class PinnedChart(UuidModel):
    """A chart of a run, as it was when it was pinned: its metrics, smoothing, scale and axis."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="pins")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="pins")
    key = models.CharField(max_length=120, help_text="of the chart: a metric, or a name that stands for several")
    names = models.JSONField(help_text="the metrics that it draws")
    view = models.JSONField(help_text="smooth, log, x and stack, as in the address of the run's page")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="pinned_chart_once")]
        ordering = ["created_at"]

    def __str__(self) -> str:
        return f"{self.key} of {self.run_id}"
