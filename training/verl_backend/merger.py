"""The one journal of a run, made of the journals of its processes.

1. Each process appends to ``<run>/actors/<name>/journal.jsonl``. Only whole lines count, so a torn last one waits.
2. ``merge`` takes what is new in all of them, in the order of its times; the lines of one process stay in theirs. Times
   stay those of the writers, numbers are the run's.
3. The metrics of a step wait until all groups that it learns from have been scored in the journal, whatever the clocks
   and file systems of the hosts say; with them waits what the trainer said after them. The last word waits for the end
   of the job.
4. Places in the files are saved after the lines are written. What was written and not saved, after a crash, is found
   at the journal's end and not written again. An event is known by its rollout, type and turn, or by all it says.
5. The last word of the job is kept for its caller, who writes the run's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from hashlib import blake2b
from heapq import merge as merged
from operator import attrgetter
from typing import NamedTuple

from pydantic import BaseModel, Field, ValidationError

from training.journal import (
    JOURNAL_NAME,
    Event,
    GroupScored,
    Journal,
    LogLine,
    Metrics,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    TurnAdded,
    lines_backwards,
    parse_event,
)
from training.verl_backend.counting import sampled_for
from training.verl_backend.folder import ACTORS_NAME

STATE_NAME, HELD_OUT = "merged.json", "heldout/"
BATCH_BYTES = 4 << 20
_STEP = re.compile(r"-s(\d+)-g")


class State(BaseModel):
    """How far a merger is: the bytes of the run's journal, and those that were taken of each process' own."""

    journal: int = 0
    taken: dict[str, int] = Field(default_factory=dict)


class Line(NamedTuple):
    """A whole line of one process. ``order`` is its time; ``event`` is ``None`` where it is none."""

    order: float
    name: str
    number: int
    end: int
    event: Event | None


class Merger:
    """Merges into the run's journal; one at a time. ``rollouts_per_step`` is how many a sampling has, ``updates`` how
    many steps are made of it.

    ``last_word`` is that of the job, once it has ended and left one.
    """

    def __init__(
        self,
        journal: Journal,
        rollouts_per_step: int,
        follow: Callable[[Event], None] = lambda _event: None,
        updates: int = 1,
    ) -> None:
        """``follow`` gets each event that is appended."""
        self._follow, self._updates = follow, updates
        self._folder, self._wanted = journal.path.parent / ACTORS_NAME, rollouts_per_step
        self._journal = journal
        self.last_word: RunFinished | None = None
        self._state = self._restored()
        self._seen: set[Hashable] = set()
        self._again: Counter[str] = Counter()
        self._scored: Counter[int] = Counter()
        self._over = 0  # the last step whose metrics are in the journal: all of its rollouts are, too
        self._numbers: Counter[str] = Counter()
        self._remember()

    def merge(self, *, over: bool = False) -> int:
        """Append what is new; how many events that were. ``over``: the job has ended, so nothing waits any more."""
        count = 0
        while new := self._pass(over=False):
            count += new
        while over and (new := self._pass(over=True)):
            count += new
        return count

    def _pass(self, *, over: bool) -> int:
        """Append what is new of about ``BATCH_BYTES`` of each process; how many lines were taken."""
        taken = 0
        waits: set[str] = set()
        for line in merged(*(self._lines(name) for name in self._names()), key=attrgetter("order")):
            if line.name in waits or (self._must_wait(line.event) and not over):
                waits.add(line.name)
                continue
            self._take(line)
            taken += 1
        if taken:
            self._save()
        return taken

    def _names(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob(f"*/{JOURNAL_NAME}"))

    def _lines(self, name: str) -> Iterator[Line]:
        """The new whole lines of a process, about ``BATCH_BYTES`` of them."""
        begin, order, number = self._state.taken.get(name, 0), 0.0, self._numbers[name]
        with open(self._folder / name / JOURNAL_NAME, "rb") as file:
            file.seek(begin)
            while file.tell() - begin < BATCH_BYTES and (line := file.readline()).endswith(b"\n"):
                number += 1
                try:
                    event = parse_event(line)
                except ValidationError:
                    event = None
                order = event.t if event is not None else order
                yield Line(order, name, number, file.tell(), event)

    def _must_wait(self, event: Event | None) -> bool:
        if isinstance(event, Metrics):
            return (step := step_of(event)) is not None and step > self._over and not self._all_scored(step)
        return isinstance(event, RunFinished)

    def _all_scored(self, step: int) -> bool:
        """Whether the groups are there that a step learns from. Those of a step before have ended with its figures."""
        sampled = sampled_for(step, self._updates)
        return sampled <= self._over or self._scored[sampled] >= self._wanted

    def _take(self, line: Line) -> None:
        if line.event is None:
            text = f"Line {line.number} of the journal of {line.name} is no event."
            self._journal.write(LogLine(level="warning", message=text))
        elif isinstance(line.event, RunFinished):
            self.last_word = line.event
        elif self._is_new(line.event):
            self._journal.relay(line.event)
            self._follow(line.event)
        self._state.taken[line.name], self._numbers[line.name] = line.end, line.number

    def _is_new(self, event: Event) -> bool:
        """Whether the journal has not got it yet; from now on it has."""
        step = step_of(event)
        if step is not None and step <= self._over:
            return False
        if isinstance(event, RolloutStarted):
            self._again[event.rollout] = event.again
        key = self._key(event)
        if key in self._seen:
            return False
        self._seen.add(key)
        if isinstance(event, GroupScored):
            self._scored[event.step] += len(event.rollouts)
        if isinstance(event, Metrics) and step is not None:
            self._end(step)
        return True

    def _key(self, event: Event) -> Hashable:
        """What an event is known by. A rollout that begins again has the same turns once more."""
        if isinstance(event, RolloutStarted | TurnAdded | RolloutFinished) and step_of(event) is not None:
            turn = event.turn if isinstance(event, TurnAdded) else None
            return event.rollout, self._again[event.rollout], event.type, turn
        if isinstance(event, GroupScored):
            return event.type, event.step, event.group
        if isinstance(event, Metrics) and step_of(event) is not None:
            return event.type, event.step
        return blake2b(event.model_dump_json(exclude={"n"}).encode(), digest_size=16).digest()

    def _end(self, step: int) -> None:
        """A step is over: of it, nothing can be new any more, so nothing of it has to be known."""
        self._over = step
        self._seen = {key for key in self._seen if isinstance(key, bytes)}
        self._again.clear()

    def _remember(self) -> None:
        """Read back what the journal has of the step that is not over, and what was written and not saved."""
        tail: list[Event] = []
        left = self._journal.path.stat().st_size
        for line in lines_backwards(self._journal.path):
            try:
                event = parse_event(line)
            except ValidationError:
                event = LogLine(message="")
            if isinstance(event, Metrics) and left <= self._state.journal and (step := step_of(event)) is not None:
                self._over = step
                break
            tail.append(event)
            left -= len(line) + 1
        for event in reversed(tail):
            self._is_new(event)

    def _restored(self) -> State:
        """The saved state, unless the journal has lost lines since: then every file is read again."""
        try:
            state = State.model_validate_json((self._folder / STATE_NAME).read_bytes())
        except (OSError, ValidationError):
            return State()
        return state if self._journal.path.stat().st_size >= state.journal else State()

    def _save(self) -> None:
        self._state.journal = self._journal.path.stat().st_size
        self._folder.mkdir(exist_ok=True)
        place = self._folder / STATE_NAME
        staged = place.with_suffix(".staging")
        staged.write_text(self._state.model_dump_json(), encoding="utf-8")
        staged.replace(place)


def step_of(event: Event) -> int | None:
    """The step that a training rollout, a group or figures are of; ``None`` of any other event.

    Held-out tasks are played with the weights of a step that is over: they and their figures are of none.
    """
    if isinstance(event, GroupScored):
        return event.step
    if isinstance(event, Metrics):
        return None if any(name.startswith(HELD_OUT) for name in event.values) else event.step
    if isinstance(event, RolloutStarted | TurnAdded | RolloutFinished):
        found = _STEP.search(event.rollout)
        return int(found[1]) if found is not None else None
    return None
