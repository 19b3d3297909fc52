"""Which waiting run goes first: one rule after the other, the same for claims and for pages."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Needs, Worker
from webapp.engine import attempts
from webapp.engine.attempts import claim, first_in_line
from webapp.engine.supervisor import _claim_next
from webapp.people.teams.models import Project, Team, User
from webapp.runs.models import Attempt, Run
from webapp.runs.records.order import OVERDUE_AFTER, InLine, Lines, Share, Shares, can_start, first_of, used_seconds
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.sessions import Room, sessions_text
from webapp.runs.states import RunState

Make = Callable[..., Run]
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ANA, BEN = UUID(int=1), UUID(int=2)
MINUTE = timedelta(minutes=1)
EIGHT = Worker(name="train@a", gpus=8)


# --- One rule after the other ---------------------------------------------------------------------------------------
def waits(number: int, minutes: float | None = 5, project: UUID = ANA, **fields: Any) -> InLine:
    """A run that was queued so many minutes ago."""
    queued_at = None if minutes is None else NOW - minutes * MINUTE
    known = {
        "pk": UUID(int=number),
        "project_id": project,
        "created_by_id": None,
        "priority": "normal",
        "needs": "",
        "devices": 1,
        "pool": TRAIN,
        "sessions": "",
        "first_at": None,
    }
    times = {"queued_at": queued_at, "created_at": NOW, "limit": None, "heard_at": None, "read_at": NOW}
    return InLine(**{**known, **times, "state": RunState.QUEUED, **fields})


def order(runs: list[InLine], shares: Shares | None = None) -> list[int]:
    """The numbers of the runs as they are taken, one after the other."""
    line, found = Lines(runs, shares or Shares()), []
    while (run := line.first()) is not None:
        line.take(run)
        found.append(run.pk.int)
    return found


def test_a_higher_class_goes_first_whatever_else() -> None:
    low, normal, high = (waits(n, 90 - 30 * n, priority=name) for n, name in enumerate(("low", "normal", "high")))
    assert order([low, normal, high], Shares([(ANA, None, 1e6)], [high])) == [2, 1, 0]


def test_the_project_with_the_fewest_devices_goes_first() -> None:
    mine, theirs = waits(1, 60), waits(2, 1, BEN)
    assert order([mine, theirs], Shares(at_work=[mine])) == [2, 1]
    assert order([mine, theirs], Shares(at_work=[theirs])) == [1, 2]
    assert order([mine, theirs], Shares(at_work=[mine, theirs])) == [1, 2], "equal: by the time of waiting"


def test_each_run_that_is_taken_counts_for_the_next_one() -> None:
    ana, ben = [waits(n, 60 - n) for n in range(3)], [waits(n, 10 - n, BEN) for n in range(3, 5)]
    assert order([*ana, *ben]) == [0, 3, 1, 4, 2]
    assert order([*ana, *ben], Shares(at_work=[waits(9)])) == [3, 0, 4, 1, 2]
    assert order([*ana, *ben], Shares(at_work=[waits(9), waits(8)])) == [3, 4, 0, 1, 2]


@pytest.mark.parametrize(
    ("ana_s", "ben_s", "first"), [(60, 59, 2), (59, 0, 1), (119, 60, 1), (120, 119, 2), (0, 60, 1)]
)
def test_of_equal_devices_the_fewest_whole_minutes_of_the_day_go_first(ana_s: float, ben_s: float, first: int) -> None:
    shares = Shares([(ANA, None, ana_s), (BEN, None, ben_s)])
    assert order([waits(1, 60), waits(2, 1, BEN)], shares)[0] == first


def test_in_a_project_the_person_with_the_fewest_devices_and_minutes_goes_first() -> None:
    kim, lee = UUID(int=7), UUID(int=8)
    first, later = waits(1, 60, created_by_id=kim), waits(2, 1, created_by_id=lee)
    assert order([first, later]) == [1, 2]
    assert order([first, later], Shares(at_work=[first])) == [2, 1]
    assert order([first, later], Shares([(ANA, kim, 60.0)])) == [2, 1]
    assert order([first, later], Shares([(ANA, kim, 59.0)])) == [1, 2]
    assert order([first, later], Shares([(ANA, kim, 60.0), (BEN, lee, 90.0)])) == [2, 1], "of this project alone"


def test_the_share_of_a_project_goes_before_that_of_a_person() -> None:
    kim, lee = UUID(int=7), UUID(int=8)
    runs = [waits(1, 60, created_by_id=kim), waits(2, 1, BEN, created_by_id=lee)]
    of_ana = [waits(n, created_by_id=UUID(int=n)) for n in (20, 21)]
    assert order(runs, Shares(at_work=[*of_ana, runs[1]])) == [2, 1], "lee has a device and kim none"
    assert order(runs, Shares(at_work=[of_ana[0], runs[1]])) == [1, 2]
    assert order(runs, Shares([(ANA, lee, 120.0), (BEN, lee, 60.0)])) == [2, 1]
    assert order(runs, Shares([(ANA, lee, 60.0), (BEN, lee, 60.0)])) == [1, 2]


def test_then_the_time_of_waiting_decides_and_at_last_the_id() -> None:
    assert order([waits(1, 5), waits(2, 6), waits(3, None), waits(5, 6, created_at=NOW - MINUTE), waits(4, 6)]) == [
        5, 2, 4, 1, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(("over_s", "first"), [(0.0, 2), (0.001, 1)])
def test_a_run_that_waited_longer_than_the_bound_goes_first(over_s: float, first: int) -> None:
    minutes = (OVERDUE_AFTER.total_seconds() + over_s) / 60
    old, other = waits(1, minutes), waits(2, 1, BEN)
    assert order([old, other], Shares(at_work=[old]))[0] == first


def test_an_overdue_run_passes_no_higher_class_and_the_oldest_of_them_goes_first() -> None:
    days = [waits(1, 60 * 30), waits(2, 60 * 40, BEN), waits(3, 60 * 50, BEN, priority="low"), waits(4, 1, BEN)]
    assert order([*days, waits(5, 1, priority="high")], Shares(at_work=[days[1]])) == [5, 2, 1, 4, 3]


def test_runs_that_an_owner_put_first_go_before_their_class_the_newest_first() -> None:
    once, twice = ({"first_at": NOW - n * MINUTE} for n in (9, 3))
    runs = [waits(1, 1, **once), waits(2, 1, BEN, **twice), waits(3, 60 * 30), waits(4, 1, priority="high")]
    assert order([*runs, waits(5, 9, priority="low", **twice), waits(6, 20)], Shares(at_work=runs)) == [
        4,
        2,
        1,
        3,
        6,
        5,
    ]
    assert order([waits(1, 9, **once), waits(2, 5, **once)]) == [1, 2], "put first at once: by the time of waiting"


def test_time_makes_a_run_overdue_and_devices_use_minutes() -> None:
    old, other = waits(1, 23.5 * 60), waits(2, 1, BEN)
    line = Lines([old, other], Shares(at_work=[old]))
    assert [line.first(at) for at in (0.0, 1800.0, 1800.001)] == [other, other, old]
    shares = Shares()
    line = Lines([old], shares)
    assert line.first(600.0) == old
    line.take(old)
    assert [shares.projects[ANA].minutes(at) for at in (600.0, 659.0, 660.0)] == [0, 0, 1], "from when it was taken"
    shares = Shares(at_work=[old, waits(9, 1, BEN)])
    shares.change(old, -1, 61.0)
    assert [shares.projects[each].minutes(130.0) for each in (ANA, BEN)] == [1, 2]
    assert Share(2, 30.0).minutes(14.9) == 0 and Share(2, 30.0).minutes(15.0) == 1


def test_a_device_that_is_given_back_counts_no_longer() -> None:
    mine, theirs = waits(1, 60), waits(2, 1, BEN)
    line = Lines([mine, theirs], Shares(at_work=[mine]))
    assert line.first() == theirs
    line.give_back(mine, 0.0)
    assert line.first() == mine


def test_a_run_has_as_many_devices_as_it_takes() -> None:
    """One project has a run on four devices, the other three runs on one: the other goes first."""
    four = waits(1, 60, devices=4)
    ones = [waits(n, 5, BEN) for n in (2, 3, 4)]
    line = Lines([waits(5, 60), waits(6, 1, BEN)], Shares(at_work=[four, *ones]))
    first = line.first()
    assert first is not None and first.pk.int == 6
    line.take(first)
    line.give_back(four, 60.0)
    assert [each.project_id for each in (line.first(60.0),) if each] == [ANA]


def test_a_project_that_has_all_its_devices_is_passed_over() -> None:
    mine, theirs = waits(1, 60, limit=2), waits(2, 1, BEN)
    at_two = Lines([mine, theirs], Shares(at_work=[waits(8), waits(9)]))
    assert at_two.first() == theirs
    at_two.give_back(waits(9), 0.0)
    at_two.take(theirs)
    assert at_two.first() == mine
    wide = [waits(3, 60, devices=2, limit=2), waits(4, 1, limit=2)]
    line = Lines(wide, Shares(at_work=[waits(9)]))
    assert line.first() is None, "a smaller run does not pass one that waits for more devices"
    line.give_back(waits(9), 0.0)
    assert line.first() == wide[0]


@pytest.mark.parametrize("seed", range(8))
def test_the_line_gives_the_least_rank_of_all_whatever_happens(seed: int) -> None:
    """Against all ranks compared with each other: runs are added, taken and given back while time passes, and workers
    of three kinds ask again and again."""
    rng, at = random.Random(seed), 0.0
    kinds = [needs.__contains__ for needs in ({""}, {"", "two"}, {"", "two", "eight"})]
    limits, worlds = [None, None, 1, 9], [[UUID(int=900 + 10 * p + n) for n in range(3)] for p in range(4)]
    rooms = {one[number]: Room("a", slots) for one in worlds for number, slots in enumerate((4, 9))}
    shares = Shares(rooms=rooms)

    def some(number: int) -> InLine:
        fields: dict[str, Any] = {"created_by_id": UUID(int=rng.randrange(3))}
        fields["priority"] = rng.choice(["high", "normal", "low"])
        fields["first_at"] = rng.choice([None] * 9 + [NOW - rng.randrange(9) * MINUTE])
        fields["needs"], fields["devices"] = rng.choice(["", "", "two", "eight"]), rng.choice([1, 1, 2, 8])
        project = rng.randrange(4)
        played = rng.sample(worlds[project], rng.choice([0, 1, 1, 2]))
        fields["sessions"] = sessions_text({world: rng.choice([1, 3, 20]) for world in played})
        return waits(number, rng.randrange(0, 1600, 100), UUID(int=project), limit=limits[project], **fields)

    def alike_of(run: InLine) -> tuple[UUID, str, str]:
        return run.project_id, run.needs, run.sessions if shares.counted(run) else ""

    def by_all_rules(runs: list[InLine], meets: Callable[[str], bool]) -> InLine | None:
        kept: list[UUID] = []
        for run in sorted(runs, key=lambda run: shares.rank(run, at)):
            free = [shares.rooms[each].slots - shares.played[each] for each in shares.counted(run)]
            asks = [min(run.plays[each], shares.rooms[each].slots) for each in shares.counted(run)]
            fits = all(ask <= left for ask, left in zip(asks, free, strict=True))
            if fits and meets(run.needs) and not any(each in kept for each in run.plays):
                return run
            if not fits and (run.first_at is not None or run.waited_s + at > 24 * 3600):
                kept += shares.counted(run)
        return None

    left = [some(number) for number in range(60)]
    line, busy = Lines(left, shares), list[InLine]()
    for number in range(100, 300):
        at += rng.choice([0.0, 0.0, 30.0, 600.0])
        if rng.random() < 0.3:
            left.append(run := some(number))
            line.add(run)
        if busy and rng.random() < 0.5:
            line.give_back(busy.pop(0), at)
        elif busy and rng.random() < 0.2:
            line.leave(busy.pop(0))
        meets = rng.choice(kinds)
        found = line.first(at, meets)
        heads = [
            min(same, key=lambda run: shares.rank(run, at))
            for alike in {alike_of(run) for run in left}
            if (same := [run for run in left if alike_of(run) == alike])
        ]
        assert found == by_all_rules([run for run in heads if not shares.over_limit(run)], meets)
        if found is not None:
            line.take(found)
            left.remove(found)
            busy.append(found)


# --- Claims and pages -----------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def leases(settings: Any) -> None:
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S = 600, 150


@pytest.fixture
def line(make_run: Make) -> Make:
    """``line(minutes, **fields)``: a run that was queued so many minutes ago."""

    def make(minutes: float = 1, **fields: Any) -> Run:
        return make_run(**{"state": "queued", "queued_at": timezone.now() - minutes * MINUTE, **fields})

    return make


def attempt(run: Run, began: float, ended: float | None) -> None:
    """An attempt from and to so many hours ago."""
    at, hour = timezone.now(), timedelta(hours=1)
    run.attempt += 1
    run.save(update_fields=["attempt"])
    until = None if ended is None else at - ended * hour
    Attempt.objects.create(run=run, number=run.attempt, owner="x", started_at=at - began * hour, ended_at=until)


def at_work(run: Run, minutes: float = 0) -> Run:
    """It has a worker that beats, since so many minutes."""
    Run.objects.filter(pk=run.pk).update(state="running", lease_beat_at=timezone.now())
    attempt(run, minutes / 60, None)
    return run


@pytest.mark.django_db
def test_the_time_of_the_last_day_is_read_from_attempts(line: Make, elsewhere: Project, alice: User) -> None:
    mine, theirs = line(created_by=alice), line(project=elsewhere)
    assert used_seconds(TRAIN) == []
    attempt(mine, 50, 25), attempt(mine, 26, 22), attempt(mine, 2, 1)
    attempt(theirs, 0.5, None)  # it was never sealed, and no worker has the run
    attempt(line(imported=True), 3, 1)
    attempt(line(pool=ENDPOINT), 3, 1)
    (found,) = used_seconds(TRAIN)
    assert found[:3] == ("train", mine.project_id, alice.pk)
    assert found[3] == pytest.approx(3 * 3600, abs=5), "two hours of the second, one of the third"
    Run.objects.filter(pk=theirs.pk).update(state="running")
    both = {row[1]: row[3] for row in used_seconds(TRAIN, ENDPOINT) if row[0] == "train"}
    assert both[elsewhere.pk] == pytest.approx(1800, abs=5)
    assert {row[0] for row in used_seconds(TRAIN, ENDPOINT)} == {"train", "endpoint"}


@pytest.mark.django_db
def test_an_hour_on_four_devices_is_four_hours(line: Make) -> None:
    attempt(line(devices=4), 3, 1)
    assert used_seconds(TRAIN)[0][3] == pytest.approx(8 * 3600, abs=5)


@pytest.mark.django_db
def test_a_worker_takes_the_first_run_that_it_can_train(line: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    two = line(9, needs=Needs(gpus=2).text)
    one = line(5, needs=Needs(gpus=1).text)
    any_device = line(1)
    for gpus, first in ((0, any_device), (1, one), (2, two)):
        monkeypatch.setattr(attempts, "worker_here", lambda gpus=gpus: Worker(name="train@a", gpus=gpus))
        assert first_in_line(two.pk, TRAIN) == first.pk
    monkeypatch.setattr(attempts, "worker_here", lambda: Worker(name="train@a"))
    assert claim(one.pk) is None and claim(any_device.pk) is not None
    assert first_in_line(two.pk, TRAIN) == two.pk, "nothing is left here: the message's own run, which no claim gives"
    assert claim(two.pk) is None
    Run.objects.filter(pk=any_device.pk).update(state="succeeded")
    monkeypatch.setattr(attempts, "worker_here", lambda: Worker(name="train@a", gpus=2))
    assert claim(two.pk) is not None


@pytest.mark.django_db
def test_a_silent_run_that_a_worker_cannot_train_does_not_hold_it_back(
    line: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = at_work(line(60, needs=Needs(gpus=2).text)), line(5)
    Run.objects.filter(pk=lost.pk).update(lease_beat_at=timezone.now() - 8 * MINUTE)
    for gpus, first in ((0, other.pk), (2, None)):
        monkeypatch.setattr(attempts, "worker_here", lambda gpus=gpus: Worker(name="train@a", gpus=gpus))
        assert first_in_line(other.pk, TRAIN) == first


@pytest.mark.django_db
def test_shares_are_those_of_the_pool(line: Make, elsewhere: Project) -> None:
    at_work(line(pool=ENDPOINT)), at_work(line(pool=ENDPOINT))
    mine, theirs = line(9), line(1, project=elsewhere)
    assert first_in_line(theirs.pk, TRAIN) == mine.pk
    at_work(line())
    assert first_in_line(mine.pk, TRAIN) == theirs.pk


@pytest.mark.django_db
def test_a_silent_worker_has_no_device_in_use(line: Make, elsewhere: Project) -> None:
    lost = at_work(line(1))
    other = line(9, project=elsewhere)
    assert first_in_line(other.pk, TRAIN) == other.pk
    Run.objects.filter(pk=lost.pk).update(lease_beat_at=timezone.now() - 8 * MINUTE)
    assert first_in_line(other.pk, TRAIN) == other.pk, "its project used no minute, so the time of waiting decides"
    Run.objects.filter(pk=lost.pk).update(queued_at=timezone.now() - 10 * MINUTE)
    assert first_in_line(other.pk, TRAIN) is None
    found = read_queue().queued(other.pk)
    assert found is not None and found.lost is not None and found.lost.pk == lost.pk


@pytest.mark.django_db
def test_the_page_says_who_goes_first_and_by_what(
    line: Make, project: Project, elsewhere: Project, alice: User
) -> None:
    def rule(run: Run, *sees: Project) -> tuple[str, str]:
        found = queue_answer(read_queue().queued(run.pk), [each.pk for each in (project, *sees)])
        assert found is not None
        return found["rule"], next((row["text"] for row in found["lines"] if row["text"].startswith("Waits")), "")

    mine = line(30, created_by=alice)
    assert rule(mine) == ("", "")
    older = line(40, name="older", created_by=alice)
    assert rule(mine) == ("queued_at", "Waits behind 1 run: older was queued earlier.")
    Run.objects.filter(pk=older.pk).update(created_by=None)
    at_work(line(created_by=alice))
    assert rule(mine) == (
        "person_devices",
        "Waits behind 1 run: a person whose account is gone has 0 devices in use, alice 1.",
    )
    theirs = line(1, name="theirs", project=elsewhere)
    text = "Waits behind 2 runs: another project has 0 devices in use, project Joust 1."
    assert rule(mine) == ("project_devices", text)
    assert rule(mine, elsewhere)[1] == text.replace("another project", "project Elsewhere")
    attempt(theirs, 2, 1.5)
    at_work(line(project=elsewhere))
    assert rule(older, elsewhere) == ("", ""), "of equal devices it has used less"
    attempt(mine, 3, 1)
    assert rule(older, elsewhere) == (
        "project_minutes",
        "Waits behind 1 run: project Elsewhere used 30 min in the last 24 h, project Joust 2 h 0 min.",
    )
    Run.objects.filter(pk=theirs.pk).update(queued_at=timezone.now() - OVERDUE_AFTER - MINUTE)
    assert rule(older, elsewhere) == ("overdue", "Waits behind 1 run: theirs has waited for over 24 h.")
    Run.objects.filter(pk=older.pk).update(priority="low")
    assert rule(older)[1] == (
        "Waits behind 2 runs: the priority of a run of another project is normal, that of this run low."
    )


@pytest.mark.django_db
def test_places_without_a_device_are_called_places(line: Make, project: Project, elsewhere: Project) -> None:
    at_work(line(pool=ENDPOINT))
    mine, _theirs = line(9, pool=ENDPOINT), line(1, pool=ENDPOINT, project=elsewhere)
    found = queue_answer(read_queue().queued(mine.pk), [project.pk])
    assert found is not None
    assert found["lines"][-2]["text"].endswith("another project has 0 places in use, project Joust 1.")


def planted(team: Team, count: int, seed: int) -> None:
    """Runs of five projects and four people: queued, at work, blocked, of all classes, some with equal times."""
    rng, now = random.Random(seed), timezone.now()
    projects = [Project.objects.create(team=team, name=f"P{n}", slug=f"p{n}") for n in range(5)]
    people = [None, *(User.objects.create(username=f"u{n}") for n in range(3))]
    for number in range(count):
        fields: dict[str, Any] = {"project": rng.choice(projects), "created_by": rng.choice(people), "config": {}}
        fields["queued_at"] = now - timedelta(minutes=rng.randrange(30 * 60) // 40 * 40, seconds=30)
        fields["priority"] = rng.choice(["high", "normal", "normal", "normal", "low"])
        fields["first_at"] = rng.choice([None] * 19 + [now - rng.randrange(60) * MINUTE])
        fields["on_hold_at"] = rng.choice([None] * 19 + [now])
        fields["needs"], fields["devices"] = rng.choice(["", "", Needs(gpus=2).text]), rng.choice([1, 1, 2])
        run = Run.objects.create(name=f"r{number}", state="queued", **fields)
        if rng.random() < 0.1:
            at_work(run, rng.randrange(500) + 0.5)
        elif rng.random() < 0.3:
            attempt(run, 10, rng.randrange(600) / 60)
    blocked = Run.objects.filter(state="queued", on_hold_at=None).order_by("name")[:10]
    Run.objects.filter(pk__in=[run.pk for run in blocked]).update(after=Run.objects.create(
        project=projects[0], name="first", config={}, state="paused"
    ))  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_page_is_the_order_of_claims(team: Team, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "worker_here", lambda: EIGHT)
    planted(team, 200, seed)
    queue = read_queue()
    shown = [run.pk for run in queue.pool(TRAIN).in_order]
    places = [found.place for pk in shown if (found := queue.queued(pk)) is not None]
    assert places == list(range(1, len(shown) + 1)) and len(shown) > 130
    taken: list[UUID] = []
    while (first := first_of(TRAIN, EIGHT)) is not None:
        assert claim(first.pk) is not None
        Attempt.objects.filter(run=first.pk, ended_at=None).delete()  # as if no time had passed
        taken.append(first.pk)
    assert taken == shown
    held = Run.objects.filter(state="queued").exclude(on_hold_at=None)
    assert held.exists() and not set(held.values_list("pk", flat=True)) & set(shown)
    assert not can_start(TRAIN).exists() and Run.objects.filter(state="queued", on_hold_at=None).count() == 10


@pytest.mark.django_db
def test_a_claim_takes_three_queries_whatever_the_number_of_runs(team: Team) -> None:
    planted(team, 60, 1)
    with CaptureQueriesContext(connection) as few:
        first_of(TRAIN, EIGHT)
    Run.objects.bulk_create(
        [Run(project=run.project, name=f"more-{n}", config={}, state="queued", queued_at=run.queued_at)
         for n, run in enumerate(list(Run.objects.filter(state="queued")) * 5)]
    )  # fmt: skip
    with CaptureQueriesContext(connection) as many:
        assert first_of(TRAIN, EIGHT) is not None
    assert len(few) == len(many) == 3


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_claim_at_once_get_different_runs(line: Make, elsewhere: Project) -> None:
    mine, theirs = line(9), line(1, project=elsewhere)
    line(8), line(7)
    gate, found = threading.Barrier(2), list[UUID]()

    def work() -> None:
        try:
            gate.wait(10)
            lease = _claim_next(mine.pk, TRAIN)
            assert lease is not None
            found.append(lease.run_id)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(found) == {mine.pk, theirs.pk}, "the second claim sees the device of the first"
