"""Answers about the memory of a job."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, Field


class MemoryDevice(BaseModel):
    """The device that a job is estimated for."""

    title: str
    bytes: int = Field(description="what a program gets of it")


class MemoryTerm(BaseModel):
    """One line of the table."""

    term: str
    title: str
    part: str = Field(description="kept for the whole run, or there while learning or sampling")
    bytes: int
    why: str


class MemoryTable(BaseModel):
    """The table, in bytes."""

    device: MemoryDevice
    terms: list[MemoryTerm]
    learning: int = Field(description="all that is there while learning")
    sampling: int = Field(description="all that is there while sampling")
    whole: int = Field(description="the larger of the two")
    fits: bool
    verdict: str
    hint: str = Field(description="what to do where it does not fit")
    change: dict[str, int | bool | str] | None = Field(
        description="the options, by path, of the smallest change that fits"
    )
    changed: int | None = Field(description="what the job needs with it")


class Memory(BaseModel):
    """How much memory a job needs."""

    id: UUID | None = Field(description="of the estimate; null where none is needed")
    state: str = Field(description="open, done, failed, dropped, unknown (a base whose shape is not known), none")
    message: str = Field(description="why there is no table")
    hint: str
    table: MemoryTable | None
