"""Files of a run's metrics that a person asked for."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from webapp.common.ids import UuidModel
from webapp.common.storage import run_export_file
from webapp.common.work import Work
from webapp.datasets.models import ExportState
from webapp.runs.models import Run


class MetricsFormat(models.TextChoices):
    """The formats that metrics can be written in."""

    CSV = "csv", _("CSV, a line for each figure")
    CSV_WIDE = "csv_wide", _("CSV, a line for each step")
    PARQUET = "parquet", _("Parquet")
    TENSORBOARD = "tensorboard", _("TensorBoard")


class RunExport(UuidModel, Work):
    """The metrics of a run as a file to download. The newest few of each run are kept."""

    OPEN = (ExportState.WAITING, ExportState.WRITING)

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="exports")
    format = models.CharField(max_length=12, choices=MetricsFormat.choices)
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.WAITING)
    file_name = models.CharField(max_length=255)
    bytes = models.BigIntegerField(default=0)
    figures = models.PositiveIntegerField(default=0, help_text="written so far")
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.run} as {self.file_name}"

    @property
    def url(self) -> str | None:
        """Address of the file for scripts; ``None`` until it is written."""
        return f"/api/v1/runs/{self.run_id}/exports/{self.pk}/file" if self.state == ExportState.DONE else None

    @property
    def amount(self) -> str:
        """The number of figures in the file, in words."""
        return ngettext("%(n)s figure", "%(n)s figures", self.figures) % {"n": self.figures}

    @property
    def path(self) -> Path:
        """The file."""
        return run_export_file(self.run_id, self.id)
