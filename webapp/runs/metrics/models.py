"""Curves."""

from __future__ import annotations

from django.db import models

from webapp.runs.models import Run
from webapp.runs.numbering import seq_index


class MetricPoint(models.Model):
    """One figure of one step. Of two attempts at the same step the later one counts; NaN and infinities are kept."""

    pk = models.CompositePrimaryKey("run", "name", "step", "attempt")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="points", db_index=False)  # begins pk
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    name = models.CharField(max_length=120)
    value = models.FloatField()
    seq = models.BigIntegerField()

    class Meta:
        indexes = [seq_index("metric_point_changed")]

    def __str__(self) -> str:
        return f"{self.name} at {self.step}"
