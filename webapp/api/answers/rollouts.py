"""Answers of the rollout inspector."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import AliasPath, BeforeValidator, Field

from webapp.common.answers import Answer, Filled, Finite, Id, Numbered, Object, Pair, Time, Translated, Username
from webapp.runs.answers import Rollout, Turn


class Snippet(Answer):
    """The place where a rollout has the phrase that was looked for."""

    turn: int
    before: str
    said: str
    after: str


class FoundRollout(Rollout):
    """One rollout that was found."""

    run: UUID = Field(validation_alias="run_id")
    held_out: bool = Field(description="played to evaluate a run that trains")
    characters: int = Field(description="that the policy wrote")
    tools: list[str] = Field(description="that it called, each once")
    surprise: Finite = Field(description="bits: how rare it is in its group")
    snippet: Snippet | None


class Found(Answer):
    """A page of rollouts under filters."""

    items: list[FoundRollout]
    next: str | None = Field(description="`after` of the next page")
    total: int
    more: bool = Field(description="there are more than `total`")
    query: str = Field(description="the filters as they were read, in one fixed order")


class Bar(Answer):
    """Values from `low` to below `high`; the last bar's bound is in it, and where both are the same, that value."""

    low: float
    high: float
    count: int


class Histogram(Answer):
    """One figure of the rollouts; `name` is that of its filter."""

    name: str
    low: float
    high: float
    count: int
    bars: list[Bar]


class Value(Answer):
    """A value that rollouts have, and how many."""

    value: str
    count: int


class Spread(Answer):
    """The distributions of the rollouts under filters."""

    rows: int = Field(description="rollouts that were looked at")
    sampled: bool = Field(description="they are an even sample")
    histograms: list[Histogram]
    outcomes: list[Value]
    tools: list[Value]
    boundaries: list[Value]


class Quote(Answer):
    """What one rollout of a cluster says."""

    rollout_id: UUID = Field(validation_alias=AliasPath("rollout", "pk"))
    task: str = Field(validation_alias=AliasPath("rollout", "task"))
    text: str = Field(description="the error where one is the cause, else the end of the model's last text")
    expected: str = Field(description="the answer that its task expects; empty where none is known")


class Cluster(Answer):
    """The rollouts with one cause."""

    cause: str = Field(description="the value of the filter `cause` that finds them")
    title: str
    count: int
    quotes: list[Quote] = Field(description="the newest of different groups, three at most")
    shares: list[float | None] = Field(
        description="their part of all judged rollouts in equal ranges of steps; null where none was judged"
    )


class Causes(Answer):
    """Why rollouts did not solve their task; each is counted once, by the first cause that is recorded of it."""

    judged: int = Field(description="rollouts that were looked at and have a verdict or were excluded")
    failed: int = Field(description="those of them that did not solve their task")
    sampled: bool = Field(description="they are an even sample")
    items: list[Cluster] = Field(description="the eight largest")
    others: int = Field(description="causes that are not listed")
    other_rollouts: int


class SavedView(Answer):
    """Filters under a name."""

    id: UUID
    name: str
    run: UUID | None = Field(description="null where it is of the whole project", validation_alias="run_id")
    query: str
    url: str = Field(description="the page that shows it")
    created_by: Username
    created_at: Time


class Would(Answer):
    """The result that one way to save the rollouts would have."""

    kind: str = Field(description="demonstrations, tasks, pairs, lab or cases")
    keeps: int = Field(description="conversations, tasks, pairs, rollouts or cases; 0 with a problem")
    says: str
    left_out: list[str] = Field(description="why others are left out, with how many")
    problem: str = Field(description="why nothing can be saved in this way; else empty")


class Kept(Answer):
    """The object made from the rollouts that were found."""

    kind: str = Field(description="view, dataset, lab or cases")
    id: UUID
    name: str = Field(validation_alias="label")
    url: str


# --- Reading --------------------------------------------------------------------------------------------------------
# Answers about one rollout.


class Expected(Answer):
    """A field of the row's expected answer."""

    field: str
    value: Any


class TaskRow(Answer):
    """The row that was played."""

    dataset: UUID = Field(validation_alias=AliasPath("dataset", "pk"))
    reference: str = Field(validation_alias=AliasPath("dataset", "reference"))
    number: int = Field(description="counts from 1")
    expected: list[Expected]


class RolloutWhole(Rollout):
    """One rollout with its first turns."""

    run: UUID = Field(validation_alias="run_id")
    held_out: bool
    env_reward: Finite
    env_parts: dict[str, Any]
    turn_rewards: list[float | None] | None = Field(
        description="the environment's reward so far at the reset and after each turn, null where it said none"
    )
    turn_advantages: list[float | None] | None = Field(description="of each turn, where turns have credit of their own")
    task_row: TaskRow | None = Field(description="null where the environment drew the task, or the dataset is gone")
    expected: str = Field(description="the answer that was wanted, if an imported run gives it; else empty")
    transcript: list[Turn] = Field(description="its first turns")
    after: int | None = Field(description="number of the next turn, for /turns; null at the end")
    removed: Filled[str] = Field(description="when and by which rule the transcript was removed; null: it was not")


class Ordered(Answer):
    """The order for a rollout in flight."""

    rollout: str
    act: str = Field(description="end or fail")
    by: str
    step: int
    group: int
    index: int


class Turns(Answer):
    """A part of a transcript."""

    items: list[Turn] = Field(validation_alias="turns")
    after: int | None = Field(description="number of the next turn; null at the end")
    removed: Filled[str] = Field(description="when and by which rule the transcript was removed; null: it was not")


class Difference(Answer):
    """Where the environment first answered otherwise than recorded."""

    turn: int = Field(description="of the policy; 0 is the opening")
    what: str = Field(description="messages, reward, or ended: the episode was over although more was recorded")
    recorded: str
    now: str


class Rewound(Answer):
    """The result of playing a rollout again."""

    environment: str
    turns: int = Field(description="of the policy that were taken again")
    checked: bool = Field(description="false where the server keeps no episode, so that nothing was asked again")
    over: bool = Field(description="whether the episode ends there")
    seconds: float
    differing: list[int] = Field(description="turns whose answer is another one; 0 is the opening")
    difference: Difference | None = Field(description="null where every answer is the recorded one")
    messages: list[Object] = Field(description="the conversation up to there, as it is now")


class Branch(Answer):
    """An episode that continued from a turn of a rollout."""

    id: UUID
    rollout: UUID = Field(validation_alias="rollout_id")
    turn: int = Field(description="the first turn that is not the recorded one, from 1")
    turns: int = Field(description="turns that were taken otherwise")
    start: int = Field(description="messages before them")
    same: bool = Field(description="whether every turn before it was answered as recorded")
    done: bool = Field(description="whether the episode came to its own end")
    outcome: str = Field(description="solved, partly, failed or no_verdict")
    reward: Finite = Field(description="by the run's components; null where one is missing")
    parts: dict[str, Finite]
    missing: dict[str, str] = Field(description="why a component is missing")
    env_reward: Finite
    player: str = Field(description="the scripted policy or contestant that played; empty for a person")
    played: Id = Field(description="the rollout of the continued run, where a contestant played")
    by: Username = Field(description="who played, or had it played", validation_alias="created_by")
    created_at: Annotated[str, BeforeValidator(lambda at: at.isoformat())]
    messages: list[Object]


class Span(Answer):
    """A piece of text that earned or cost something; `start` and `end` 0: all of the message."""

    message: int = Field(description="place in the whole conversation, from 0")
    turn: int | None
    start: int = Field(description="code points")
    end: int
    note: Translated


class PartWords(Answer):
    """One component of the reward and its words."""

    name: str
    title: str
    curve: int | None
    value: float | None
    weight: float | None
    term: float | None = Field(description="the value, clipped, scaled, gated and scheduled")
    counted: float | None = Field(description="weight × term")
    why: str = Field(description="what became of the value before its weight")
    reason: str = Field(description="why there are no words; empty where there may be")
    spans: list[Span]


class Words(Answer):
    """The words that earned a rollout's reward."""

    parts: list[PartWords]


class Flag(Answer):
    """Something about a whole group: `flat`, `phantom` or `excluded`, and why."""

    name: str
    text: str


def _shares(bars: Any) -> dict[str, float]:
    return {bar.name or "rest": bar.value for bar in bars}


class GroupMember(Answer):
    """A rollout of a group."""

    id: UUID = Field(validation_alias=AliasPath("rollout", "pk"))
    index: int = Field(validation_alias=AliasPath("rollout", "index"))
    policy: str = Field(validation_alias=AliasPath("rollout", "policy"))
    outcome: str = Field(validation_alias=AliasPath("rollout", "outcome"))
    status: str = Field(validation_alias=AliasPath("rollout", "status"))
    reward: float | None = Field(validation_alias=AliasPath("rollout", "reward"))
    advantage: float | None = Field(validation_alias=AliasPath("rollout", "advantage"))
    shares: Annotated[dict[str, float], BeforeValidator(_shares)] = Field(
        description="its advantage by component; they add up to it. `rest`: none of them", validation_alias="bars"
    )


class GroupWhole(Answer):
    """A group as the newest attempt played it."""

    attempt: int
    task: str
    reward_mean: float | None = Field(validation_alias="mean")
    reward_std: float | None = Field(validation_alias="std")
    flags: list[Flag]
    why: str = Field(description="why there are no shares, or what they do not show")
    rollouts: list[GroupMember] = Field(validation_alias="members")


class Column(Answer):
    """The visits of a column, counted from 1; of categories its steps."""

    first: int
    last: int


class MapCell(Answer):
    """A cell; `step` and `group` are the newest ones in it, null of a category."""

    column: int
    solved: int
    counted: int = Field(description="rollouts with a verdict")
    share: float | None
    step: int | None
    group: int | None


class MapLine(Answer):
    """A task, or a category."""

    row: int | None = Field(description="row of the dataset, from 0")
    text: str
    category: str
    kind: str | None = Field(description="forgotten, learned, flickering, never, kept, unclear or once")
    visits: int | None = Field(description="steps that played it and have a verdict")
    first: Pair[int] | None = Field(description="rollouts that solved it at its first visit, of how many")
    last: Pair[int] | None = Field(description="the same at its last visit")
    p: float | None = Field(description="of as large a change by chance alone (Fisher); null of one visit")
    changes: int | None = Field(description="how often it changed between solved and not solved")
    first_solved: int | None = Field(description="a step")
    last_solved: int | None = Field(description="a step")
    cells: list[MapCell]


class TaskMap(Numbered[MapLine]):
    """Tasks against their visits, or categories against steps."""

    columns: list[Column]
    counts: dict[str, int] = Field(description="tasks by kind")
    by_chance: dict[str, float] = Field(description="forgotten and learned tasks that there would be by chance alone")


class Tokens(Answer):
    """The tokens of a rollout as columns, or why there are none."""

    why: str
    prompt: list[int] = []
    ids: list[int] = []
    sampled: list[int] = []
    learned: list[int] = []
    logprob: list[float | None] = []
    entropy: list[float | None] = []
    ratio: list[float | None] = []
    advantage: float | list[float] | None = None
    spelling: dict[str, Pair[str | bool]] = {}
