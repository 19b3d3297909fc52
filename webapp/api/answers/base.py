"""Parts of answers of all kinds."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")
Object = dict[str, Any]
Pair = Annotated[list[T], Field(min_length=2, max_length=2)]
"""Two values. No ``tuple``: generators of clients cannot read its schema."""


class Items(BaseModel, Generic[T]):
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


class Deleted(BaseModel):
    """What was deleted, by its name, reference or id."""

    deleted: str


class Revoked(BaseModel):
    """The id of the revoked link."""

    revoked: str


class Gone(BaseModel):
    """A confirmation that it is gone."""

    deleted: bool


class Interval(BaseModel):
    """A mean over tasks with its 95% interval."""

    value: float | None = Field(description="null without a task")
    low: float | None
    high: float | None
    tasks: int
