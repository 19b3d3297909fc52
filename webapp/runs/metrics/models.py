"""Curves, and what training devices did over the last steps."""

from __future__ import annotations

from django.db import models

from training.lanes import LaneStep
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


class DeviceStep(models.Model):
    """A training device over one step; ``lane`` is a ``LaneStep``, which ended at ``at``. ``held``: it waited for
    something that came back.

    Of a run the newest ``KEPT`` steps are kept. An attempt that trains a step again replaces it and those after it.
    """

    KEPT = 50

    pk = models.CompositePrimaryKey("run", "step", "host", "device")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="device_steps", db_index=False)  # begins pk
    step = models.PositiveIntegerField()
    host = models.CharField(max_length=120)
    device = models.CharField(max_length=120)
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    held = models.BooleanField(default=False)
    lane = models.JSONField()

    def __str__(self) -> str:
        return f"{self.host} {self.device} in step {self.step}"

    @property
    def found(self) -> LaneStep:
        """The lane."""
        return LaneStep.model_validate(self.lane)
