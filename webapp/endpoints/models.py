"""Endpoints of a project, and their use by each run and chat on each day.

Keys are secrets (``webapp.common.secrets``), never columns.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from training.config import Reference
from webapp.common.ids import UuidModel, name_validator
from webapp.people.teams.models import Project


class ToolFormat(models.TextChoices):
    """The format in which an endpoint gets tools, as in ``training.config.EndpointConfig``."""

    NATIVE = "native", _("by the API, as structured tool calls")
    TEXT = "text", _("in the text, for servers without tool calls")


class Endpoint(UuidModel):
    """A server that answers chat completions, as a contestant. Prices are of a million tokens, limits in ``currency``.

    Its name never changes: configs of runs refer to it.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="endpoints")
    name = models.CharField(_("name"), max_length=80, validators=[name_validator])
    url = models.CharField(max_length=500, help_text="up to and including the version, such as …/v1")
    model = models.CharField(max_length=200, help_text="what the server calls its model")
    tool_format = models.CharField(max_length=8, choices=ToolFormat.choices, default=ToolFormat.NATIVE)
    context_tokens = models.PositiveIntegerField(null=True)
    concurrency = models.PositiveSmallIntegerField(
        default=8, validators=[MinValueValidator(1), MaxValueValidator(256)], help_text="requests at once"
    )
    timeout_s = models.FloatField(default=120.0, help_text="of one request")
    price_in = models.FloatField(null=True)
    price_out = models.FloatField(null=True)
    currency = models.CharField(max_length=3, blank=True)
    max_run_tokens = models.BigIntegerField(null=True)
    max_run_cost = models.FloatField(null=True)
    max_day_tokens = models.BigIntegerField(null=True)
    max_day_cost = models.FloatField(null=True)
    test = models.JSONField(null=True, help_text="webapp.endpoints.testing.Outcome of the last test")
    tested_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="endpoint_name_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def reference(self) -> str:
        """How a job's config names this endpoint."""
        return str(Reference("endpoint", self.name))

    @property
    def priced(self) -> bool:
        """Whether money can be counted."""
        return bool(self.price_in or self.price_out)

    def job_values(self) -> dict[str, Any]:
        """The options of ``EndpointConfig`` that this endpoint fills in; 0 means not set."""
        return {
            "name": self.name,
            "url": self.url,
            "model": self.model,
            "tool_format": self.tool_format,
            "concurrency": self.concurrency,
            "timeout_s": self.timeout_s,
            "price_in": self.price_in or 0.0,
            "price_out": self.price_out or 0.0,
            "currency": self.currency,
            "max_tokens": self.max_run_tokens or 0,
            "max_cost": self.max_run_cost or 0.0,
        }


class EndpointSpend(models.Model):
    """The use of an endpoint by one run or one chat on one day; tests of the endpoint have neither.

    Both are named by value: what was spent stays known after they were deleted.
    """

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="spending")
    day = models.DateField(help_text="in the time zone of the site")
    run_id = models.UUIDField(null=True)
    chat_id = models.UUIDField(null=True)
    name = models.CharField(max_length=80, blank=True, help_text="of the run, or the chat's title")
    tokens = models.BigIntegerField(default=0)
    cost = models.FloatField(null=True, help_text="None where no price was set")
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "run_id", "chat_id", "day"], nulls_distinct=False, name="endpoint_spend_once"
            )
        ]
        indexes = [models.Index(fields=["endpoint", "day"], name="endpoint_spend_day")]

    def __str__(self) -> str:
        return f"{self.endpoint} on {self.day}"
