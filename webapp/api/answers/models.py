"""Answers about models and endpoints."""

from __future__ import annotations

from uuid import UUID

from pydantic import AliasPath, Field

from webapp.common.answers import Answer, Filled, Interval, InWords, Time, Translated


class Model(Answer):
    """A registered model and where its weights come from."""

    id: UUID
    name: str
    reference: str = Field(description="model:<name>")
    kind: str = Field(description="hub, folder, run or starter")
    source: str
    revision: str
    run: UUID | None = Field(validation_alias="run_id")
    step: int | None
    bytes: int | None
    mark: str = Field(description="candidate, production or empty")
    tags: list[str]
    notes: str
    created_at: Time


class Fact(Answer):
    """One fact of a place of the lineage."""

    label: str
    text: str
    url: str


class Node(Answer):
    """A place of the lineage."""

    kind: str = Field(description="base, run, model or child")
    id: Filled[str]
    title: str
    about: str
    trained_on: list[Fact] = Field(validation_alias="facts")


class ModelScore(Answer):
    """One evaluation of a model."""

    run: UUID = Field(validation_alias=AliasPath("run", "pk"))
    name: str = Field(validation_alias=AliasPath("run", "name"))
    data: str
    environment: str
    spec: str
    success: Interval | None = Field(validation_alias="solved")
    tasks: int = Field(validation_alias=AliasPath("report", "tasks"))
    samples: int = Field(validation_alias=AliasPath("report", "most"))
    trained_on: bool = Field(description="whether it was trained on some of these tasks")
    learned: int | None = Field(
        description="on how many of them; null: on all, but their rows are gone",
        validation_alias=AliasPath("overlap", "seen"),
    )
    learned_words: str = Field(
        description="which data has them, or what could not be compared", validation_alias=AliasPath("overlap", "words")
    )
    missing_tasks: int = Field(validation_alias=AliasPath("report", "missing_tasks"))
    excluded: int = Field(validation_alias=AliasPath("report", "excluded"))
    ended_at: Time | None = Field(validation_alias="at")
    compare_with_base: Filled[str] = Field(description="address of a comparison", validation_alias="base_url")


class ModelWhole(Model):
    """A model with its lineage, what was trained from it, and its scores."""

    marked_at: Time | None
    card: dict[str, str] = Field(description="the team's sections: intended_use, limitations, licence")
    lineage: list[Node]
    children: list[Node]
    more_children: int
    scores: list[ModelScore]


class ModelPush(Answer):
    """A push to the hub and how far it is."""

    id: UUID
    hub: str
    repository: str
    private: bool
    state: str
    progress: dict[str, object]
    error: dict[str, object] | None
    commit: str
    url: str
    created_at: Time


class EndpointFinding(Answer):
    """One finding of a test."""

    state: str
    sentence: str
    hint: str


class EndpointUse(Answer):
    """The use of an endpoint."""

    tokens: int
    cost: float | None = Field(description="null where no price is set")
    last_at: Time | None


class Endpoint(Answer):
    """An endpoint, its last test and its use; never its key."""

    id: UUID
    name: str
    reference: str = Field(description="endpoint:<name>")
    url: str
    model: str
    tool_format: str
    context_tokens: int | None
    concurrency: int
    timeout_s: float
    price_in: float | None = Field(description="of a million tokens")
    price_out: float | None
    currency: str
    max_run_tokens: int | None
    max_run_cost: float | None
    max_day_tokens: int | None
    max_day_cost: float | None
    has_key: bool
    state: str
    findings: list[EndpointFinding]
    tested_at: Time | None
    used_today: EndpointUse
    used: EndpointUse
    created_at: Time


# --- Memory ---------------------------------------------------------------------------------------------------------
# Answers about the memory of a job.


class MemoryDevice(Answer):
    """The device that a job is estimated for."""

    title: str
    bytes: int = Field(description="what a program gets of it")


class MemoryTerm(Answer):
    """One line of the table."""

    term: str
    title: Translated
    part: str = Field(description="kept for the whole run, or there while learning or sampling")
    bytes: int
    why: InWords = Field(validation_alias="told")


class MemoryTable(Answer):
    """The table, in bytes."""

    device: MemoryDevice
    terms: list[MemoryTerm]
    learning: int = Field(description="all that is there while learning")
    sampling: int = Field(description="all that is there while sampling")
    whole: int = Field(description="the larger of the two")
    fits: bool
    verdict: InWords = Field(validation_alias=AliasPath("told", "verdict"))
    hint: InWords = Field(description="what to do where it does not fit", validation_alias=AliasPath("told", "hint"))
    note: InWords = Field(
        default="",
        description="how far the table of several devices was checked",
    )
    devices: int = Field(default=1, description="each of which needs as much")
    change: dict[str, int | bool | str] | None = Field(
        description="the options, by path, of the smallest change that fits"
    )
    changed: int | None = Field(description="what the job needs with it")


class Memory(Answer):
    """How much memory a job needs."""

    id: UUID | None = Field(description="of the estimate; null where none is needed")
    state: str = Field(description="open, done, failed, dropped, unknown (a base whose shape is not known), none")
    message: str = Field(description="why there is no table", validation_alias="sentence")
    hint: str
    table: MemoryTable | None
