"""The table of secrets."""

from __future__ import annotations

from django.db import models


class Kind(models.TextChoices):
    """What a secret is, of which an object has at most one of each kind."""

    ENDPOINT_KEY = "endpoint_key"
    HUB_TOKEN = "hub_token"  # noqa: S105 - names of kinds
    ENVIRONMENT_TOKEN = "environment_token"  # noqa: S105
    WEBHOOK = "webhook"
    SITE = "site"


class Secret(models.Model):
    """One secret of one object, as ``vault`` encrypted it. No column has it in the clear."""

    kind = models.CharField(max_length=20, choices=Kind.choices)
    owner = models.UUIDField(help_text="id of the endpoint, project, environment or channel that it belongs to")
    sealed = models.TextField(help_text="encrypted with a key that is made of the site's secret key, kind and owner")
    set_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "kind"], name="secret_once")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.owner}"
