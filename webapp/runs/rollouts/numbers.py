"""A column of whole numbers that every turn brings by the hundred."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class NumbersField(ArrayField):
    """``integer[]`` whose values go to PostgreSQL as one text: Django and the driver would handle each number in turn,
    which was a third of what it cost to record a turn."""

    def __init__(self, **options: Any) -> None:
        options.pop("base_field", None)
        super().__init__(models.IntegerField(), **options)

    def get_db_prep_value(
        self, value: Iterable[int] | None, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> str | None:
        """The array as PostgreSQL writes it; the placeholder casts it."""
        return None if value is None else f"{{{','.join(map(str, value))}}}"

    def deconstruct(self) -> Any:
        """As the field of Django that it is in the database."""
        name, _path, arguments, options = super().deconstruct()
        return name, "django.contrib.postgres.fields.ArrayField", arguments, options
