"""Shared model pieces: public ids are UUIDs, names are short and safe."""

from __future__ import annotations

import uuid

from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_PATTERN = r"^[\w][\w .()+-]{0,79}$"
name_validator = RegexValidator(
    NAME_PATTERN,
    _("Use letters, digits, spaces and . ( ) + - _, at most 80 characters, starting with a letter or digit."),
)


class UuidModel(models.Model):
    """Base of every object that a person can open: its id is a random UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)

    class Meta:
        abstract = True
