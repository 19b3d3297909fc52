"""Answers about sweeps."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from webapp.common.answers import Answer, Interval, Object, Time, Username


class SweptOption(Answer):
    """An option that is varied."""

    option: str
    values: list[str | int | float | bool | None]


class Sweep(Answer):
    """Runs of one config with other values of a few options."""

    id: UUID
    name: str
    mode: str = Field(description="product or single")
    axes: list[SweptOption]
    base: Object = Field(description="the setting that all others are compared with")
    created_by: Username
    created_at: Time


class SweepRun(Answer):
    """A run of a sweep."""

    id: UUID
    name: str
    state: str


class SweepMade(Sweep):
    """A sweep that was launched."""

    runs: list[SweepRun]


class SweepPlan(Answer):
    """What a sweep would launch."""

    runs: int
    steps: int = Field(description="of all runs together; 0 where none trains")
    bytes: int | None = Field(description="on the disk; null where the size of a model is not known")
    words: str
    values: list[Object] = Field(description="of each run")
    names: list[str] = Field(description="of the runs of a sweep named NAME")


class SweepAnswer(Answer):
    """Which change helped."""

    kind: str = Field(description="helped, hurt, seeds, equal, repeats, running or nothing: docs/sweeps.md")
    text: str
    left_out: list[str] = Field(description="what it is made of, and what it does not cover")


class SweepPlace(Answer):
    """A run of a setting; `id`, `name` and `state` are `null` where it was deleted."""

    seed: int | None
    id: UUID | None
    name: str | None
    state: str | None


class SweepSetting(Answer):
    """Runs that differ in their seed alone."""

    values: Object
    base: bool
    success: Interval
    by_seed: list[float] = Field(description="the mean of each run that has one")
    spread: float | None = Field(description="the highest less the lowest of them; null with fewer than two")
    gain: Interval | None = Field(description="success less that of the base; null where it was not compared")
    p_value: float | None = Field(description="corrected for all settings of the sweep (Holm)")
    word: str = Field(description="base, helped, hurt, seeds, equal, apart or nothing: docs/sweeps.md")
    verdict: str
    runs: list[SweepPlace]


class SweepWhole(Sweep):
    """A sweep with its answer."""

    answer: SweepAnswer
    evidence: str = Field(description="what success is of: played, held_out, evaluated or training")
    settings: list[SweepSetting]
