"""Shared model pieces: public ids are UUIDs, names are short and safe."""

from __future__ import annotations

import uuid
from typing import TypeVar

from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_PATTERN = r"^[\w][\w .()+-]{0,79}$"
name_validator = RegexValidator(
    NAME_PATTERN,
    _("Use letters, digits, spaces and . ( ) + - _, at most 80 characters, starting with a letter or digit."),
)


M = TypeVar("M", bound=models.Model)


class Present(models.Manager[M]):
    """Leaves out rows that a person deleted and that wait for a worker (``webapp.runs.removal``)."""

    def get_queryset(self) -> models.QuerySet[M]:
        """Rows that have not been removed."""
        return super().get_queryset().filter(removed_at=None)


class UuidModel(models.Model):
    """Base of every object that a person can open: its id is a random UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)

    class Meta:
        abstract = True
