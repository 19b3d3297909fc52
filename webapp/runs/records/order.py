"""Which waiting run goes first: the one order that claims and pages share.

``Rank`` says what decides between two runs. A person's runs of one priority and the same needs in a project form a
lane, which has an order of its own, so only the first run of each lane can be next: a claim reads these heads alone,
however many runs wait. ``Lines.first`` compares those that a worker can train; ``queue.py`` asks it again and again to
foresee which runs are taken later.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least, Now

from webapp.common.pools import TRAIN
from webapp.common.workers.models import Worker
from webapp.common.workers.needs import Needs
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.states import LEASED, Priority, RunState

MISSED_BEATS = 2.5  # a worker that is silent for longer may be lost: its run, queued earlier, would go first
SHARE_WINDOW = timedelta(hours=24)
"""Over how long the device time of a project and of a person counts."""
OVERDUE_AFTER = timedelta(hours=24)
"""A run that was queued for longer goes before its class. As long as ``SHARE_WINDOW``: by then all that its project and
its person used before it was queued no longer counts, so the share has no reason left to hold it back."""
OVERDUE_S = OVERDUE_AFTER.total_seconds()
LAST = datetime.max.replace(tzinfo=UTC)
CLASSES: dict[str, int] = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


def beat_every_s() -> float:
    """Seconds between beats of a lease: four fit into its time to live."""
    return float(min(settings.LEASE_BEAT_S, settings.LEASE_TTL_S / 4))


def silent_after() -> timedelta:
    """How long a worker may miss its beats before its run may be lost."""
    return timedelta(seconds=MISSED_BEATS * beat_every_s())


@dataclass(frozen=True)
class InLine:
    """A run that waits or that a worker has, as its order needs it. ``limit`` are the devices that its project may have
    at once; ``heard_at`` is the newest beat of its lease."""

    pk: UUID
    project_id: UUID
    created_by_id: UUID | None
    priority: str
    needs: str
    devices: int
    first_at: datetime | None
    state: str
    queued_at: datetime | None
    created_at: datetime
    limit: int | None
    heard_at: datetime | None
    read_at: datetime

    @property
    def queued(self) -> bool:
        """Whether it waits in the queue."""
        return self.state == RunState.QUEUED

    @property
    def silent(self) -> bool:
        """Whether a worker has it and misses its beats."""
        return not self.queued and self.heard_at is not None and self.read_at - self.heard_at > silent_after()

    @cached_property
    def lane(self) -> Lane:
        """The runs whose order between them needs no shares."""
        return Lane(CLASSES[self.priority], self.project_id, self.created_by_id)

    @cached_property
    def since(self) -> tuple[float, datetime, datetime, UUID]:
        """The order within its lane: those that an owner put first, the newest of them before the others. One without a
        time of waiting goes last."""
        first = -self.first_at.timestamp() if self.first_at is not None else 0.0
        return (first, self.queued_at or LAST, self.created_at, self.pk)

    @cached_property
    def waited_s(self) -> float:
        """For how many seconds it has been in line."""
        return (self.read_at - self.queued_at).total_seconds() if self.queued_at is not None else 0.0


R = TypeVar("R", bound=InLine)
K = TypeVar("K", "Lane", UUID)


class Lane(NamedTuple):
    """One person's runs of one priority in one project."""

    priority: int
    project: UUID
    person: UUID | None


class Rank(NamedTuple):
    """What decides between two runs, field after field; the smaller goes first.

    The class; of it those that an owner put first; those that waited too long, by the time of waiting; then the project
    with the fewest devices in use and the fewest minutes of them in the last day; in it the person with the fewest;
    then the time of waiting.
    """

    priority: int
    put_first: float
    overdue: datetime
    project_devices: int
    project_minutes: int
    person_devices: int
    person_minutes: int
    queued_at: datetime
    created_at: datetime
    pk: UUID


@dataclass
class Share:
    """The devices that a project or a person has in use, and their seconds of the last day up to ``at``, in seconds
    from now."""

    devices: int = 0
    seconds: float = 0.0
    at: float = 0.0

    def change(self, devices: int, at: float) -> None:
        """Take so many more devices, or give them back."""
        self.seconds, self.at = self.seconds_at(at), at
        self.devices += devices

    def seconds_at(self, at: float) -> float:
        """The device-seconds at a later time."""
        return self.seconds + self.devices * (at - self.at)

    def minutes(self, at: float) -> int:
        """The same in whole minutes: less does not decide."""
        return int(self.seconds_at(at) // 60)


class Shares:
    """The shares of all projects, and of each person in them, in one pool."""

    def __init__(self, used: Iterable[tuple[UUID, UUID | None, float]] = (), at_work: Iterable[InLine] = ()) -> None:
        self.projects: dict[UUID, Share] = defaultdict(Share)
        self.people: dict[tuple[UUID, UUID | None], Share] = defaultdict(Share)
        for project, person, seconds in used:
            self.projects[project].seconds += seconds
            self.people[project, person].seconds += seconds
        for run in at_work:
            self.change(run, 1, 0.0)

    def change(self, run: InLine, sign: int, at: float) -> None:
        """A run takes its devices, or with -1 gives them back."""
        self.projects[run.project_id].change(sign * run.devices, at)
        self.people[run.project_id, run.created_by_id].change(sign * run.devices, at)

    def over_limit(self, run: InLine) -> bool:
        """Whether its project would have more devices with this run than it may have at once."""
        return run.limit is not None and self.projects[run.project_id].devices + run.devices > run.limit

    def rank(self, run: InLine, at: float = 0.0, *, of_project: bool = True) -> Rank:
        """What decides about a run ``at`` seconds from now; without ``of_project``, between runs of one project."""
        priority, first, since = CLASSES[run.priority], run.since[0], run.since[1:]
        if first or run.waited_s + at > OVERDUE_S:  # no share counts
            return Rank(priority, first, since[0], 0, 0, 0, 0, *since)
        person, devices, minutes = self.people[run.project_id, run.created_by_id], 0, 0
        if of_project:
            project = self.projects[run.project_id]
            devices, minutes = project.devices, project.minutes(at)
        return Rank(priority, first, LAST, devices, minutes, person.devices, person.minutes(at), *since)


class _Heap(Generic[K]):
    """The least of ranks that change: one that is not the newest of its key is skipped."""

    def __init__(self) -> None:
        self._ranks: dict[K, Rank] = {}
        self._heap: list[tuple[Rank, K]] = []

    def put(self, key: K, rank: Rank | None) -> None:
        """The rank of a key from now on; ``None`` takes it out."""
        if rank is None:
            self._ranks.pop(key, None)
        else:
            self._ranks[key] = rank
            heapq.heappush(self._heap, (rank, key))

    def least(self) -> K | None:
        """The key whose rank is the least."""
        while self._heap and self._ranks.get(self._heap[0][1]) is not self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None


class Line(Generic[R]):
    """Runs with the same needs that may be taken, in their lanes.

    The share of a project is the same for all its lanes, so it does not decide between them: each project has a heap of
    its lanes, which ranks them by people, and one heap ranks the projects by their first runs.
    """

    def __init__(self, runs: Iterable[R], shares: Shares) -> None:
        self._shares, self._at = shares, 0.0
        self._lanes: dict[Lane, deque[R]] = {}
        self._of_person: dict[tuple[UUID, UUID | None], set[Lane]] = defaultdict(set)
        self._heaps: dict[UUID, _Heap[Lane]] = {}
        self._projects = _Heap[UUID]()
        for run in sorted(runs, key=lambda each: each.since):
            self._lane_of(run).append(run)
        self._rank_all()

    def _lane_of(self, run: R) -> deque[R]:
        self._of_person[run.project_id, run.created_by_id].add(run.lane)
        return self._lanes.setdefault(run.lane, deque())

    def add(self, run: R) -> None:
        """One more run that may be taken."""
        insort(self._lane_of(run), run, key=lambda each: each.since)
        self._rank_person(run)
        self._rank_project(run.project_id)

    def first(self, at: float = 0.0) -> R | None:
        """The run to take ``at`` seconds from now; ``None`` where none waits."""
        if at != self._at:
            self._at = at
            self._rank_all()
        project = self._projects.least()
        return None if project is None else self._first_in(project)

    def take(self, run: R) -> None:
        """The run that is first leaves the line."""
        self._lanes[run.lane].popleft()

    def share_changed(self, run: InLine) -> None:
        """The share of a run's project and person has changed."""
        self._rank_person(run)
        self._rank_project(run.project_id)

    def _first_in(self, project: UUID) -> R | None:
        lane = self._heaps[project].least() if project in self._heaps else None
        return None if lane is None else self._lanes[lane][0]

    def _rank_all(self) -> None:
        self._heaps, self._projects = {}, _Heap[UUID]()
        for lanes in self._of_person.values():
            self._rank_lanes(lanes)
        for project in list(self._heaps):
            self._rank_project(project)

    def _rank_person(self, run: InLine) -> None:
        self._rank_lanes(self._of_person.get((run.project_id, run.created_by_id), ()))

    def _rank_lanes(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            runs = self._lanes[lane]
            rank = self._shares.rank(runs[0], self._at, of_project=False) if runs else None
            self._heaps.setdefault(lane.project, _Heap()).put(lane, rank)

    def _rank_project(self, project: UUID) -> None:
        run = self._first_in(project)  # smaller ones do not pass it, or it might never start
        waits = run is None or self._shares.over_limit(run)
        self._projects.put(project, None if run is None or waits else self._shares.rank(run, self._at))


class Lines(Generic[R]):
    """Runs that may be taken: a line for those of each needs, between which the same shares decide."""

    def __init__(self, runs: Iterable[R], shares: Shares) -> None:
        self._shares, self._at = shares, 0.0
        by_needs: dict[str, list[R]] = defaultdict(list)
        for run in runs:
            by_needs[run.needs].append(run)
        self._lines = {needs: Line(found, shares) for needs, found in by_needs.items()}

    def add(self, run: R) -> None:
        """One more run that may be taken."""
        self._lines.setdefault(run.needs, Line((), self._shares)).add(run)

    def first(self, at: float = 0.0, meets: Callable[[str], bool] = lambda _needs: True) -> R | None:
        """The run to take ``at`` seconds from now by a worker that meets these needs; ``None`` where none waits."""
        self._at = at
        heads = (line.first(at) for needs, line in self._lines.items() if meets(needs))
        return min((run for run in heads if run is not None), key=lambda run: self._shares.rank(run, at), default=None)

    def take(self, run: R) -> None:
        """The run that is first leaves its line with its devices, at the time of the last look."""
        self._lines[run.needs].take(run)
        self._change(run, 1, self._at)

    def give_back(self, run: InLine, at: float) -> None:
        """A run gives its devices back."""
        self._change(run, -1, at)

    def _change(self, run: InLine, sign: int, at: float) -> None:
        self._shares.change(run, sign, at)
        for line in self._lines.values():
            line.share_changed(run)


# --- Read -----------------------------------------------------------------------------------------------------------


def can_start(*pools: str) -> QuerySet[Run]:
    """Queued runs that only wait for a place of these pools, in no order."""
    free = Q(after=None) | Q(after__state=RunState.SUCCEEDED)
    return Run.objects.filter(free, state=RunState.QUEUED, on_hold_at=None, pool__in=pools).order_by()


def meets(worker: Worker) -> Callable[[str], bool]:
    """Whether a worker meets the needs of a row; the same function for workers that have the same."""
    return _met_by(worker.gpus, worker.gpu_bytes, worker.gpu, worker.cluster)


@lru_cache(maxsize=256)
def _met_by(gpus: int, gpu_bytes: int | None, gpu: str, cluster: bool) -> Callable[[str], bool]:
    worker = Worker(gpus=gpus, gpu_bytes=gpu_bytes, gpu=gpu, cluster=cluster)
    return lru_cache(maxsize=256)(lambda needs: Needs.parse(needs).met_by(worker))


def trainable(rows: QuerySet[Run], worker: Worker) -> QuerySet[Run]:
    """Those of the rows whose needs a worker meets."""
    asked = rows.order_by().values_list("needs", flat=True).distinct()
    return rows.filter(needs__in=list(filter(meets(worker), asked)))


def used_seconds(*pools: str) -> list[tuple[str, UUID, UUID | None, float]]:
    """Pool, project, person and their device-seconds of the last day, from the times of attempts."""
    since, until = Now() - Value(SHARE_WINDOW), Coalesce("ended_at", Now())
    recent = Q(ended_at__gt=since) | Q(ended_at=None, run__state__in=LEASED)
    rows = Attempt.objects.filter(recent, run__pool__in=pools, run__imported=False).order_by()
    had = Least(until, Now()) - Greatest("started_at", since)
    of_devices = ExpressionWrapper(had * F("run__devices"), output_field=DurationField())
    found = rows.values_list("run__pool", "run__project", "run__created_by").annotate(used=Sum(of_devices))
    return [(pool, project, person, max(0.0, used.total_seconds())) for pool, project, person, used in found]


_MADE = ("limit", "heard_at", "read_at")
LIMIT = Case(When(pool=TRAIN, then=F("project__device_limit")))
"""The devices that the project of a run may have at once. What asks endpoints has none."""
_COLUMNS = tuple(name for name in InLine.__dataclass_fields__ if name not in _MADE)
_LANE = ("priority", "project_id", "created_by_id", "needs")


def _rows(rows: QuerySet[Run]) -> list[InLine]:
    made: dict[str, Any] = {"limit": LIMIT, "heard_at": Coalesce("lease_beat_at", "lease_started_at"), "read_at": Now()}
    return [InLine(**row) for row in rows.annotate(**made).values(*_COLUMNS, *_MADE)]


def at_limit(run: Run) -> bool:
    """Whether the project of a run that is claimed has as many devices as it may have. Locks the project, so that two
    workers do not claim its last device at once."""
    project = Project.all_objects.select_for_update(no_key=True).get(pk=run.project_id)
    if project.device_limit is None:
        return False
    had = Run.objects.filter(project=project, state__in=LEASED, pool=TRAIN, imported=False)
    return (had.aggregate(n=Sum("devices"))["n"] or 0) + run.devices > project.device_limit


def first_of(pool: str, worker: Worker) -> InLine | None:
    """The run of a pool that goes first on a worker, in three queries; ``None`` where it can start none.

    One that a silent worker has is in line too: it may have to be taken again.
    """
    order = (*_LANE, F("first_at").desc(nulls_last=True), F("queued_at").asc(nulls_last=True), "created_at", "pk")
    able = meets(worker)
    heads = [run for run in _rows(can_start(pool).order_by(*order).distinct(*_LANE)) if able(run.needs)]
    if not heads:
        return None
    leased = _rows(Run.objects.filter(state__in=LEASED, pool=pool, imported=False).order_by())
    silent = [run for run in leased if run.silent and able(run.needs)]
    return Lines([*heads, *silent], _shares(pool, leased)).first()


def _shares(pool: str, leased: Sequence[InLine]) -> Shares:
    used = [row[1:] for row in used_seconds(pool)]
    return Shares(used, (run for run in leased if not run.silent))
