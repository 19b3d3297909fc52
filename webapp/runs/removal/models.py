"""Deletions: those that a person asked for, and those by a rule of age and size (``webapp.retention``)."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.common.work import Work
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class RemovalState(models.TextChoices):
    """The state of a deletion."""

    WAITING = "waiting", _("being deleted")
    DONE = "done", _("deleted")
    FAILED = "failed", _("failed")


class Removal(UuidModel, Work):
    """Rows and files that no page shows any more and that a worker deletes. It outlives what it names."""

    OPEN = (RemovalState.WAITING,)
    LIMIT_S = 3600

    team = models.ForeignKey(
        "teams.Team", on_delete=models.CASCADE, null=True, related_name="removals", help_text="who sees that it failed"
    )
    kind = models.CharField(max_length=40, blank=True, help_text="model of the row to delete, as app.model")
    object_id = models.UUIDField(null=True)
    name = models.CharField(max_length=200)
    paths = models.JSONField(default=list, help_text="folders below the data folder, relative to it")
    state = models.CharField(max_length=10, choices=RemovalState.choices, default=RemovalState.WAITING)
    error = models.JSONField(null=True, help_text="training.errors.ErrorInfo")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name


class Kept(models.TextChoices):
    """What runs leave that a rule can remove. The order is that of the page."""

    WORDS = "words", _("transcripts")
    TOKENS = "tokens", _("values of tokens")
    LOGS = "logs", _("logs of trainers")
    CHECKPOINTS = "checkpoints", _("checkpoints")


class RetentionRules(models.Model):
    """A project's rules that differ from the site's: ``{kind: {"days": int | None, "gib": int | None}}``.

    ``None`` is no limit; a kind that is not there has the site's rule (``settings.RETENTION``).
    """

    project = models.OneToOneField(Project, on_delete=models.CASCADE, primary_key=True, related_name="retention")
    rules = models.JSONField(default=dict)
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.project}: rules of retention"


class StoredSize(models.Model):
    """The bytes that an ended run takes up, measured once after its end. Checkpoints have their own rows and sizes.

    ``words`` is the journals as they lie on the disk, and the turns in the database as a sample of ``sampled`` of
    ``turns`` rows shows.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="stored")
    words = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    logs = models.BigIntegerField(default=0)
    turns = models.BigIntegerField(default=0)
    sampled = models.IntegerField(default=0)
    measured_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.run_id}: {self.words + self.tokens + self.logs} bytes"


class Expiry(UuidModel):
    """What a rule removed from a run. It outlives the run, so that a project's page can say what was freed.

    ``rule`` is ``{"days", "gib", "by"}``: the rule as it was, and ``age`` or ``size``, the limit that was reached.
    Events of the run after ``seq`` are newer than the removal. ``number`` counts turns, files or checkpoints.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="expiries")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="expiries")
    run_name = models.CharField(max_length=80)
    kind = models.CharField(max_length=12, choices=Kept.choices)
    rule = models.JSONField()
    bytes = models.BigIntegerField()
    number = models.BigIntegerField()
    seq = models.BigIntegerField()
    at = models.DateTimeField(auto_now_add=True)
    removal = models.ForeignKey(Removal, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-at"]
        indexes = [models.Index(fields=["project", "-at"], name="expiry_listed")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.run_name}"
