"""The queue of runs: who is ahead of whom, which run holds which worker, and when the next one starts.

``order.py`` decides which run goes first. ``read_queue`` reads all runs that wait or hold a place, all workers, the
device time of the last day, and the sessions of environments, in one query each. It then does what workers will do:
each place goes, when its run ends, to the run that is first by then. Three such courses (as measured, as quick and as
slow as the measured steps) give the expected start and its range. A run of unknown length ends never in the first and
the last of them, and at once in the quick one.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import count
from statistics import fmean, quantiles
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db.models import Case, FloatField, OuterRef, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Now

from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import GONE_AFTER, Worker
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.records.order import LIMIT, InLine, Lines, Rank, Shares, anyone, meets, used_seconds
from webapp.runs.records.selectors import STEP_TIME
from webapp.runs.records.sessions import Room, rooms_of
from webapp.runs.states import LEASED, RunState

STEPS_MEASURED = 20
ENDING = frozenset({RunState.STOPPING, RunState.PAUSING})


# --- Read -----------------------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Seconds as expected, and their range: ``low`` is 0 where a run of unknown length may end at any time."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Waiting(InLine):
    """A run that waits or that a worker has, as the queue needs it. ``measured`` are the seconds of its last steps."""

    name: str
    project__name: str
    project__slug: str
    created_by__username: str | None
    on_hold_at: datetime | None
    step: int
    total_steps: int
    step_seconds: float | None
    held: dict[str, Any] | None
    lease_worker: str
    after_id: UUID | None
    after__name: str | None
    after__state: str | None
    budget: dict[str, Any] | None
    measured: list[float]

    @property
    def on_hold(self) -> bool:
        """Whether an owner keeps it from starting."""
        return self.queued and self.on_hold_at is not None

    @property
    def blocked(self) -> bool:
        """Whether it waits for another run to succeed."""
        return self.after_id is not None and self.after__state != RunState.SUCCEEDED

    @property
    def steps_left(self) -> int:
        """How many steps it has still to make."""
        return max(0, self.total_steps - self.step)

    @property
    def pace(self) -> float | None:
        """Seconds of a step, as measured in this attempt, else in an earlier one; ``None`` before the first step."""
        return self.step_seconds if self.step_seconds is not None else fmean(self.measured) if self.measured else None

    @property
    def steps_range(self) -> tuple[float, float] | None:
        """The seconds between which eight of ten of its last steps took; ``None`` where fewer than two are known."""
        if len(self.measured) < 2:
            return None
        tenths = quantiles(self.measured, n=10, method="inclusive")
        return tenths[0], tenths[-1]

    @property
    def ending(self) -> bool:
        """Whether it has made its last step, or was asked to stop or pause: it saves and gives its worker back."""
        done = self.total_steps > 0 and self.steps_left == 0
        return not self.queued and (self.state in ENDING or done)

    @cached_property
    def left(self) -> Span | None:
        """How long it still needs a worker; ``None`` where that is not known."""
        if self.ending:
            return Span(0.0, 0.0, 0.0)
        if self.pace is None or not self.total_steps or self.held is not None:
            return None
        seconds = self.pace * self.steps_left
        low, high = (each * self.steps_left for each in self.steps_range or (self.pace, self.pace))
        most = self._budget_left
        return Span(min(seconds, most), min(low, seconds, most), min(max(high, seconds), most))

    @property
    def _budget_left(self) -> float:
        """Seconds of its time budget that are left; infinite where it has none."""
        found = self.budget or {}
        return max(0.0, found["of"] - found.get("hours", 0.0)) * 3600 if found.get("of") else math.inf


_MADE = ("limit", "heard_at", "read_at", "budget", "measured")
_COLUMNS = tuple(name for name in Waiting.__dataclass_fields__ if name not in _MADE)
_STEPS = MetricPoint.objects.filter(run=OuterRef("pk"), name=STEP_TIME, value__gt=0, value__lt=1e9)
_MEASURED = Case(
    When(attempt__gt=0, then=ArraySubquery(_STEPS.order_by("-step", "-attempt").values("value")[:STEPS_MEASURED])),
    default=Value([], output_field=ArrayField(FloatField())),
)


def _runs_waiting() -> list[Waiting]:
    rows = Run.objects.filter(imported=False, state__in=[RunState.QUEUED, *LEASED]).order_by()
    made = rows.annotate(
        limit=LIMIT,
        heard_at=Coalesce("lease_beat_at", "lease_started_at"),
        read_at=Now(),
        budget=KeyTransform("time", "health"),
        measured=_MEASURED,
    )
    return [Waiting(**row) for row in made.values(*_COLUMNS, *_MADE)]


Used = tuple[str, UUID, UUID | None, float]
"""Pool, project, person and their device-seconds of the last day."""


class Start(NamedTuple):
    """In how many seconds a run is taken, and by which worker."""

    at: float
    worker: str


class Place(NamedTuple):
    """A place of a worker, and the run that has it; ``None`` where it is free. ``meets`` says for which needs of
    another run it will do."""

    worker: str
    run: Waiting | None
    meets: Callable[[str], bool]


# --- Order ----------------------------------------------------------------------------------------------------------


class _Course:
    """One way in which the places of a pool are taken. ``length`` gives the seconds that a run keeps its place.

    ``free`` are the places with the time at which each is free. Runs at work ``apart`` have none of them and give their
    sessions back at their end.
    """

    def __init__(
        self,
        free: Iterable[tuple[float, Place]],
        waiting: Iterable[Waiting],
        ended: Mapping[UUID, float],
        shares: Shares,
        length: Callable[[Waiting], float],
        apart: Iterable[Waiting] = (),
        served: Callable[[str], bool] = anyone,
    ) -> None:
        self._numbers, self._length = count(), length
        found: list[tuple[float, Place | Waiting]] = [*free, *((ended[run.pk], run) for run in apart)]
        self._events: list[tuple[float, int, Place | Waiting | None]] = [
            (at, next(self._numbers), of) for at, of in found
        ]
        self._later: list[tuple[float, int, Waiting]] = []  # that may be taken once their predecessors have ended
        self._followers: dict[UUID | None, list[Waiting]] = {}  # whose predecessors have not begun
        waiting = list(waiting)
        self._line = Lines((run for run in waiting if not run.blocked), shares, served)
        for run in waiting:
            if run.blocked:
                self._followers.setdefault(run.after_id, []).append(run)
        for pk, at in ended.items():
            self._release(pk, at)
        heapq.heapify(self._events)

    def _release(self, pk: UUID, at: float) -> None:
        for run in self._followers.pop(pk, []):
            heapq.heappush(self._later, (at, next(self._numbers), run))
            heapq.heappush(self._events, (at, next(self._numbers), None))

    def starts(self) -> dict[UUID, Start]:
        """When and by whom each run is taken, in that order. A run whose predecessor never ends is not in it, nor one
        that no worker can train.

        A place that finds no run is idle until something has changed. Idle places of workers that have the same find
        the same, so one of each kind is asked.
        """
        found, clock, idle = dict[UUID, Start](), 0.0, defaultdict[Callable[[str], bool], list[Place]](list)
        while self._events:
            at, _number, of = heapq.heappop(self._events)
            clock = at if math.isfinite(at) else clock  # shares do not change after the last end that is known
            if isinstance(of, Waiting):
                self._line.leave(of)
            elif of is not None:
                if of.run is not None:
                    self._line.give_back(of.run, at) if math.isfinite(at) else self._line.leave(of.run)
                idle[of.meets].append(of)
            while self._later and self._later[0][0] <= at:
                self._line.add(heapq.heappop(self._later)[2])
            for meets_needs, places in idle.items():
                while places and (run := self._line.first(clock, meets_needs)) is not None:
                    found[run.pk] = self._take(run, places.pop(), at)
        return found

    def _take(self, run: Waiting, place: Place, at: float) -> Start:
        self._line.take(run)
        end = at + self._length(run)
        self._release(run.pk, end)
        heapq.heappush(self._events, (end, next(self._numbers), place._replace(run=run)))
        return Start(at, place.worker)


def _expected(run: Waiting) -> float:
    return math.inf if run.left is None else run.left.seconds


def _quick(run: Waiting) -> float:
    return 0.0 if run.left is None else run.left.low


def _slow(run: Waiting) -> float:
    return math.inf if run.left is None else run.left.high


@dataclass(frozen=True)
class Queued:
    """The state of a queued run in its queue.

    ``place`` counts from 1, the run that is taken next; ``None`` for one that is on hold or waits for another run.
    ``start`` is when a worker is expected to take it (``None``: not known). ``unknown`` is the first run before it
    whose length is not known: where another place is free earlier, the start is only a bound.
    ``lost`` is a run that goes before it and whose worker misses its beats: nothing is taken before it is decided.
    ``next`` is the first of the runs before it, and ``rule`` the field of ``Rank`` by which that one goes first.
    """

    run: Waiting
    why: str
    place: int | None
    start: Span | None
    pool: Pool
    unknown: Waiting | None = None
    lost: Waiting | None = None
    next: Waiting | None = None
    rule: str = ""

    @property
    def ahead(self) -> int | None:
        """How many runs are taken before it."""
        return None if self.place is None else self.place - 1

    @property
    def fit_drains(self) -> bool:
        """Whether no worker can train it but those that are draining."""
        return self.why == "no_fit" and any(meets(worker)(self.run.needs) for worker in self.pool.draining)


NEVER = Start(math.inf, "")
NOWHERE = Place("", None, anyone)
"""In the place of workers where none is alive: the order of all runs."""
WAITS_FOR = {
    RunState.CANCELLED: "after_stopped",
    RunState.PAUSED: "after_paused",
    RunState.DRAFT: "after_draft",
}


class Pool:
    """The places of one pool, and its line."""

    def __init__(
        self,
        name: str,
        runs: Sequence[Waiting],
        workers: Sequence[Worker],
        used: Sequence[Used],
        rooms: Mapping[UUID, Room],
    ) -> None:
        serving = [worker for worker in workers if name in worker.queues]
        able = [worker for worker in serving if not worker.problem]
        living = [worker for worker in able if not worker.draining]
        self.name = name
        self.has_problem = bool(serving) and not able
        self.living = living
        self.draining = [worker for worker in able if worker.draining]
        at_work = [run for run in runs if not run.queued and not run.silent]
        self.ended = {run.pk: run for run in at_work}
        self.line = [run for run in runs if run.pool == name and (run.queued or run.silent) and not run.on_hold]
        self._used = [row[1:] for row in used if row[0] == name]
        self._at_work = [run for run in at_work if run.pool == name]
        self._elsewhere = [run for run in at_work if run.pool != name]
        self._rooms = rooms
        self.places = [place for worker in living for place in _places_of(worker, at_work)]

    @property
    def taken(self) -> list[Place]:
        """The places that runs have."""
        return [place for place in self.places if place.run is not None]

    @property
    def full(self) -> bool:
        """Whether runs have all of its places."""
        return len(self.taken) == len(self.places)

    @property
    def next_free(self) -> Place | None:
        """The place that is expected to be free first, of those that runs have."""
        return min(self.taken, key=lambda place: _expected(place.run) if place.run else 0.0, default=None)

    @property
    def shares(self) -> Shares:
        """The devices and the device time of projects and people, and the sessions that are played, as they are now."""
        return Shares(self._used, self._at_work, self._rooms, self._elsewhere)

    def _course(self, length: Callable[[Waiting], float]) -> dict[UUID, Start]:
        free = [(length(place.run) if place.run else 0.0, place) for place in self.places]
        ended = {pk: length(run) for pk, run in self.ended.items()}
        free = free or [(math.inf, NOWHERE)]  # without workers: the order alone
        placed = {place.run.pk for place in self.taken if place.run is not None}
        apart = [run for run in (*self._at_work, *self._elsewhere) if run.pk not in placed]
        return _Course(free, self.line, ended, self.shares, length, apart, self._served).starts()

    def _served(self, needs: str) -> bool:
        return not self.places or any(place.meets(needs) for place in self.places)

    @cached_property
    def expected(self) -> dict[UUID, Start]:
        """When each run of the line is taken, in the order of that."""
        return self._course(_expected)

    @cached_property
    def earliest(self) -> dict[UUID, Start]:
        """The same where all steps are quick."""
        return self._course(_quick)

    @cached_property
    def latest(self) -> dict[UUID, Start]:
        """The same where all steps are slow."""
        return self._course(_slow)

    def can_take(self, run: Waiting) -> list[Place]:
        """The places of workers that can train a run."""
        return [place for place in self.places if place.meets(run.needs)]

    @cached_property
    def order(self) -> dict[UUID, int]:
        """The place in the line of each run that is taken, from 0."""
        return {pk: number for number, pk in enumerate(self.expected)}

    def queued(self, run: Waiting) -> Queued:
        """The state of one of its queued runs."""
        if run.on_hold:
            return Queued(run=run, why="on_hold", place=None, start=None, pool=self)
        able = self.can_take(run)
        if self.places and not able and not run.blocked:
            return Queued(run=run, why="no_fit", place=None, start=None, pool=self)
        expected, start = self.expected.get(run.pk, NEVER).at, None
        if math.isfinite(expected) and self.places:  # the other courses are worked out where they are needed
            low, high = (course.get(run.pk, NEVER).at for course in (self.earliest, self.latest))
            start = Span(expected, min(low, expected), max(high, expected))
        before = self.before(run)
        lost = next((each for each in before if each.silent), None)
        place = None if run.blocked else len(before) + 1
        first = before[0] if before and place is not None else None
        return Queued(
            run=run,
            why=self._why(run, expected, lost, able),
            place=place,
            start=start,
            pool=self,
            unknown=self._unknown(run),
            lost=lost,
            next=first,
            rule=self._rule(first, run) if first is not None else "",
        )

    def _rule(self, first: Waiting, run: Waiting) -> str:
        """The field of ``Rank`` in which one run comes before another one now; empty where it does so only later."""
        shares = self.shares
        one, other = shares.rank(first), shares.rank(run)
        if one > other:
            return ""
        return next(name for name in Rank._fields if getattr(one, name) != getattr(other, name))

    def _why(self, run: Waiting, expected: float, lost: Waiting | None, able: Sequence[Place]) -> str:
        if run.blocked:
            return WAITS_FOR.get(RunState(run.after__state or RunState.DRAFT), "after")
        if not self.places:
            return "draining" if self.draining else "worker_problem" if self.has_problem else "no_worker"
        if lost is not None:
            return "worker_lost"
        free = sum(place.run is None for place in able)
        if self.shares.over_limit(run):
            return "limit"
        if self.shares.lacks(run) or self.kept_for(run) is not None:
            return "sessions"
        return "starting" if expected == 0 and len(self.before(run)) < free else "busy"

    def kept_for(self, run: Waiting) -> Waiting | None:
        """The run before this one for which the sessions of its environments are kept."""
        ranked, shared = self.shares, set(self.shares.counted(run))
        keeps = (each for each in self._keepers if each.pk != run.pk and shared.intersection(each.plays))
        found = min(keeps, key=ranked.rank, default=None)
        return found if found is not None and ranked.rank(found) < ranked.rank(run) else None

    @cached_property
    def _keepers(self) -> list[Waiting]:
        """Runs that go before the shares, and whose environments have too few free sessions for them."""
        shares = self.shares
        free = (run for run in self.line if not (run.blocked or shares.over_limit(run)) and self._served(run.needs))
        return [run for run in free if shares.before_shares(run) and shares.lacks(run)]

    def before(self, run: Waiting) -> list[Waiting]:
        """The runs that are taken before this one by workers that could train it, in that order."""
        able = {place.worker for place in self.can_take(run)} or {NOWHERE.worker}
        ahead = self.in_order[: self.order.get(run.pk, len(self.order))]
        return [each for each in ahead if self.expected[each.pk].worker in able]

    @cached_property
    def in_order(self) -> list[Waiting]:
        """The runs of the line that are taken, in that order."""
        known = {each.pk: each for each in self.line}
        return [known[pk] for pk in self.order]

    def _unknown(self, run: Waiting) -> Waiting | None:
        """The first run before this one whose length is not known."""
        held = [place.run for place in self.can_take(run) if place.run is not None]
        return next((each for each in [*held, *self.before(run)] if each.left is None), None)


def _places_of(worker: Worker, at_work: Iterable[Waiting]) -> list[Place]:
    runs = sorted((run for run in at_work if run.lease_worker == worker.name), key=lambda run: str(run.pk))
    free, able = max(0, worker.places - len(runs)), meets(worker)
    return [*(Place(worker.name, run, able) for run in runs), *([Place(worker.name, None, able)] * free)]


class Queue:
    """All queues as they are now."""

    def __init__(
        self, runs: Sequence[Waiting], workers: Sequence[Worker], used: Sequence[Used], rooms: Mapping[UUID, Room]
    ) -> None:
        self.runs = {run.pk: run for run in runs}
        self._workers, self._used, self._rooms = workers, used, rooms
        self._pools: dict[str, Pool] = {}

    def pool(self, name: str) -> Pool:
        """The queue of one pool."""
        if name not in self._pools:
            self._pools[name] = Pool(name, list(self.runs.values()), self._workers, self._used, self._rooms)
        return self._pools[name]

    def queued(self, run_id: UUID) -> Queued | None:
        """The state of a run in its queue; ``None`` for a run that is not queued."""
        run = self.runs.get(run_id)
        return self.pool(run.pool).queued(run) if run is not None and run.queued else None


def read_queue() -> Queue:
    """The queues of all pools, in three queries; in two where all that wait are of one person in one project, between
    whom no share decides; and one more where a run that waits plays in an environment."""
    alive = Worker.objects.with_drains().filter(beat_at__gt=Now() - GONE_AFTER).order_by("name")
    runs = _runs_waiting()
    waiting = [run for run in runs if run.queued or run.silent]
    sharing = {(run.project_id, run.created_by_id) for run in waiting}
    playing = {run.project_id for run in waiting if run.sessions}
    used = used_seconds(TRAIN, ENDPOINT) if len(sharing) > 1 else []
    return Queue(runs, list(alive), used, rooms_of(playing) if playing else {})
