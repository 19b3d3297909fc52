"""Files of runs that other trainers made, brought by a person, and files of a run's metrics that a person asked for."""

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
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class ImportState(models.TextChoices):
    """The state of an upload of a foreign run."""

    READING = "reading", _("being read")
    DONE = "done", _("imported")
    REJECTED = "rejected", _("rejected")


class RunImport(UuidModel, Work):
    """Files of a run that another trainer made, uploaded by a person. Their folder is deleted once they are read."""

    OPEN = (ImportState.READING,)
    LIMIT_S = 1740  # the reading, and then the writing of the run

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(max_length=80, blank=True)
    state = models.CharField(max_length=10, choices=ImportState.choices, default=ImportState.READING)
    files = models.JSONField(default=list, help_text="[{name, bytes}] in the order of upload")
    source_run = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="the one that is meant, where a table has several",
    )
    report = models.JSONField(default=dict, help_text="training.imports.report.ImportReport")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="+")
    is_new = models.BooleanField(default=True, help_text="False where the same files had been imported before")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "runs"  # where its table was made: a new label would rename it
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name or 'import'} of {self.project}"


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
