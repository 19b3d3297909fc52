"""The shapes of runs and of their rows, as pages, live frames and the API show them (docs/live.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, computed_field

from webapp.common.answers import Answer, Filled, Finite, Numbered, Object, Pair, Time
from webapp.common.words import failure
from webapp.runs.metrics.selectors import rounded
from webapp.runs.reports import COURSE_KINDS, event_words, held_reason, report_lines
from webapp.runs.rollouts.words import TEXTS

logger = logging.getLogger(__name__)
T = TypeVar("T")
CONTENT_MAX = 200_000  # characters of one message on a screen; the database keeps all


def _shorten(message: dict[str, Any]) -> dict[str, Any]:
    texts = {name: message.get(name) for name in TEXTS}
    long = {name: text for name, text in texts.items() if isinstance(text, str) and len(text) > CONTENT_MAX}
    cut = {name: f"{text[:CONTENT_MAX]} … (+{len(text) - CONTENT_MAX})" for name, text in long.items()}
    return {**message, **cut, "shortened": True} if cut else message


Shown = Annotated[Object, AfterValidator(_shorten)]
"""A message of which no text is longer than a screen needs."""
Text = Annotated[str | None, BeforeValidator(lambda text: text[:CONTENT_MAX] if text else None)]
"""A text that is no longer than a screen needs; ``null`` for none."""


def _words_or(text: Callable[[], T], otherwise: T) -> T:
    """The words of a record, or ``otherwise`` of one whose parts are not those of this version, which is logged."""
    try:
        return text()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        logger.error("record_without_words", extra={"error": repr(error)})
        return otherwise


def _failure_words(error: Object | None) -> dict[str, str] | None:
    found = failure(error)
    return found._asdict() if found is not None else None


class RunView(Answer):
    """A run as the live view shows it."""

    id: UUID
    name: str
    kind: str = Field(description="grpo, rloo, ppo, dpo, sft, sample or evaluate")
    state: str
    pool: str = Field(description="whose places it takes: train (a device) or endpoint (it only asks one)")
    priority: str = Field(description="its class in the queue: high, normal or low")
    on_hold_at: Time | None = Field(description="since when an owner keeps it from starting")
    phase: str
    step: int
    total_steps: int
    attempt: int = Field(description="0 before it was ever at work")
    last_reward: Finite
    seq: int = Field(description="number of its newest event")
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    step_seconds: Finite
    eta_seconds: Finite
    error: Object | None = Field(description="why it failed or paused: code, message, hint")
    held: Object | None = Field(description="what it waits for")
    health: Object = Field(description="the trainer's last report on sampler, skipped updates and saving")
    beat_age_seconds: float | None = Field(description="since its worker was last heard")
    progress_age_seconds: float | None = Field(description="since its trainer was last heard")
    waiting_for: str | None = Field(description="name of the run that must end first")
    waiting_for_state: str | None = Field(description="its state; one that is cancelled must be resumed")


class FrameRun(RunView):
    """A run in a live frame."""

    @computed_field(description="name and sentence of what a person should know, in the reader's language")  # type: ignore[prop-decorator]
    @property
    def reports(self) -> list[tuple[str, str]]:
        """The lines of the page's notice."""
        return _words_or(lambda: report_lines(self.health, self.error), [])

    @computed_field(description="`error` in the reader's language: code, boundary, title, hint, detail")  # type: ignore[prop-decorator]
    @property
    def failure(self) -> dict[str, str] | None:
        """Why it failed or paused, in words."""
        return _failure_words(self.error)

    @computed_field(description="what the step of `held` waits for, in the reader's language; empty without")  # type: ignore[prop-decorator]
    @property
    def waits_for(self) -> str:
        """The reason of a wait."""
        return _words_or(lambda: held_reason(self.held), "")


class RunState(RunView):
    """A run as the live view shows it, with its tags, notes and archive."""

    tags: list[str]
    notes: str
    archived: bool


class Run(RunState):
    """A run with the address of its page."""

    url: str


class QueueHolder(Answer):
    """A run that has a worker; without its name and steps where you may not see its project."""

    worker: str
    run: str | None
    run_id: UUID | None
    project: str | None
    ending: bool = Field(description="it has made its last step or was asked to end, and gives its worker back")
    seconds: float | None = Field(description="how long it is expected to keep the worker; null: not known")
    low: float | None
    high: float | None
    steps_left: int | None
    step_seconds: Finite = Field(description="measured; null before its first step")
    steps_measured: int | None = Field(description="how many steps the range is learned from, 20 at most")


class QueueLine(Answer):
    """A sentence about a wait, and what its link leads to."""

    text: str
    url: str = Field(description="empty: no link")
    link: str


class QueueWords(Answer):
    """The place of a run in the queue, in the language that was asked for."""

    title: str = Field(description="the place in line, and when it starts or why it does not")
    lines: list[QueueLine] = Field(description="what to do, which run has each worker, which runs are ahead")


class Queue(QueueWords):
    """The place of a queued run in the order in which workers take runs (docs/runs.md)."""

    place: int | None = Field(
        description="1: the next one; null while it waits for another run, or no worker can train it"
    )
    ahead: int | None = Field(description="how many runs are taken before it")
    why: str = Field(
        description="busy, starting, on_hold, draining, limit, sessions, no_fit, no_worker, worker_problem, "
        "worker_lost, after, after_stopped, after_paused, after_draft; no_fit: no living worker has what it asks for; "
        "limit: its project has all the devices that it may have at once; "
        "sessions: its environment has too few free sessions for it, or they are kept for a run before it"
    )
    rule: str = Field(
        description="by what the first of the runs ahead goes first: priority, put_first, overdue, project_devices, "
        "project_minutes, person_devices, person_minutes, queued_at, created_at or pk; empty: by nothing yet"
    )
    seconds: float | None = Field(description="until a worker is expected to take it; null: not known")
    low: float | None = Field(description="the same where steps are as quick as measured")
    high: Finite = Field(description="the same where they are as slow as measured; null: not known")
    places: int = Field(description="places of the living workers that may take it")
    holders: list[QueueHolder] = Field(description="runs that have these places")
    waits_for: UUID | None = Field(description="the run that must succeed first")
    short: str = Field(description="one line, such as 2nd in line · about 12 min")


class RunWhole(Run):
    """A run with its config."""

    config: Object = Field(description="as it was written; options: docs/configuration.md")
    queue: Queue | None = Field(None, description="its place in the queue; null unless it is queued. Only of `GET`")

    @computed_field(description="`error` in the reader's language: code, boundary, title, hint, detail")  # type: ignore[prop-decorator]
    @property
    def failure(self) -> dict[str, str] | None:
        """Why it failed or paused, in words."""
        return _failure_words(self.error)


class RunLine(RunState):
    """A run of the list."""

    starred: bool = Field(description="by you")
    owner: str = Field(description="user name, or empty")
    created_at: Time
    success: Finite
    success_range: Pair[float] | None = Field(description="95% interval, of evaluations that have ended")
    heldout_success: Finite
    advisories: int = Field(description="open ones")
    reward_spec: str = Field(validation_alias="spec")
    model: str
    dataset: str
    duration_seconds: float | None
    device_seconds: float | None
    queue: Queue | None = Field(None, description="its place in the queue; null unless it is queued")


class Point(Answer):
    """One figure of a run."""

    attempt: int
    step: int
    name: str
    value: Annotated[float | None, AfterValidator(rounded)]


class Rollout(Answer):
    """One episode."""

    id: UUID
    attempt: int
    step: int
    group: int
    index: int = Field(description="place in its group")
    row: int | None = Field(description="row of the dataset")
    part: str = Field(description="of a mix: the part whose task it is, and whose dataset has the row")
    task: str
    policy: str = Field(description="who played, where it was not the run's model")
    status: str = Field(description="running, completed, truncated or excluded: how the episode went")
    outcome: str = Field(description="in_flight, solved, partly, failed, no_verdict or excluded: what came of its task")
    judged_by: str = Field(description="the reward component that decided the outcome; empty for the environment")
    reward: Finite
    parts: Object = Field(description="value of each reward component")
    advantage: Finite
    error: Object | None
    turns: int
    tokens: int
    seconds: Finite
    policy_step: int | None = Field(description="steps that the oldest weights which sampled it were trained for")
    started_at: Time
    seq: int


class FrameRollout(Rollout):
    """One episode in a live frame."""

    @computed_field(description="`error` in the reader's language: code, boundary, title, hint, detail")  # type: ignore[prop-decorator]
    @property
    def failure(self) -> dict[str, str] | None:
        """Why it was left out or failed, in words."""
        return _failure_words(self.error)


class ShortRollout(FrameRollout):
    """One episode in a first frame, whose task was cut."""

    short: bool


class Turn(Answer):
    """One turn of a rollout."""

    rollout: UUID = Field(validation_alias="rollout_id")
    number: int
    messages: list[Shown] = Field(description="role, content, tool_calls; `shortened` where content was cut")
    tokens: int
    seconds: Finite
    policy_step: int | None = Field(description="steps that the weights which sampled it were trained for")
    parse_error: Filled[str] = Field(description="why its text could not be read as a call")
    wrote: Text = Field(description="its text as it was written, where the messages lack some of it")
    seq: int


class Group(Answer):
    """Statistics of a group."""

    attempt: int
    step: int
    group: int
    reward_mean: Finite
    reward_std: Finite
    zero_variance: bool
    seq: int


class Rollouts(Numbered[Rollout]):
    """Rollouts of a step; turns are those of this page, groups all of the step."""

    turns: list[Turn]
    groups: list[Group]


class Event(Answer):
    """Something that happened to a run."""

    seq: int
    attempt: int
    kind: str
    payload: Object
    at: Time

    @computed_field(description="in the reader's language; null for log lines and phases")  # type: ignore[prop-decorator]
    @property
    def words(self) -> str | None:
        """What happened, without its time and kind."""
        if self.kind not in COURSE_KINDS:
            return None
        return _words_or(lambda: event_words({"kind": self.kind, "payload": self.payload, "attempt": self.attempt}), "")


class Events(Answer):
    """Events after a `seq`."""

    items: list[Event]
    seq: int = Field(description="number of the run's newest event")
    more: bool = Field(description="ask again after the last one")
    after: int = Field(description="where to go on: `after` of your next question")
    ended: bool = Field(description="the run has ended, and this is all: nothing more follows unless it is resumed")
    run: RunView


class Checkpoint(Answer):
    """A checkpoint of a run."""

    id: UUID
    attempt: int
    step: int
    path: str
    bytes: int
    final: bool
    state: str
    created_at: Time
    seq: int


LIVE: dict[str, type[Answer]] = {
    "points": Point,
    "rollouts": FrameRollout,
    "turns": Turn,
    "groups": Group,
    "events": Event,
    "checkpoints": Checkpoint,
}
"""The lists of frames, and the shape of their rows."""
