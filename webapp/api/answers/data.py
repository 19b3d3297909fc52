"""Answers about datasets, rewards and environments."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from webapp.common.answers import Answer, Object, Related, Time, Username


def _without_preview(report: Object) -> Object:
    return {name: value for name, value in report.items() if name != "preview"}


class Dataset(Answer):
    """A dataset version."""

    id: UUID
    name: str
    version: int
    reference: str = Field(description="dataset:<name>@<version>, as configs name it")
    state: str = Field(description="checking, ready, needs_choice, needs_mapping or rejected")
    file_name: str
    bytes: int
    sha256: str = Field(description="of its checked rows; empty before")
    rows: int
    bad_rows: int
    created_at: Time


class DatasetWhole(Dataset):
    """A dataset version with the report of its check (docs/data.md)."""

    progress: Object
    report: Annotated[Object, AfterValidator(_without_preview)]
    lineage: Object = Field(description="what it was made of, and how")
    reading: Object
    checking: Object


class DatasetFile(Answer):
    """A dataset written in another format."""

    id: UUID
    state: str
    file_name: str
    options: Object
    rows: int
    left_out: int
    bytes: int
    error: Object | None
    url: str | None = Field(description="null until it is written")


class RewardSpec(Answer):
    """A reward spec version."""

    id: UUID
    name: str
    version: int
    reference: str = Field(description="reward:<name>@<version>")
    components: list[Object] = Field(description="name, weight, params of each (docs/rewards.md)")
    created_at: Time


class TriedPart(Answer):
    """One component's score."""

    title: str
    value: float
    weight: float
    weighted: float


class Tried(Answer):
    """Scores of a conversation."""

    parts: list[TriedPart]
    total: float


class RewardCase(Answer):
    """A reward test case without its episode."""

    id: UUID
    name: str
    environment: str
    expected: dict[str, list[float]] = Field(description="lowest and highest of each component")
    total: list[float] | None = Field(description="lowest and highest of the weighted sum")
    origin: Object = Field(description="the recorded rollout that it was made of, and how it was found; else empty")
    created_by: Username
    created_at: Time


class Replica(Answer):
    """One server of an environment."""

    number: int
    url: str
    state: str
    health: Object
    error: Object | None
    restarts: int


class Reservation(Answer):
    """A run at work that has reserved sessions of an environment."""

    run_id: UUID
    run: str = Field(description="its name")
    sessions: int = Field(description="how many it plays at once; all where it plays more than there are")


class Reservations(Answer):
    """The sessions of an environment that runs have reserved, as claims count them."""

    slots: int | None = Field(
        description="what its answering servers hold together; null: none answers, or one does not say, and no run "
        "waits for them"
    )
    sessions: int = Field(description="how many of them are reserved")
    runs: list[Reservation]
    queued: int = Field(description="queued runs that play in it, without those on hold or after another run")
    waiting: int = Field(description="those of them that need more sessions than are free")
    title: str = Field(description="the same in a sentence or two")


class Environment(Answer):
    """An environment, its last check, and the servers that play it now."""

    id: UUID
    name: str
    reference: str = Field(description="environment:<name>")
    kind: str = Field(description="url, process or docker")
    url: str
    program: str
    image: str
    arguments: Object
    protocol: str
    options: Object
    wanted: int = Field(description="replicas")
    replicas: Related[Replica]
    validation: Object | None = Field(description="what it proved when it was last asked to")
    server_name: str
    healthy: bool | None = Field(description="null before the first check")
    health: Object
    checked_at: Time | None
    reserved: Reservations | None = Field(None, description="sessions that runs have reserved. Only of `GET` of one")


class DatasetOrder(Answer):
    """A dataset that an environment was asked for."""

    id: UUID
    name: str
    command: str
    arguments: Object
    state: str
    dataset: UUID | None = Field(description="null until it is written", validation_alias="dataset_id")
    error: Object | None
    created_at: Time
