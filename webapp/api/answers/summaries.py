"""The summary of a run: the answer of ``/runs/{run_id}/summary``."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, Field

from webapp.api.answers.runs import CheckpointPlace


class Gain(BaseModel):
    """A figure from the first tenth of the steps to the last tenth."""

    name: str = Field(description="metric (docs/metrics.md), the most important first")
    title: str
    before: float | None = Field(description="mean of the first `steps` steps; null where only one step has it")
    after: float = Field(description="mean of the last `steps` steps")
    steps: int
    of: int = Field(description="steps that have the figure")


class BestStep(BaseModel):
    """The step at which the run was best."""

    step: int
    value: float
    metric: str = Field(description="what decided: heldout/success, else rollouts/task_success, else reward")
    window: int = Field(description="steps that `value` is the mean of, the last of them `step`")
    of: int = Field(description="such means, of which it is the highest")
    tries: int = Field(description="rollouts, or held-out tasks, that a success is the share of; 0: nobody knows")
    low: float | None = Field(description="where its 95% interval begins")
    high: float | None = Field(description="where it ends")
    checkpoint: CheckpointPlace | None = Field(description="the whole one nearest to it")


class HeldOut(BaseModel):
    """Success on tasks that were not learned from, with its 95% interval."""

    success: float
    low: float | None
    high: float | None
    tasks: int = Field(description="0: nobody counted them")
    step: int | None = Field(description="of the run's own evaluation")
    run: UUID | None = Field(description="the run that evaluated its model")
    trained_on: bool = Field(description="some of these tasks were learned from after all")
    learned: int | None = Field(description="how many of them; null: all, but their rows are gone")
    learned_words: str = Field(description="which data has them, or what could not be compared")


class Cost(BaseModel):
    """The cost of the run; null is not counted, never 0."""

    device: str = Field(description="cpu, cuda …")
    device_seconds: float | None = Field(description="of all attempts")
    attempts: int
    tokens: float | None = Field(description="about so many that the model sampled")
    judge_requests: float | None
    judge_cost: float | None = Field(description="at the prices that are set")


class ModelLeft(BaseModel):
    """The finished model of a run that succeeded."""

    id: UUID | None = Field(description="null: not registered yet")
    name: str
    checkpoint: CheckpointPlace


class WorstAdvisory(BaseModel):
    """The gravest open advisory."""

    code: str
    severity: str
    title: str


class OpenAdvisories(BaseModel):
    """How many advisories are open."""

    open: int
    worst: WorstAdvisory | None


class Advice(BaseModel):
    """Something to try next, by a rule of docs/runs.md."""

    code: str
    sentence: str
    label: str = Field(description="of the page's button")
    url: str = Field(description="of the page that begins it")


class RunSummary(BaseModel):
    """The summary of a run, in the language that was asked for."""

    id: UUID
    state: str
    ended: bool = Field(description="or paused; else these are the figures so far")
    gains: list[Gain]
    best: BestStep | None
    held_out: HeldOut | None = Field(description="null: nothing was held out, and nobody evaluated its model")
    cost: Cost
    model: ModelLeft | None
    advisories: OpenAdvisories
    next: list[Advice] = Field(description="four at most; of those that need an editor only for editors")
