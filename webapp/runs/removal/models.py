"""Deletions."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel
from webapp.common.work import Work


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
