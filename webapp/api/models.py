"""Answers that are kept for calls that may be sent again."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from webapp.common.ids import UuidModel

KEY_CHARS = 64


class KeptAnswer(UuidModel):
    """The answer of an operation under an idempotency key."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey("teams.Project", on_delete=models.CASCADE, related_name="+")
    operation = models.CharField(max_length=60, help_text="as the schema names it")
    key = models.CharField(max_length=KEY_CHARS)
    digest = models.CharField(max_length=64, help_text="keyed hash of what was sent, files included")
    status = models.PositiveSmallIntegerField()
    body = models.TextField(help_text="the JSON that was answered")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project", "operation", "key"], name="kept_answer_once")]

    def __str__(self) -> str:
        return f"{self.operation} {self.key}"
