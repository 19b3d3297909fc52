"""The journal of a run: the events that are in it, how they are written, and reading it from its end."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from envs.wire import Message
from training.config import Kind
from training.errors import ErrorInfo
from training.lanes import LaneStep
from training.words import Sentence, _

# What a trainer can say: the events of its journal, one class each (``training/journal.py`` writes and reads them).

JOURNAL_VERSION = 1
Phase = Literal["preparing", "generating", "scoring", "training", "saving", "evaluating"]
RolloutStatus = Literal["completed", "truncated", "excluded"]


class Event(BaseModel):
    """Fields that every event has; ``n`` and ``t`` are set by the writer."""

    model_config = ConfigDict(ser_json_inf_nan="strings", extra="ignore")

    v: int = JOURNAL_VERSION
    n: int = 0
    t: float = 0.0


class RunStarted(Event):
    """The trainer is up.

    ``total_steps`` counts optimiser steps, or batches of rollouts where nothing is trained;
    ``from_step`` is above 0 after a resume. ``resolved`` says what an option that left something open became, such as
    ``model.revision`` (the commit) or ``optim.learning_rate``. ``save_seconds`` is what a checkpoint is expected to
    take, from its size, until ``CheckpointSaved.seconds`` is known: who stops a trainer waits for at least three times
    as long before killing it.
    """

    type: Literal["run_started"] = "run_started"
    kind: Kind
    total_steps: int
    from_step: int = 0
    rows: int | None = None
    device: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    pid: int = 0
    attempt: int = 1
    resolved: dict[str, str] = Field(default_factory=dict)
    save_seconds: float | None = None


class StageStarted(Event):
    """A stage of the run is trained from here on: the ``stage``-th ``of`` so many, which began after step ``began``.

    ``step`` is the last one that was trained: above ``began`` where a later attempt continues the stage. ``why`` it
    begins: the one before it ended by its ``steps`` or by a held-out ``figure``. ``rows`` is what it learns from.
    """

    type: Literal["stage_started"] = "stage_started"
    stage: int
    of: int
    name: str
    began: int
    step: int
    rows: int | None = None
    why: Literal["first", "resumed", "steps", "figure"] = "first"


class PhaseChanged(Event):
    """The trainer's phase. ``step`` is the step being worked on, from 1."""

    type: Literal["phase"] = "phase"
    phase: Phase
    step: int


class Metrics(Event):
    """Figures of one finished step, under TRL's names or ours (``rollouts/``, ``groups/``, ``env/``, ``timing/``)."""

    type: Literal["metrics"] = "metrics"
    step: int
    values: dict[str, float]


class DeviceStep(Event, LaneStep):
    """A training device over a step, which it has just ended, with the evaluation and the checkpoint after it."""

    type: Literal["device_step"] = "device_step"


class RolloutStarted(Event):
    """A trajectory begins. ``group`` numbers the step's prompts from 0, ``index`` the group's generations from 0.

    ``again`` above 0: the same trajectory begins again, because its environment was lost; its turns so far are void.

    ``row`` is the row's place in the dataset, from 0: in that of its ``part``, where the run mixes several.
    ``policy`` names who plays where that is not the run's model.
    ``held_out``: played to evaluate the weights as they are after ``step``; nothing is learned from it.
    ``expected``: the answer that was wanted, where an imported run has it.
    """

    type: Literal["rollout_started"] = "rollout_started"
    rollout: str
    step: int
    group: int
    index: int
    row: int | None = None
    task: str = ""
    policy: str = ""
    again: int = 0
    held_out: bool = False
    expected: str = ""
    part: str = ""


class TurnAdded(Event):
    """Messages that one party added: ``turn`` 0 is the prompt, then each model turn and each environment answer.

    ``tokens`` are the ones the model sampled (0 for the environment), ``seconds`` how long the party took.
    ``policy_step``: the weights that sampled it were trained for so many steps, where a run that trains played.
    ``parse_error``: why its text could not be read as a call; the environment was sent that. ``wrote``: that text,
    where the message does not hold all of it.
    """

    type: Literal["turn"] = "turn"
    rollout: str
    turn: int
    messages: list[Message]
    tokens: int = 0
    seconds: float = 0.0
    policy_step: int | None = None
    parse_error: str | None = None
    wrote: str | None = None


class RolloutFinished(Event):
    """A trajectory ended. ``reward`` and parts are ``None`` when missing; an excluded rollout has no reward.

    ``env_reward`` and ``env_parts`` are the environment's own words, so that other rewards can be computed later from
    what is recorded. ``failed_calls`` are tool calls that were answered by an error; ``cost`` is money, where an
    endpoint with prices played. They are ``None`` where they were not counted. ``policy_step``: the oldest weights that
    sampled one of its turns were trained for so many steps. ``turn_rewards``: the environment's reward as it said it,
    first at the reset, then with the answer to each turn; ``None`` in the place of each that said none.
    """

    type: Literal["rollout_finished"] = "rollout_finished"
    rollout: str
    status: RolloutStatus
    reward: float | None = None
    parts: dict[str, float | None] = Field(default_factory=dict)
    env_reward: float | None = None
    env_parts: dict[str, float] = Field(default_factory=dict)
    turn_rewards: list[float | None] | None = None
    parse_errors: int = 0
    error: ErrorInfo | None = None
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    calls: int | None = None
    failed_calls: int | None = None
    cost: float | None = None
    policy_step: int | None = None


class GroupScored(Event):
    """Advantages of one group, in order of ``index``; ``None`` where the rollout was excluded, and of PPO, where each
    token has its own. ``turn_advantages`` are those of each rollout's turns, where turns have credit of their own.

    ``tools_digest`` names the tools that its prompts had, ``tools`` lists them the first time in an attempt.
    """

    type: Literal["group_scored"] = "group_scored"
    step: int
    group: int
    rollouts: list[str]
    advantages: list[float | None]
    reward_mean: float | None
    reward_std: float | None
    zero_variance: bool
    turn_advantages: list[list[float] | None] | None = None
    tools_digest: str = ""
    tools: list[dict[str, Any]] | None = None


class TasksHeldOut(Event):
    """The tasks that nothing is learned from, once a run has chosen them.

    ``source`` says what they were taken from: a ``share`` of the training dataset or another ``dataset``. ``rows`` are
    the places of those that are played, ``groups`` of different texts. ``leaked`` were left out because they are
    trained on; ``alike`` are played though they look much like the first ``looked_at`` rows that are trained on. A run
    that mixes several datasets says it of each ``part``.
    """

    type: Literal["tasks_held_out"] = "tasks_held_out"
    source: Literal["share", "dataset"]
    rows: list[int]
    groups: int
    leaked: int = 0
    alike: int = 0
    looked_at: int = 0
    part: str = ""


class HeldOutEvaluated(Event):
    """The held-out tasks were played with the weights after ``step`` (0: before any training).

    ``report`` is a ``training.evaluation.figures.Report`` as JSON; ``best``: no earlier step has as high a success.
    """

    type: Literal["held_out_evaluated"] = "held_out_evaluated"
    step: int
    report: dict[str, Any]
    best: bool = False


class CheckpointSaved(Event):
    """A complete checkpoint is under the run directory at the relative ``path``.

    ``seconds`` is how long the save took. A trainer that is asked to stop saves once more, so its grace follows from
    the last one: its own watchdog waits max(6.5 s, 3 × ``seconds`` + one update), and the process that kills it must
    wait longer than that. ``reward`` is the mean reward of the steps since the previous checkpoint; the highest one is
    kept by ``run.keep_last``, unless held-out tasks were played: ``held_out`` is their success with these weights, and
    counts first. ``adapter`` is the path of a LoRA adapter next to a final model.
    """

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str
    bytes: int
    final: bool = False
    seconds: float | None = None
    reward: float | None = None
    held_out: float | None = None
    adapter: str = ""


class CheckpointsRemoved(Event):
    """Checkpoints that are no longer there to resume from.

    ``paths`` are ``<folder>`` for one of this attempt, else ``<attempt>/<folder>``. ``torn``: not whole, and set aside
    as ``<name>.torn``. ``old``: deleted by the retention of ``run.keep_last``, which keeps ``best`` as well.
    """

    type: Literal["checkpoints_removed"] = "checkpoints_removed"
    paths: list[str]
    why: Literal["torn", "old"]
    best: str = ""


VERIFIED = {
    "files": _("manifest and file hashes ({n})"),
    "states": _("optimiser, schedule and random states"),
    "position": _("position in the data: step {step}"),
}
"""What is checked of a checkpoint before a run continues from it."""


class Resumed(Event):
    """Where a later attempt, or a resumed run, continues. ``lost_steps`` were trained before and are trained again.

    ``source`` is ``<attempt>/<folder>``, or a path where there is no attempt; "" when it begins at step 0 after all.
    ``set_aside`` names checkpoints that were not whole; ``verified`` are sentences of ``VERIFIED``, texts in
    journals of older versions.
    """

    type: Literal["resumed"] = "resumed"
    source: str
    step: int
    lost_steps: int = 0
    set_aside: list[str] = Field(default_factory=list)
    verified: list[Sentence] = Field(default_factory=list)


class Held(Event):
    """The step waits for something that may come back; ``error`` says for what. ``None``: it continues. ``part`` is
    that of a mix whose rollouts wait.

    It is tried again in ``next_try_s``; after ``patience_left_s`` more without success the run pauses.
    """

    type: Literal["held"] = "held"
    step: int
    part: str = ""
    error: ErrorInfo | None = None
    tries: int = 0
    next_try_s: float = 0.0
    patience_left_s: float = 0.0


class UpdateSkipped(Event):
    """An update that did not move the weights, because its loss or gradient was not finite.

    AdamW's state stays as it was; the schedule continues, since the update counts as a step of the run.
    """

    type: Literal["update_skipped"] = "update_skipped"
    step: int
    what: Literal["loss", "gradient"]
    in_a_row: int


class SamplerChecked(Event):
    """The sampler's log-probabilities held against a training forward over the same ids, in nats."""

    type: Literal["sampler_checked"] = "sampler_checked"
    step: int
    tokens: int
    max_gap: float
    mean_gap: float
    tolerance: float


class LogLine(Event):
    """One line for the run's log."""

    type: Literal["log"] = "log"
    level: Literal["info", "warning", "error"] = "info"
    message: str


class RunFinished(Event):
    """The trainer's last event. Without it, the trainer died.

    ``paused``: it ended by itself because of ``error``, which a person or time can fix. ``hours``: it succeeded before
    its last step, because its time budget of so many hours was over.
    """

    type: Literal["run_finished"] = "run_finished"
    status: Literal["succeeded", "failed", "paused", "stopped"]
    step: int
    error: ErrorInfo | None = None
    hours: float | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = whole(self)
        if self.hours is None:
            found.pop("hours", None)
        return found


AnyEvent = Annotated[
    RunStarted
    | StageStarted
    | PhaseChanged
    | Metrics
    | DeviceStep
    | RolloutStarted
    | TurnAdded
    | RolloutFinished
    | GroupScored
    | TasksHeldOut
    | HeldOutEvaluated
    | CheckpointSaved
    | CheckpointsRemoved
    | Resumed
    | Held
    | UpdateSkipped
    | SamplerChecked
    | LogLine
    | RunFinished,
    Field(discriminator="type"),
]


# A journal read from its end: what its last lines say, without reading the gigabytes before them.

CHUNK_BYTES = 1 << 16
_ROLLOUT = re.compile(rb'"rollout":"a(\d+)-s')


def drop_torn_tail(path: Path) -> tuple[int, int]:
    """Cut a last line without newline off. Returns how many whole lines come before it, and their bytes."""
    if not path.exists():
        return 0, 0
    end = _end_of_whole_lines(path)
    if end < path.stat().st_size:
        os.truncate(path, end)
    last = next(lines_backwards(path), b"")
    number = _loaded(last).get("n", 0)
    return (number if isinstance(number, int) and number > 0 else _count_lines(path)), end


def lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines of a file from the last to the first, with one chunk and one line in memory. No file, no lines."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position:
            size = min(CHUNK_BYTES, position)
            position -= size
            file.seek(position)
            pieces = (file.read(size) + rest).split(b"\n")
            rest = pieces[0]
            yield from (line for line in reversed(pieces[1:]) if line)
        if rest:
            yield rest


def last_step(path: Path) -> int:
    """The last step whose metrics are in a journal; 0 where there is none."""
    for line in lines_backwards(path):
        if b'"type":"metrics"' in line and (found := _loaded(line)).get("type") == "metrics":
            return int(found.get("step", 0))
    return 0


def last_figure(path: Path, name: str) -> float | None:
    """The last value of a metric in a journal; ``None`` where there is none."""
    sought = f'"{name}":'.encode()
    for line in lines_backwards(path):
        if sought in line and (found := _loaded(line)).get("type") == "metrics":
            value = found.get("values", {}).get(name)
            if isinstance(value, int | float):
                return float(value)
    return None


def last_attempt(path: Path) -> int:
    """The number of the last attempt that wrote into a journal, by its rollouts' names or its start; 0 without one."""
    for line in lines_backwards(path):
        if (match := _ROLLOUT.search(line)) is not None:
            return int(match[1])
        if b'"type":"run_started"' in line:
            return max(1, int(_loaded(line).get("attempt", 1)))
    return 0


def _end_of_whole_lines(path: Path) -> int:
    with open(path, "rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position:
            size = min(CHUNK_BYTES, position)
            position -= size
            file.seek(position)
            if (place := file.read(size).rfind(b"\n")) >= 0:
                return position + place + 1
    return 0


def _count_lines(path: Path) -> int:
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# The journal: the trainer's only voice, an append-only ``journal.jsonl`` of versioned events.
#
# Each line is one event: ``{"v": 1, "n": <line number from 1>, "t": <unix seconds>, "type": ..., ...}``. A line counts
# only when it ends in a newline, so a torn last line after a crash is no event. Writing never waits for a database; a
# background thread flushes and fsyncs at least once a second. The supervisor projects the file into Postgres by byte
# offset, and ``manage.py import_run`` does the same for a finished folder. Non-finite floats are the strings "NaN",
# "Infinity", "-Infinity".

JOURNAL_NAME = "journal.jsonl"
ORDERS_NAME = "orders.jsonl"
"""Next to it: what people order about rollouts in flight (``training/rollout/orders.py``)."""
FSYNC_EVERY_S = 0.5
RESERVE_NAME, RESERVE_BYTES = "journal.reserve", 256 << 10

_adapter: TypeAdapter[Any] = TypeAdapter(AnyEvent)


class Journal:
    """Append events to ``<directory>/journal.jsonl``. Safe to call from any thread.

    Lines reach the kernel at once (so they survive a kill -9 of this process) and the disk within
    ``FSYNC_EVERY_S``. A full disk raises ``OSError`` from ``write``, and leaves no part of the line behind;
    ``last_word`` then takes the room that ``keep_reserve`` had set aside.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / JOURNAL_NAME
        self._reserve = directory / RESERVE_NAME
        self._lock = threading.Lock()
        self._count, self._end = drop_torn_tail(self.path)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sync_loop, name="journal-fsync", daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        """Append one event, stamping its number and time."""
        with self._lock:
            event.t = time.time()
            self._number(event)

    def relay(self, event: Event) -> None:
        """Append one event that another process has stamped: its time stays, its number is this journal's."""
        with self._lock:
            self._number(event)

    def _number(self, event: Event) -> None:
        event.n = self._count + 1
        self._append(event.model_dump_json().encode() + b"\n")
        self._count = event.n
        self._dirty.set()

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:]) or 0
        except OSError:
            os.ftruncate(self._file.fileno(), self._end)
            raise
        self._end += len(line)

    def keep_reserve(self) -> None:
        """Set room aside for the last lines, where it is not yet. Raises ``OSError`` when the disk has none."""
        if self._reserve.exists():
            return
        try:
            with open(self._reserve, "wb") as file:
                file.write(bytes(RESERVE_BYTES))
                os.fsync(file.fileno())
        except OSError:
            self._reserve.unlink(missing_ok=True)
            raise

    def last_word(self, event: Event) -> None:
        """``write``, on a full disk with the room of the reserve."""
        try:
            self.write(event)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            self.write(event)

    def close(self) -> None:
        """Sync and close; later writes raise ``ValueError``."""
        self._closed.set()
        self._dirty.set()
        self._thread.join(timeout=5)
        with self._lock:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()
        self._reserve.unlink(missing_ok=True)

    def _sync_loop(self) -> None:
        while not self._closed.is_set():
            self._dirty.wait()
            if self._closed.wait(FSYNC_EVERY_S):
                return
            self._dirty.clear()
            try:
                os.fsync(self._file.fileno())
            except OSError as exc:  # a full or lost disk: the next write says so to the run
                sys.stderr.write(f"The journal could not be synced: {exc}\n")
                self._dirty.set()


def parse_event(line: bytes) -> Event:
    """One journal line as an event. Raises ``pydantic.ValidationError`` for anything else."""
    event: Event = _adapter.validate_json(line)
    return event


def read_events(path: Path, offset: int = 0, max_bytes: int = 1 << 20) -> Iterator[tuple[int, Event]]:
    """Yield ``(offset after the event, event)`` for the whole lines from ``offset`` on, about ``max_bytes`` of them.

    Stops before a line that is not finished yet; call again later with the last offset. Lines longer than
    ``max_bytes`` are still read whole.
    """
    with open(path, "rb") as file:
        file.seek(offset)
        start = offset
        while offset - start < max_bytes:
            line = file.readline()
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield offset, parse_event(line)
