"""The sampling parameters of a chat's answers."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from training.words import complaint_of, option_of

MAX_SYSTEM_CHARS = 20_000


class Parameters(BaseModel):
    """Temperature 0 takes the likeliest token; ``max_tokens`` is the limit of one model turn."""

    model_config = ConfigDict(extra="forbid")

    temperature: float = Field(default=0.7, ge=0, le=5)
    max_tokens: int = Field(default=512, ge=1, le=32768)
    seed: int = Field(default=0, ge=0, lt=2**31)
    system: str = Field(default="", max_length=MAX_SYSTEM_CHARS)


def parameters_of(values: dict[str, Any]) -> Parameters:
    """The given parameters, with defaults for the others. Raises ``ValidationError`` by field."""
    try:
        return Parameters.model_validate(values)
    except ShapeError as exc:
        errors = exc.errors(include_url=False, include_input=False)
        if not all(option_of(error) in Parameters.model_fields for error in errors):
            raise ValidationError(_("There is no parameter of this name.")) from exc
        raise ValidationError({option_of(error): str(complaint_of(error)) for error in errors}) from exc
