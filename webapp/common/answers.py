"""Answers: the one shape of each thing that pages, live frames and the API show.

An answer names its fields once, with types and descriptions. It is read off a row (or a dataclass, or a dictionary) by
the names of its fields, and is checked on the way. A field that a row has under another name, or further away, says so:
``team: str = Field(validation_alias=AliasPath("team", "name"))``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Generic, Self, TypeVar, cast
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from webapp.common.text import clean_json, finite, in_words, translated

logger = logging.getLogger(__name__)

T = TypeVar("T")
Object = dict[str, Any]
Pair = Annotated[list[T], Field(min_length=2, max_length=2)]
"""Two values. No ``tuple``: generators of clients cannot read its schema."""
Time = Annotated[
    datetime,
    PlainSerializer(lambda at: at.isoformat() if isinstance(at, datetime) else at, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A moment, written with its offset."""
Finite = Annotated[float | None, AfterValidator(finite)]
"""A number; ``null`` where JSON has none for it."""
Filled = Annotated[T | None, BeforeValidator(lambda value: value or None)]
"""A value; ``null`` where a row keeps an empty one."""
Slug = Annotated[str | None, BeforeValidator(lambda project: getattr(project, "slug", project))]
"""The slug of a row's project; ``null`` where it has none."""
Username = Annotated[str | None, BeforeValidator(lambda user: getattr(user, "username", user))]
"""The name of a row's person; ``null`` where that is gone."""
UsernameOrEmpty = Annotated[str, BeforeValidator(lambda user: getattr(user, "username", user) or "")]
"""The name of a row's person; empty where that is gone."""
Id = Annotated[UUID | None, BeforeValidator(lambda row: getattr(row, "pk", row))]
"""The id of another row; ``null`` where there is none."""
Related = Annotated[list[T], BeforeValidator(lambda rows: list(rows.all()) if hasattr(rows, "all") else rows)]
"""The rows that belong to a row."""
Translated = Annotated[str, BeforeValidator(translated)]
"""A marked text, in the reader's language."""
InWords = Annotated[str, BeforeValidator(in_words)]
"""A sentence of the library, in the reader's language."""


class Answer(BaseModel):
    """The shape of an answer."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)

    @model_validator(mode="wrap")
    @classmethod
    def _show_misfit(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Answer:
        """A row that does not fit its shape is logged by name and shown as far as it goes: a person whose old run has
        an odd row shall see the row rather than a 500."""
        try:
            return handler(value)
        except ValidationError as error:
            report_misfit(cls, error)
            fields = cls.model_fields.items()
            return cls.model_construct(**{name: _lenient(field, name, value) for name, field in fields})


class Extended:
    """A row with further fields, which its shape names and the row does not have itself."""

    def __init__(self, row: Any, /, **more: Any) -> None:
        self.__dict__.update(more)
        self._row = row

    def __getattr__(self, name: str) -> Any:
        row = self._row
        return row[name] if isinstance(row, Mapping) and name in row else getattr(row, name)


def report_misfit(shape: type[Answer], error: ValidationError) -> None:
    """Log which fields of a row do not fit, without their values."""
    fields = ", ".join(f"{'.'.join(map(str, part['loc']))}: {part['type']}" for part in error.errors()[:5])
    logger.error("answer_misfit", extra={"shape": shape.__name__, "fields": fields})


def in_shape(shape: Any, value: Any) -> Any:
    """A value as JSON has it, read by its shape: an ``Answer``, or a type made of them. A field with a default is left
    out where the value has none."""
    adapter = _adapter(shape)
    made = adapter.validate_python(value, from_attributes=True)
    return adapter.dump_python(made, mode="json", exclude_unset=True, warnings=False, fallback=str)


def as_json(shape: Any, value: Any) -> str:
    """The text of what ``in_shape`` gives, in ASCII and without NaN. Without plain values in between it takes little
    more than half the time."""
    adapter = _adapter(shape)
    made = adapter.validate_python(value, from_attributes=True)
    try:
        return adapter.dump_json(made, ensure_ascii=True, exclude_unset=True, warnings=False, fallback=str).decode()
    except PydanticSerializationError:  # half a surrogate pair
        return json.dumps(clean_json(in_shape(shape, value)), allow_nan=False, separators=(",", ":"))


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _lenient(field: FieldInfo, name: str, value: Any) -> Any:
    """A field's value in its type where it fits, else as it is; ``None`` where there is none."""
    alias = field.validation_alias
    found = _at(value, alias.path if isinstance(alias, AliasPath) else [alias or name])
    if found is None and alias:
        found = _at(value, [name])
    try:
        shape = cast(Any, Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        return _adapter(shape).validate_python(found, from_attributes=True)
    except ValidationError:
        return found


def _at(value: Any, path: Sequence[Any]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, str(part), None)
    return value


class Items(Answer, Generic[T]):
    """A complete list."""

    items: list[T]


class Numbered(Items[T], Generic[T]):
    """One page of rows that keep their places."""

    page: int = Field(description="this page, from 1")
    pages: int
    total: int = Field(description="rows on all pages")


class Page(Numbered[T], Generic[T]):
    """One page of a list."""

    next: str | None = Field(description="`cursor` of the next page; null at the end")


class Deleted(Answer):
    """The deleted object, by its name, reference or id."""

    deleted: str


class Revoked(Answer):
    """The id of the revoked link."""

    revoked: str


class Gone(Answer):
    """A confirmation that it is gone."""

    deleted: bool


class Interval(Answer):
    """A mean over tasks with its 95% interval."""

    value: Finite = Field(description="null without a task")
    low: Finite
    high: Finite
    tasks: int
