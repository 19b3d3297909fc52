"""Curves."""

from __future__ import annotations

from django.db import models

from webapp.runs.models import Run


class MetricPoint(models.Model):
    """One figure of one step. Of two attempts at the same step the later one counts; NaN and infinities are kept."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="points", db_index=False)  # metric_point_seq
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    name = models.CharField(max_length=120)
    value = models.FloatField()
    seq = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "name", "step", "attempt"], name="metric_point_once")]
        indexes = [models.Index(fields=["run", "seq"], name="metric_point_seq")]

    def __str__(self) -> str:
        return f"{self.name} at {self.step}"
