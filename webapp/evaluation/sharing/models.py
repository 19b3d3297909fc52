"""Comparisons that were saved, their comments, and the links that share them."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from webapp.common.ids import UuidModel, name_validator
from webapp.people.teams.models import Project

MAX_COMMENT_CHARS = 4_000


class SavedComparison(UuidModel):
    """A comparison under a name. It keeps the query; its figures are read again each time.

    Names are kept with ids, because what they name may be deleted later and must still be named.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="comparisons")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    contestants = models.JSONField(help_text="[{id, name}] of runs, in their order")
    spec = models.CharField(max_length=200, blank=True, help_text="a run's id or reward:name@version; empty for none")
    spec_name = models.CharField(max_length=200, blank=True)
    pair = models.JSONField(default=list, help_text="ids of the two runs whose tasks are listed; empty for the first")
    tasks = models.CharField(max_length=20, blank=True, help_text="the group of tasks that is listed")
    category = models.CharField(max_length=80, blank=True, help_text="the one category of tasks that is listed")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="comparison_name_once")]
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name

    @property
    def run_ids(self) -> list[str]:
        """The ids of its runs, in their order."""
        return [item["id"] for item in self.contestants]


class Comment(UuidModel):
    """A comment below a saved comparison: plain text with line breaks."""

    comparison = models.ForeignKey(SavedComparison, on_delete=models.CASCADE, related_name="comments")
    text = models.TextField(max_length=MAX_COMMENT_CHARS)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"{self.comparison} · {self.text[:40]}"

    @property
    def project(self) -> Project:
        """Where access to it is decided."""
        return self.comparison.project


class SharedLink(UuidModel):
    """An address that opens a saved comparison without an account; only the hash of its secret is stored."""

    comparison = models.ForeignKey(SavedComparison, on_delete=models.CASCADE, related_name="links")
    secret_hash = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=12, help_text="how the secret begins, so that people know it again")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    opened = models.PositiveIntegerField(default=0)
    opened_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.comparison} · {self.hint}…"

    @property
    def project(self) -> Project:
        """Where access to it is decided."""
        return self.comparison.project

    def open_at(self, now: datetime) -> bool:
        """Whether it has neither ended nor been revoked; its maker's right is checked when it is opened."""
        return self.revoked_at is None and self.expires_at > now
