"""Which waiting run goes first: the one order that claims and pages share.

``Rank`` says what decides between two runs. A person's runs of one priority and the same needs in a project form a
lane, which has an order of its own, so only the first run of each lane can be next: a claim reads these heads alone,
however many runs wait. ``Lines.first`` compares those that a worker can train; ``queue.py`` asks it again and again to
foresee which runs are taken later.

A run that needs more sessions of an environment than are free is passed by others, until it goes before the shares:
then the sessions of its environments are kept for it.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least, Now

from webapp.common.pools import TRAIN
from webapp.common.workers.beating import living
from webapp.common.workers.models import Needs, Worker
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.records.sessions import Room, rooms_of, sessions_in
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
    pool: str
    sessions: str
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
    def plays(self) -> Mapping[UUID, int]:
        """How many sessions of which environments it plays at once."""
        return sessions_in(self.sessions)

    @cached_property
    def lane(self) -> Lane:
        """In a project, the runs whose order between them needs no shares."""
        return Lane(CLASSES[self.priority], self.created_by_id)

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
    """One person's runs of one priority."""

    priority: int
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
    """The shares of all projects, and of each person in them, in one pool, and the sessions that runs play.

    ``rooms`` are the environments whose sessions count. Runs at work ``elsewhere``, in another pool, take no share.
    """

    def __init__(
        self,
        used: Iterable[tuple[UUID, UUID | None, float]] = (),
        at_work: Iterable[InLine] = (),
        rooms: Mapping[UUID, Room] | None = None,
        elsewhere: Iterable[InLine] = (),
    ) -> None:
        self.rooms = rooms or {}
        self._asks: dict[str, list[tuple[UUID, int]]] = {}
        self.played: dict[UUID, int] = defaultdict(int)
        self.projects: dict[UUID, Share] = defaultdict(Share)
        self.people: dict[tuple[UUID, UUID | None], Share] = defaultdict(Share)
        for project, person, seconds in used:
            self.projects[project].seconds += seconds
            self.people[project, person].seconds += seconds
        for run in at_work:
            self.change(run, 1, 0.0)
        for run in elsewhere:
            self.play(run, 1)

    def change(self, run: InLine, sign: int, at: float) -> None:
        """A run takes its devices and sessions, or with -1 gives them back."""
        self.projects[run.project_id].change(sign * run.devices, at)
        self.people[run.project_id, run.created_by_id].change(sign * run.devices, at)
        self.play(run, sign)

    def play(self, run: InLine, sign: int) -> None:
        """A run takes its sessions, or with -1 gives them back."""
        for environment, count in self._asked_by(run):
            self.played[environment] += sign * count

    def counted(self, run: InLine) -> list[UUID]:
        """Its environments whose sessions count."""
        return [environment for environment, _count in self._asked_by(run)]

    def lacks(self, run: InLine) -> list[UUID]:
        """Its environments that have too few free sessions for it."""
        asked = self._asked_by(run)
        return [each for each, count in asked if self.played[each] + count > self.rooms[each].slots]

    def _asked_by(self, run: InLine) -> list[tuple[UUID, int]]:
        """The environments of a run whose sessions count, and how many it takes of each; looked up once for all runs
        that play the same."""
        if (found := self._asks.get(run.sessions)) is None:
            counted = ((pk, count) for pk, count in run.plays.items() if pk in self.rooms)
            found = self._asks[run.sessions] = [(pk, self.rooms[pk].taken_by(count)) for pk, count in counted]
        return found

    def over_limit(self, run: InLine) -> bool:
        """Whether its project would have more devices with this run than it may have at once."""
        return run.limit is not None and self.projects[run.project_id].devices + run.devices > run.limit

    @staticmethod
    def before_shares(run: InLine, at: float = 0.0) -> bool:
        """Whether no share counts for a run: an owner put it first, or it waited too long."""
        return run.since[0] != 0 or run.waited_s + at > OVERDUE_S

    def rank(self, run: InLine, at: float = 0.0, *, of_project: bool = True) -> Rank:
        """What decides about a run ``at`` seconds from now; without ``of_project``, between runs of one project."""
        priority, first, since = CLASSES[run.priority], run.since[0], run.since[1:]
        if self.before_shares(run, at):
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

    def least(self) -> tuple[Rank, K] | None:
        """The least rank, and its key."""
        while self._heap and self._ranks.get(self._heap[0][1]) is not self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


class Line(Generic[R]):
    """Runs of one project with the same needs and sessions that may be taken, in their lanes.

    The share of the project is the same for all of them, so people alone decide between the lanes.
    """

    def __init__(self, shares: Shares, runs: Iterable[R] = ()) -> None:
        self._shares, self._at = shares, 0.0
        self._lanes: dict[Lane, deque[R]] = {}
        self._of_person: dict[UUID | None, set[Lane]] = defaultdict(set)
        self._heap = _Heap[Lane]()
        for run in sorted(runs, key=lambda each: each.since):
            self._lane_of(run).append(run)
        self._rank(self._lanes)

    def _lane_of(self, run: R) -> deque[R]:
        self._of_person[run.created_by_id].add(run.lane)
        return self._lanes.setdefault(run.lane, deque())

    def add(self, run: R) -> None:
        """One more run that may be taken."""
        insort(self._lane_of(run), run, key=lambda each: each.since)
        self._rank([run.lane])

    def first(self, at: float) -> tuple[Rank, R] | None:
        """The run that goes first ``at`` seconds from now, after its rank in the project. ``None`` where none waits, or
        its project would have too many devices with it: smaller ones do not pass it, or it might never start."""
        if at != self._at:
            self._at, self._heap = at, _Heap[Lane]()
            self._rank(self._lanes)
        if (found := self._heap.least()) is None:
            return None
        rank, lane = found
        run = self._lanes[lane][0]
        return None if self._shares.over_limit(run) else (rank, run)

    def take(self, run: R) -> None:
        """The run that is first leaves the line; its share changes then."""
        self._lanes[run.lane].popleft()

    def share_changed(self, person: UUID | None) -> None:
        """The share of a person has changed."""
        self._rank(self._of_person.get(person, ()))

    def _rank(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            runs = self._lanes[lane]
            self._heap.put(lane, self._shares.rank(runs[0], self._at, of_project=False) if runs else None)


def anyone(_needs: str) -> bool:
    """Meets all needs."""
    return True


class _Heads(Generic[R]):
    """Of each project, the run that workers of one kind could take, and a heap of their ranks. What was found for a
    project in ``changed`` no longer holds."""

    def __init__(self, projects: Iterable[UUID]) -> None:
        self.changed = set(projects)
        self._runs: dict[UUID, R] = {}
        self._heap = _Heap[UUID]()

    def put(self, project: UUID, rank: Rank | None, run: R | None) -> None:
        """What a project has from now on."""
        self._heap.put(project, rank)
        if run is not None:
            self._runs[project] = run

    def least(self) -> R | None:
        """The run of the least rank."""
        found = self._heap.least()
        return None if found is None else self._runs[found[1]]


class Lines(Generic[R]):
    """Runs that may be taken: of each project a line for those of the same needs and sessions. ``served`` says which
    needs some worker meets.

    A run changes the shares, and the free sessions of environments, of its own project alone. So the run that a project
    offers to a kind of workers is looked for again only after a change in that project.
    """

    def __init__(self, runs: Iterable[R], shares: Shares, served: Callable[[str], bool] = anyone) -> None:
        self._shares, self._served, self._at = shares, served, 0.0
        alike: dict[UUID, dict[tuple[str, str], list[R]]] = defaultdict(lambda: defaultdict(list))
        for run in runs:
            alike[run.project_id][self._line_of(run)].append(run)
        self._lines = {
            project: {key: Line(shares, found) for key, found in lines.items()} for project, lines in alike.items()
        }
        self._heads: dict[Callable[[str], bool], _Heads[R]] = {}

    def _line_of(self, run: R) -> tuple[str, str]:
        return run.needs, run.sessions if self._shares.counted(run) else ""

    def add(self, run: R) -> None:
        """One more run that may be taken."""
        lines = self._lines.setdefault(run.project_id, {})
        lines.setdefault(self._line_of(run), Line(self._shares)).add(run)
        self._changed(run)

    def first(self, at: float = 0.0, meets: Callable[[str], bool] = anyone) -> R | None:
        """The run to take ``at`` seconds from now by a worker that meets these needs; ``None`` where none waits."""
        if at != self._at:
            self._at = at
            self._heads.clear()  # ranks change with time
        if meets not in self._heads:
            self._heads[meets] = _Heads(self._lines)
        heads = self._heads[meets]
        while heads.changed:
            project = heads.changed.pop()
            run = self._first_in(project, meets)
            heads.put(project, None if run is None else self._shares.rank(run, at), run)
        return heads.least()

    def _first_in(self, project: UUID, meets: Callable[[str], bool]) -> R | None:
        """The run of a project that such a worker could take: the first whose sessions are free, and not kept."""
        kept = set[UUID]()  # for those that go before the shares and have too few sessions yet
        lines = self._lines[project].items()
        firsts = (line.first(self._at) for (needs, _sessions), line in lines if meets(needs) or self._served(needs))
        for _rank, run in sorted(found for found in firsts if found is not None):
            lacks = self._shares.lacks(run)
            if not lacks and kept.isdisjoint(run.plays) and meets(run.needs):
                return run
            if lacks and self._shares.before_shares(run, self._at):
                kept.update(self._shares.counted(run))
        return None

    def take(self, run: R) -> None:
        """The run that is first leaves its line with its devices, at the time of the last look."""
        self._lines[run.project_id][self._line_of(run)].take(run)
        self._change(run, 1, self._at)

    def give_back(self, run: InLine, at: float) -> None:
        """A run gives its devices back."""
        self._change(run, -1, at)

    def leave(self, run: InLine) -> None:
        """A run of another pool, or one that ends at no known time, gives its sessions back."""
        self._shares.play(run, -1)
        self._changed(run)

    def _change(self, run: InLine, sign: int, at: float) -> None:
        self._shares.change(run, sign, at)
        for line in self._lines.get(run.project_id, {}).values():
            line.share_changed(run.created_by_id)
        self._changed(run)

    def _changed(self, run: InLine) -> None:
        if run.project_id in self._lines:
            for heads in self._heads.values():
                heads.changed.add(run.project_id)


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
_LANE = ("priority", "project_id", "created_by_id", "needs", "sessions")


def _rows(rows: QuerySet[Run]) -> list[InLine]:
    made: dict[str, Any] = {"limit": LIMIT, "heard_at": Coalesce("lease_beat_at", "lease_started_at"), "read_at": Now()}
    return [InLine(**row) for row in rows.annotate(**made).values(*_COLUMNS, *_MADE)]


def no_room(run: Run) -> bool:
    """Whether a run that is claimed would pass the device limit of its project, or the sessions of an environment.

    Locks the project where either counts, so that two workers never claim the last device or session at once.
    """
    project = Project.all_objects.filter(pk=run.project_id)
    rooms = rooms_of([run.project_id]) if run.sessions else {}
    limited = run.pool == TRAIN and project.filter(device_limit__isnull=False).exists()
    if not limited and rooms.keys().isdisjoint(sessions_in(run.sessions)):
        return False
    project.select_for_update(no_key=True).get()
    leased = _rows(Run.objects.filter(project=run.project_id, state__in=LEASED, imported=False).order_by())
    at_work, elsewhere = _apart(run.pool, leased)
    shares, (mine,) = Shares((), at_work, rooms, elsewhere), _rows(Run.objects.filter(pk=run.pk))
    return shares.over_limit(mine) or bool(shares.lacks(mine))


def first_of(pool: str, worker: Worker) -> InLine | None:
    """The run of a pool that goes first on a worker; ``None`` where it can start none. In three queries, and two more
    where one of the runs plays in an environment.

    One that a silent worker has is in line too: it may have to be taken again.
    """
    order = (*_LANE, F("first_at").desc(nulls_last=True), F("queued_at").asc(nulls_last=True), "created_at", "pk")
    able = meets(worker)
    heads = _rows(can_start(pool).order_by(*order).distinct(*_LANE))
    if not any(able(run.needs) for run in heads):
        return None
    rooms = rooms_of({run.project_id for run in heads if run.sessions}) if any(run.sessions for run in heads) else {}
    others = [meets(each) for each in living(pool)] if rooms else []
    leased = _rows(Run.objects.filter(state__in=LEASED, imported=False).order_by())
    at_work, elsewhere = _apart(pool, [run for run in leased if not run.silent])
    silent = [run for run in leased if run.silent and run.pool == pool]
    shares = Shares([row[1:] for row in used_seconds(pool)], at_work, rooms, elsewhere)
    lines = Lines([*heads, *silent], shares, lambda needs: any(meets_them(needs) for meets_them in others))
    return lines.first(meets=able)


def _apart(pool: str, runs: Sequence[InLine]) -> tuple[list[InLine], list[InLine]]:
    """Those of a pool, and the others."""
    return [run for run in runs if run.pool == pool], [run for run in runs if run.pool != pool]
