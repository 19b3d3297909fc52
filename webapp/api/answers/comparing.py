"""Answers about comparisons, suites, votes and sweeps."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import AliasPath, BeforeValidator, Field

from webapp.common.answers import Answer, Finite, Interval, InWords, Object, Time, Username
from webapp.common.words import failure


class Contestant(Answer):
    """One evaluation with its figures."""

    id: UUID
    name: str
    figures: dict[str, Interval]
    tasks: int
    missing_tasks: int
    excluded: int


class Verdict(Answer):
    """The comparison of two evaluations."""

    better: UUID = Field(validation_alias=AliasPath("better", "run", "pk"))
    worse: UUID = Field(validation_alias=AliasPath("worse", "run", "pk"))
    told_apart: bool = Field(validation_alias="told")
    p_value: float | None
    text: str


class Headline(Answer):
    """The answer to which is better."""

    kind: str = Field(description="better, leaders, ahead, equal, circle or nothing: docs/evaluation.md")
    text: str
    leaders: Annotated[list[UUID], BeforeValidator(lambda found: [item.run.pk for item in found])] = Field(
        description="the runs that it names, the best first"
    )
    left_out: list[str] = Field(description="what it does not cover")


class ComponentLack(Answer):
    """A component of the spec that an evaluation has not recorded: rollouts by their state."""

    computed: int = Field(description="from the transcript")
    unscored: int = Field(description="not scored yet")
    failed: dict[InWords, int] = Field(description="could not be computed, by the reason")


class Lacking(Answer):
    """The components of the spec that an evaluation has not recorded."""

    id: UUID
    rollouts: int = Field(description="that lack a value, and so have no reward under the spec")
    components: dict[str, ComponentLack] = Field(validation_alias="by_name")


def _failure_words(error: Object | None) -> str | None:
    found = failure(error)
    return " ".join(text for text in (found.title, found.detail) if text) if found else None


class Rescoring(Answer):
    """The scoring of recorded rollouts by a spec."""

    id: UUID
    spec: str = Field(validation_alias="name")
    runs: list[UUID]
    state: str = Field(description="waiting, scoring, done, failed or cancelled")
    done: int
    total: int
    error: Annotated[str | None, BeforeValidator(_failure_words)]
    created_by: Username
    created_at: Time
    ended_at: Time | None


class ToScore(Answer):
    """A forecast of scoring the recorded rollouts, and the last request."""

    rollouts: int
    asks: str = Field(description="which judges or models it asks how often; empty where none")
    refusal: str = Field(description="why it cannot be done; empty where it can")
    newest: Rescoring | None


class Comparison(Answer):
    """Evaluations side by side."""

    answer: Headline
    notes: list[str]
    specs_differ: bool
    items: list[Contestant]
    verdicts: list[Verdict]
    lacking: list[Lacking] = Field(description="with a spec: what was not recorded of it")
    to_score: ToScore | None = Field(description="with a spec: what can be computed, while values lack")


class ComparedRun(Answer):
    """A run of a comparison, and its name when that was saved."""

    id: UUID
    name: str


class SavedComparison(Answer):
    """A comparison under a name."""

    id: UUID
    name: str
    runs: list[ComparedRun] = Field(validation_alias="contestants")
    spec: str
    pair: list[str]
    tasks: str
    category: str
    created_by: Username
    created_at: Time


class Comment(Answer):
    """A comment on a comparison."""

    id: UUID
    text: str
    created_by: Username
    created_at: Time
    edited_at: Time | None


class Link(Answer):
    """A link that shares a comparison, without its address."""

    id: UUID
    hint: str
    created_by: Username
    created_at: Time
    expires_at: Time
    opened: int
    opened_at: Time | None


class LinkLine(Link):
    """A link and whether it still opens."""

    state: str = Field(description="open, expired, revoked or left")


class LinkMade(Link):
    """A link with its address, in this answer alone."""

    url: str


class Suite(Answer):
    """A suite and the number of its newest version."""

    id: UUID
    name: str
    note: str
    version: int


def _run_ids(runs: Any) -> list[UUID]:
    return [item.run_id for item in runs.all()]


class SuiteEvaluation(Answer):
    """A contestant on all parts of a suite."""

    id: UUID
    contestant: str
    runs: Annotated[list[UUID], BeforeValidator(_run_ids)]


RunState = Annotated[str | None, BeforeValidator(lambda run: getattr(run, "state", run))]
"""The state of a row's run; ``null`` where it has none."""


class SuitePart(Answer):
    """A contestant's result in one part."""

    title: str
    success: Interval | None
    state: RunState = Field(description="of the run that plays it", validation_alias="run")


class SuiteLine(SuiteEvaluation):
    """A line of the leaderboard."""

    score: Interval | None
    parts: list[SuitePart]
    notes: list[str]
    verdict: str = Field(description="how it compares with the first")


class SuiteWhole(Suite):
    """A suite's newest version with its leaderboard."""

    parts: list[Object] = Field(description="title, weight, config, environment")
    lines: list[SuiteLine]
    waiting: list[SuiteLine] = Field(description="evaluations without a score (yet)")
    baselines: list[Object]


class VoteRound(Answer):
    """A vote round and how far you are."""

    id: UUID
    name: str
    open: bool
    instructions: str
    seed: int
    asked: bool = Field(validation_alias=AliasPath("standing", "asked"))
    done: int = Field(validation_alias=AliasPath("standing", "progress", "done"))
    left: int = Field(validation_alias=AliasPath("standing", "progress", "left"))
    created_at: Time
    url: str


class VoteCast(VoteRound):
    """The round after your vote."""

    replaced: bool


class VoteUndone(VoteRound):
    """The round after your vote was taken back."""

    undone: UUID | None


class BallotTurn(Answer):
    """The messages of one turn of both episodes."""

    left: list[Object] | None
    right: list[Object] | None


class Ballot(Answer):
    """Two episodes of one task, without names."""

    id: UUID
    text: str
    expected: str | None
    told: list[Object]
    turns: list[BallotTurn]


class VoteNext(VoteRound):
    """The round with your next ballot."""

    ballot: Ballot | None


class VotedOn(Answer):
    """A contestant's score."""

    number: int = Field(validation_alias=AliasPath("contestant", "number"))
    run: UUID | None = Field(validation_alias=AliasPath("contestant", "run_id"))
    name: str = Field(validation_alias=AliasPath("contestant", "name"))
    score: Finite = Field(validation_alias="chance")
    low: Finite
    high: Finite
    votes: int = Field(validation_alias=AliasPath("score", "votes"))
    ties: int
    both_bad: int


class Wins(Answer):
    """How often the row was preferred to the column."""

    wins: int
    votes: int


class Voter(Answer):
    """A voter's progress."""

    username: str = Field(validation_alias=AliasPath("user", "username"))
    done: int
    total: int


class Agreement(Answer):
    """The agreement of voters."""

    alpha: Finite = Field(description="Krippendorff's α")
    share: Finite
    questions: int


class AgreesWith(Answer):
    """How often people preferred the higher figure."""

    share: Interval
    undecided: int
    equal: int
    unknown: int


class VoteResults(VoteRound):
    """The results of the votes."""

    votes: int
    decided: int
    ties: int
    both_bad: int
    contestants: list[VotedOn]
    wins: list[list[Wins | None]]
    voters: list[Voter] = Field(validation_alias="people")
    agreement: Agreement
    left_preferred: Interval = Field(validation_alias=AliasPath("found", "left"))
    agrees_with_reward: AgreesWith = Field(validation_alias="reward")
    agrees_with_verdict: AgreesWith = Field(validation_alias="verdict")


# Answers about sweeps.


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
