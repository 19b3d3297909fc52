"""Datasets: uploaded, checked in a process of their own, immutable from then on."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from training.config import Reference
from webapp.common.ids import UuidModel, name_validator
from webapp.common.pools import LONG, SHORT
from webapp.common.storage import dataset_dir, export_file
from webapp.common.work import Work
from webapp.people.teams.models import Project


class DatasetState(models.TextChoices):
    """The state of a dataset between upload and use."""

    CHECKING = "checking", _("checking")
    NEEDS_CHOICE = "needs_choice", _("has bad rows")
    NEEDS_MAPPING = "needs_mapping", _("Format not recognised")
    READY = "ready", _("ready")
    REJECTED = "rejected", _("rejected")


class Dataset(UuidModel, Work):
    """One version of one dataset. A new upload under the same name is a new version; rows never change."""

    OPEN = (DatasetState.CHECKING,)
    SHORT_BYTES = 8 * 1024**2
    """A file of up to this many bytes is checked in seconds."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    version = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=20, choices=DatasetState.choices, default=DatasetState.CHECKING)
    file_name = models.CharField(max_length=255)
    bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)
    rows = models.PositiveIntegerField(default=0)
    bad_rows = models.PositiveIntegerField(default=0)
    reading = models.JSONField(default=dict, help_text="training.data.options.ReadOptions, with references for paths")
    checking = models.JSONField(default=dict, help_text="training.data.options.CheckOptions, with references for paths")
    lineage = models.JSONField(
        default=dict, help_text="{operation, options, parents: [{reference, sha256, rows}], rows}"
    )
    source = models.JSONField(
        default=dict,
        help_text="{look: ask how to read it in any case, hub: {id, revision, split, file}, copied: reference}",
    )
    report = models.JSONField(default=dict)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name", "version"], name="dataset_version_once")]
        ordering = ["-created_at"]

    @property
    def pool(self) -> str:
        """The pool of its check: small files do not wait for large ones. A file that is not made or fetched yet counts
        as large."""
        return SHORT if 0 < self.bytes <= self.SHORT_BYTES else LONG

    @classmethod
    def pool_in_sql(cls) -> models.Case:
        """The same of rows."""
        small = models.When(bytes__gt=0, bytes__lte=cls.SHORT_BYTES, then=models.Value(SHORT))
        return models.Case(small, default=models.Value(LONG), output_field=models.CharField())

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def counted(self) -> bool:
        """Whether a check has counted its rows: until then their number is not known, and not 0."""
        return self.state not in (DatasetState.CHECKING, DatasetState.NEEDS_MAPPING)

    @property
    def reference(self) -> str:
        """How a job's config names this version."""
        return str(Reference("dataset", f"{self.name}@{self.version}"))

    @property
    def upload_path(self) -> Path:
        """The file as it was uploaded."""
        return dataset_dir(self.id) / "upload"

    @property
    def rows_path(self) -> Path:
        """The good rows, normalised; jobs read these."""
        return dataset_dir(self.id) / "rows.jsonl"

    @property
    def identities_path(self) -> Path:
        """Which row each good row is (``training.data.identity``)."""
        from training.data.checking import IDENTITIES_NAME  # here: it imports NumPy, and every program imports this

        return dataset_dir(self.id) / IDENTITIES_NAME

    @property
    def findings_path(self) -> Path:
        """Every bad row and many remarks of the last check, one JSON line each."""
        return dataset_dir(self.id) / "findings.jsonl"


class ExportState(models.TextChoices):
    """The state of an export that was asked for."""

    WAITING = "waiting", _("waiting")
    WRITING = "writing", _("being written")
    DONE = "done", _("written")
    FAILED = "failed", _("failed")


class DatasetExport(UuidModel, Work):
    """A dataset version in another format, as a file to download. The newest few of each dataset are kept."""

    OPEN = (ExportState.WAITING, ExportState.WRITING)

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="exports")
    options = models.JSONField(default=dict, help_text="webapp.datasets.operations.options.ExportOptions")
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.WAITING)
    file_name = models.CharField(max_length=255)
    bytes = models.BigIntegerField(default=0)
    rows = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo, or why rows were left out")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.dataset} as {self.file_name}"

    @property
    def url(self) -> str | None:
        """Address of the file; ``None`` until it is written."""
        place = [self.dataset.project.slug, self.dataset_id, self.pk]
        return reverse("dataset-export-file", args=place) if self.state == ExportState.DONE else None

    @property
    def path(self) -> Path:
        """The file."""
        return export_file(self.dataset_id, self.id)

    @property
    def amount(self) -> str:
        """The number of rows in the file, in words."""
        return ngettext("%(n)s row", "%(n)s rows", self.rows) % {"n": self.rows}

    @property
    def lost(self) -> dict[str, int]:
        """The parts that the format cannot hold, with their numbers of rows."""
        return dict((self.error or {}).get("lost") or {})
