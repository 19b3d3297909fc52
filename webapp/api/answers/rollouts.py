"""Answers of the rollout inspector."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from webapp.api.answers.runs import Rollout


class Snippet(BaseModel):
    """Where a rollout says the phrase that was looked for."""

    turn: int
    before: str
    said: str
    after: str


class FoundRollout(Rollout):
    """One rollout that was found."""

    run: UUID
    held_out: bool = Field(description="played to evaluate a run that trains")
    characters: int = Field(description="that the policy wrote")
    tools: list[str] = Field(description="that it called, each once")
    surprise: float | None = Field(description="bits: how rare it is in its group")
    snippet: Snippet | None


class Found(BaseModel):
    """A page of rollouts under filters."""

    items: list[FoundRollout]
    next: str | None = Field(description="`after` of the next page")
    total: int
    more: bool = Field(description="there are more than `total`")
    query: str = Field(description="the filters as they were read, in one fixed order")


class Bar(BaseModel):
    """Values from `low` to below `high`; the last bar's bound is in it, and where both are the same, that value."""

    low: float
    high: float
    count: int


class Histogram(BaseModel):
    """One figure of the rollouts; `name` is that of its filter."""

    name: str
    low: float
    high: float
    count: int
    bars: list[Bar]


class Value(BaseModel):
    """A value that rollouts have, and how many."""

    value: str
    count: int


class Spread(BaseModel):
    """The distributions of the rollouts under filters."""

    rows: int = Field(description="rollouts that were looked at")
    sampled: bool = Field(description="they are an even sample")
    histograms: list[Histogram]
    outcomes: list[Value]
    tools: list[Value]
    boundaries: list[Value]


class SavedView(BaseModel):
    """Filters under a name."""

    id: UUID
    name: str
    run: UUID | None = Field(description="null where it is of the whole project")
    query: str
    url: str = Field(description="the page that shows it")
    created_by: str | None
    created_at: datetime


class Would(BaseModel):
    """What one way to save the rollouts that were found would make."""

    kind: str = Field(description="demonstrations, tasks, pairs, lab or cases")
    keeps: int = Field(description="conversations, tasks, pairs, rollouts or cases; 0 with a problem")
    says: str
    left_out: list[str] = Field(description="why others are left out, with how many")
    problem: str = Field(description="why nothing can be saved in this way; else empty")


class Kept(BaseModel):
    """The object made from the rollouts that were found."""

    kind: str = Field(description="view, dataset, lab or cases")
    id: UUID
    name: str
    url: str
