"""The queue of runs: its order is the one in which workers take them, its times are learned from measured steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Needs, Worker
from webapp.engine.attempts import claim, first_in_line
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.records.queue import Queued, Span, read_queue
from webapp.runs.records.queue_words import needs_words, queue_answer, queue_lines, queue_short, queue_title

pytestmark = pytest.mark.django_db


def sentences(found: dict[str, Any]) -> str:
    """The title and the lines of an answer."""
    return " ".join([found["title"], *(line["text"] for line in found["lines"])])


Make = Callable[..., Run]


@pytest.fixture(autouse=True)
def leases(settings: Any) -> None:
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S = 20, 5


@pytest.fixture
def now() -> Iterator[datetime]:
    return timezone.now()


def worker(name: str = "train@a", **fields: Any) -> Worker:
    at = timezone.now()
    return Worker.objects.create(**{"name": name, "queues": [TRAIN], "started_at": at, "beat_at": at, **fields})


@pytest.fixture
def busy(make_run: Make) -> Make:
    """``busy(worker, **fields)``: a run at work there that beats."""

    def make(place: str = "train@a", **fields: Any) -> Run:
        at = timezone.now()
        known = {"state": "running", "attempt": 1, "lease_worker": place, "lease_beat_at": at, "queued_at": at}
        return make_run(**{**known, **fields})

    return make


@pytest.fixture
def line(make_run: Make) -> Make:
    """``line(minutes, **fields)``: a run that was queued so many minutes ago."""

    def make(minutes: float = 1, **fields: Any) -> Run:
        at = timezone.now() - timedelta(minutes=minutes)
        return make_run(**{"state": "queued", "queued_at": at, **fields})

    return make


def steps_of(run: Run, *seconds: float) -> None:
    for step, value in enumerate(seconds, 1):
        MetricPoint.objects.create(run=run, attempt=1, step=step, name="timing/step", value=value, seq=step)


def queued(run: Run) -> Queued:
    found = read_queue().queued(run.pk)
    assert found is not None
    return found


def lines_of(run: Run, *sees: Project) -> list[str]:
    return [each["text"] for each in queue_lines(queued(run), [project.pk for project in sees])]


def titled(run: Run, *sees: Project) -> str:
    return queue_title(queued(run), [project.pk for project in sees])


# --- Workers --------------------------------------------------------------------------------------------------------
def test_without_a_worker_it_says_so_and_what_to_do(line: Make, project: Project) -> None:
    first, second = line(2), line(1)
    found = queued(second)
    assert (found.why, found.place, found.ahead, found.start) == ("no_worker", 2, 1, None)
    assert queue_short(found) == "no worker is running"
    assert titled(first, project) == "Next in line, but no worker is running."
    text, url, link = queue_lines(queued(first), [project.pk])[0].values()
    assert "Start a worker" in text and (url, link) == ("/workers/", "Look at the workers")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"beat_at": timezone.now() - timedelta(seconds=40)}, "no_worker"),
        ({"queues": [ENDPOINT]}, "no_worker"),
        ({"problem": "other_identity"}, "worker_problem"),
        ({}, "starting"),
    ],
)
def test_only_living_workers_of_its_pool_without_a_problem_count(line: Make, fields: dict[str, Any], why: str) -> None:
    worker(**fields)
    found = queued(line())
    assert (found.why, found.start) == (why, Span(0.0, 0.0, 0.0) if why == "starting" else None)
    expected = {"no_worker": "no worker is running", "worker_problem": "no worker may start runs"}
    assert queue_short(found) == expected.get(why, "next in line · starting")


def test_a_run_of_the_other_pool_is_not_ahead(line: Make) -> None:
    worker()
    other, own = line(2, pool=ENDPOINT), line(1)
    assert [(found.place, found.ahead, found.why) for found in map(queued, (own, other))] == [
        (1, 0, "starting"), (1, 0, "no_worker"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"step": 10, "total_steps": 10}, Span(0.0, 0.0, 0.0)),
        ({"step": 9, "total_steps": 10, "state": "stopping"}, Span(0.0, 0.0, 0.0)),
        ({"step": 9, "total_steps": 10, "step_seconds": 2.0}, Span(2.0, 2.0, 2.0)),
        ({"step": 0, "total_steps": 0, "step_seconds": 2.0}, None),
        ({"step": 9, "total_steps": 10}, None),
    ],
)
def test_a_run_without_a_known_number_of_steps_or_pace_may_take_any_time(
    line: Make, busy: Make, fields: dict[str, Any], start: Span | None
) -> None:
    worker()
    busy(**{"step_seconds": None, **fields})
    assert queued(line()).start == start


def test_one_busy_worker_frees_up_after_its_steps_left(line: Make, busy: Make, project: Project) -> None:
    worker()
    holder = busy(name="warm-up", step=10, total_steps=52, step_seconds=10.0)
    steps_of(holder, *[10.0] * 8, 20.0, 5.0)
    first, second = line(2), line(1)
    found = queued(first)
    assert (found.why, found.place, found.ahead) == ("busy", 1, 0)
    assert found.start is not None and found.start.seconds == 420
    low, high = (42 * each for each in (9.5, 11.0))
    assert (found.start.low, found.start.high) == (pytest.approx(low), pytest.approx(high))
    assert queue_short(found) == "next in line · about 7 min"
    assert titled(first, project) == "Next in line: starts in about 7 min (6 min to 7 min)."
    assert lines_of(first, project) == [
        "train@a has warm-up: about 7 min (6 min to 7 min) left. Steps left: 42, at 10 s each."
        " Eight of ten of its last 10 steps took 9.5 s to 11 s."
    ]
    assert queue_lines(found, [project.pk])[0]["url"] == holder.url
    behind = queued(second)
    assert (behind.place, behind.ahead, behind.start) == (2, 1, None), "the run ahead was never at work"
    assert queue_short(behind) == "2nd in line"
    assert titled(second, project) == f"2nd in line: starts after {first.name}, whose length is not known yet."
    assert lines_of(second, project)[-1] == f"Ahead: {first.name} (length not known)."


def test_of_two_busy_workers_the_first_that_is_free_takes_it(line: Make, busy: Make) -> None:
    worker(), worker("train@b")
    busy("train@a", step=0, total_steps=100, step_seconds=60.0)
    busy("train@b", step=0, total_steps=10, step_seconds=60.0)
    ahead, behind = line(2, step=4, total_steps=10, step_seconds=60.0, attempt=1), line(1)
    assert [queued(run).start for run in (ahead, behind)] == [Span(600, 600, 600), Span(960, 960, 960)]
    assert queue_short(queued(behind)) == "2nd in line · about 16 min"


def test_a_run_of_unknown_length_on_one_of_two_workers_makes_the_start_earlier_at_most(line: Make, busy: Make) -> None:
    worker(), worker("train@b")
    busy("train@a"), busy("train@b", step=0, total_steps=10, step_seconds=60.0)
    found = queued(line())
    assert found.start == Span(600, 0, 600)
    assert queue_title(found, []) == "Next in line: starts in at most about 10 min."
    assert queue_short(found) == "next in line · at most about 10 min"


def test_places_of_one_worker_and_more_workers_than_a_page_names(line: Make, busy: Make) -> None:
    worker("endpoint@a", queues=[ENDPOINT], places=6)
    for _number in range(5):
        busy("endpoint@a", pool=ENDPOINT)
    first, second = line(2, pool=ENDPOINT), line(1, pool=ENDPOINT)
    assert (queued(first).why, queued(second).why) == ("starting", "busy")
    assert lines_of(second, first.project)[3] == "2 more workers have runs."


def test_of_the_places_that_runs_have_the_one_that_is_free_first_is_named(busy: Make) -> None:
    assert read_queue().pool(TRAIN).next_free is None
    for letter, name, left in (("a", "long", 9), ("b", "short", 2), ("c", "unknown", None), ("d", "middle", 5)):
        worker(f"train@{letter}")
        busy(f"train@{letter}", name=name, total_steps=left or 9, step_seconds=60.0 if left else None)
    first = read_queue().pool(TRAIN).next_free
    assert first is not None and first.run is not None and (first.worker, first.run.name) == ("train@b", "short")


def test_a_place_of_the_other_pool_helps_no_run(line: Make) -> None:
    worker("endpoint@a", queues=[ENDPOINT], places=4)
    assert (queued(line()).why, queued(line(pool=ENDPOINT)).why) == ("no_worker", "starting")


# --- Holders --------------------------------------------------------------------------------------------------------
def test_a_holder_without_steps_yet_has_no_length(line: Make, busy: Make, project: Project) -> None:
    worker()
    busy(name="new", total_steps=10, state="preparing")
    run = line()
    assert queued(run).start is None and queue_short(queued(run)) == "next in line"
    assert titled(run, project) == "Next in line: starts after new, whose length is not known yet."
    assert lines_of(run, project) == ["train@a has new: time left not known yet. It has not finished a step yet."]


def test_steps_of_an_earlier_attempt_count_until_this_one_has_some(line: Make, busy: Make) -> None:
    worker()
    steps_of(busy(total_steps=10, step=5, attempt=2), 4.0, 8.0)
    found = queued(line())
    assert found.start is not None and found.start.seconds == 30


def test_one_measured_step_gives_no_range(line: Make, busy: Make, project: Project) -> None:
    worker()
    steps_of(busy(name="young", total_steps=31, step=1, step_seconds=60.0), 60.0)
    run = line()
    assert titled(run, project) == "Next in line: starts in about 30 min."
    assert lines_of(run, project) == ["train@a has young: about 30 min left. Steps left: 30, at 1 min each."]


@pytest.mark.parametrize("values", [(math.nan, 60.0), (0.0, 60.0)])
def test_figures_that_are_no_duration_are_left_out(line: Make, busy: Make, values: tuple[float, ...]) -> None:
    worker()
    steps_of(busy(total_steps=2, step=1, step_seconds=60.0), *values)
    assert queued(line()).start == Span(60, 60, 60)


def test_a_paused_run_holds_nothing(line: Make, make_run: Make) -> None:
    worker()
    make_run(state="paused", attempt=1, step=3, total_steps=9, step_seconds=5.0, lease_worker="train@a")
    assert queued(line()).why == "starting"


@pytest.mark.parametrize("state", ["pausing", "stopping"])
def test_a_holder_that_was_asked_to_end_is_ending(line: Make, busy: Make, project: Project, state: str) -> None:
    worker()
    busy(name="ends", state=state, step=1, total_steps=99, step_seconds=60.0)
    run = line()
    assert lines_of(run, project) == ["train@a has ends: it is ending."]
    assert queued(run).why == "busy" and queue_short(queued(run)) == "next in line · less than a minute"


def test_a_holder_that_made_its_last_step_is_ending(line: Make, busy: Make) -> None:
    worker()
    busy(step=9, total_steps=9, step_seconds=60.0)
    found = queued(line())
    assert (found.why, found.start) == ("busy", Span(0, 0, 0))


def test_an_ended_run_whose_lease_is_still_written_down_holds_nothing(line: Make, busy: Make) -> None:
    worker()
    busy(state="succeeded")
    assert queued(line()).why == "starting"


def test_a_holder_whose_step_waits_has_no_length(line: Make, busy: Make, project: Project) -> None:
    worker()
    busy(name="waits", step=1, total_steps=9, step_seconds=60.0, held={"step": 2, "error": None})
    run = line()
    assert queued(run).start is None
    assert lines_of(run, project)[0].endswith("Its step waits for something that is away.")


@pytest.mark.parametrize(("used", "seconds"), [(0.5, 1800.0), (1.0, 0.0), (2.0, 0.0)])
def test_a_time_budget_ends_a_holder_earlier(line: Make, busy: Make, used: float, seconds: float) -> None:
    worker()
    busy(step=1, total_steps=1000, step_seconds=60.0, health={"time": {"hours": used, "of": 1.0}})
    assert queued(line()).start == Span(seconds, seconds, seconds)


@pytest.mark.parametrize(("silent_s", "why"), [(11, "busy"), (14, "worker_lost")])
def test_a_silent_worker_that_was_queued_earlier_keeps_all_others_back(
    line: Make, busy: Make, project: Project, silent_s: float, why: str
) -> None:
    worker()
    heard = timezone.now() - timedelta(seconds=silent_s)
    before = {"lease_beat_at": heard, "queued_at": heard - timedelta(hours=1)}
    busy(name="lost", step=1, total_steps=11, step_seconds=60.0, **before)
    run = line()
    assert queued(run).why == why
    assert (first_in_line(run.pk, TRAIN) is None) is (why == "worker_lost"), "the page says what the engine does"
    if why == "worker_lost":
        assert queued(run).ahead == 1
        assert titled(run, project) == "2nd in line, but another run's worker has stopped answering."
        assert lines_of(run, project)[0].endswith("worker answers again: lost.")


def test_a_silent_worker_is_waited_for_also_after_the_last_step(line: Make, busy: Make) -> None:
    """It may still save: the run is not ended before its lease is."""
    worker()
    heard = timezone.now() - timedelta(minutes=5)
    busy(step=9, total_steps=9, lease_beat_at=heard, queued_at=heard - timedelta(hours=1))
    assert queued(line()).why == "worker_lost"


def test_a_silent_worker_of_a_run_that_was_queued_later_delays_none(line: Make, busy: Make) -> None:
    worker()
    busy(lease_beat_at=timezone.now() - timedelta(minutes=5))
    assert queued(line(30)).why == "starting"


def test_a_run_waits_for_a_worker_that_has_what_it_asks_for(line: Make, busy: Make, project: Project) -> None:
    run, other = line(9, needs=Needs(gpus=2, memory=80, model="H100").text), line(1)
    found = queued(run)
    assert (found.why, found.place) == ("no_worker", 1), "no worker is alive: that is what it waits for"
    worker()
    found = queued(run)
    assert (found.why, found.place, found.start, queue_short(found)) == (
        "no_fit",
        None,
        None,
        "no worker has what it asks for",
    )
    title = "Waiting for a worker that has what this run asks for: 2 GPUs of 80 GB or more, model H100."
    assert (titled(run), titled(other)) == (
        title,
        "Next in line: a worker is free and is being asked to take this run.",
    )
    worker("train@b", gpus=1, gpu="NVIDIA H100", gpu_bytes=85 * 10**9)
    worker("train@c", gpus=2), worker("train@d")
    busy("train@d")
    assert lines_of(run) == [
        "train@a has no GPU.",
        "train@b has 1 GPU: NVIDIA H100, 85 GB.",
        "train@c has 2 GPUs, whose model and memory its driver does not report.",
        "1 more worker does not have it.",
        "Start a worker that has it, or stop this run and ask for less.",
    ]
    worker("train@e", gpus=2, gpu="NVIDIA H100", gpu_bytes=85 * 10**9)
    assert (queued(run).why, queued(run).place) == ("starting", 1)
    answer = queue_answer(queued(run), [project.pk])
    assert answer is not None and (answer["why"], answer["place"]) == ("starting", 1)


def test_only_runs_that_want_the_same_workers_are_ahead(line: Make, busy: Make) -> None:
    """Two small runs have a small worker; a large run and a small one wait for the large worker's end."""
    worker("small@a"), worker("large@b", gpus=2)
    busy("small@a", step=0, total_steps=10, step_seconds=10.0)
    busy("large@b", step=0, total_steps=100, step_seconds=10.0)
    small = [line(9 - number, total_steps=10, step_seconds=10.0) for number in range(2)]
    large = line(1, needs=Needs(gpus=2).text)
    assert [queued(run).place for run in (*small, large)] == [1, 2, 1]
    assert queued(large).start == Span(1000.0, 1000.0, 1000.0) and queued(small[1]).start == Span(200.0, 200.0, 200.0)
    assert queued(large).next is None


def test_a_free_worker_that_cannot_train_a_run_is_not_asked(line: Make, busy: Make) -> None:
    worker("small@a"), worker("large@b", gpus=2)
    busy("large@b", step=0, total_steps=100, step_seconds=10.0)
    large = line(9, needs=Needs(gpus=2).text)
    assert queued(large).why == "busy" and queued(line(1)).why == "starting"


def test_what_a_run_asks_for_in_words() -> None:
    words = {
        "1 GPU": Needs(gpus=1),
        "1 GPU, model A100": Needs(gpus=1, model="A100"),
        "2 GPUs, or none at all": Needs(gpus=2, or_cpu=True),
        "a Ray cluster with 4 hosts": Needs(gpus=8, on_cluster=True, hosts=4),
    }
    assert {needs_words(needs): needs for needs in words.values()} == words


# --- Order ----------------------------------------------------------------------------------------------------------
def test_three_runs_of_two_projects_are_taken_as_they_were_queued(
    line: Make, busy: Make, project: Project, charlie: User
) -> None:
    worker()
    elsewhere = Project.objects.get(slug="elsewhere")
    busy(name="secret-holder", project=elsewhere, step=0, total_steps=5, step_seconds=60.0)
    last, first, secret = line(1), line(9), line(5, name="secret", project=elsewhere)
    assert [queued(run).place for run in (first, secret, last)] == [1, 2, 3]
    for run in (first, secret, last):
        assert first_in_line(last.pk, TRAIN) == run.pk and claim(run.pk) is not None
    Run.objects.exclude(name="secret-holder").update(state="queued")
    shown = queue_answer(queued(last), [project.pk])
    assert shown is not None
    assert "secret" not in str(shown) and str(elsewhere.pk) not in str(shown) and "elsewhere" not in str(shown)
    assert str(secret.pk) not in str(shown)
    assert sentences(shown).count("a run of another project") == 2
    holder = shown["holders"][0]
    assert (holder["run"], holder["run_id"], holder["project"], holder["steps_left"]) == (None, None, None, None)
    assert holder["seconds"] == 300
    both = queue_answer(queued(last), [project.pk, elsewhere.pk])
    assert both is not None and "secret" in sentences(both) and both["holders"][0]["run"] == "secret-holder"


def test_equal_times_have_one_order_everywhere(make_run: Make, now: datetime) -> None:
    runs = [make_run(state="queued", queued_at=now) for _number in range(4)]
    Run.objects.update(created_at=now)
    expected = sorted(run.pk for run in runs)
    assert first_in_line(runs[-1].pk, TRAIN) == expected[0]
    places = {run.pk: queued(run).place for run in runs}
    assert [places[pk] for pk in expected] == [1, 2, 3, 4]


def test_a_dependant_has_no_place_and_starts_when_its_run_has_ended(line: Make, busy: Make, project: Project) -> None:
    """It was queued before the other run: once its own has succeeded, it goes first."""
    worker()
    warm_up = busy(name="warm-up", step=0, total_steps=10, step_seconds=60.0)
    follower, other = line(9, after=warm_up, total_steps=5), line(1)
    found = queued(follower)
    assert (found.why, found.place, found.start) == ("after", None, Span(600, 600, 600))
    assert queue_short(found) == "after warm-up · about 10 min"
    assert titled(follower, project) == "Waiting for warm-up to finish: this run starts from its model."
    assert lines_of(follower, project)[0] == "A worker is expected to take this run in about 10 min."
    assert first_in_line(other.pk, TRAIN) == other.pk, "if a worker were free now"
    assert (queued(other).place, queued(other).ahead) == (2, 1)
    Run.objects.filter(pk=warm_up.pk).update(state="succeeded")
    assert first_in_line(other.pk, TRAIN) == follower.pk


def test_a_dependant_passes_none_that_starts_before_its_run_has_ended(line: Make, busy: Make) -> None:
    worker(), worker("train@b")
    warm_up = busy("train@a", step=0, total_steps=10, step_seconds=60.0)
    busy("train@b", step=0, total_steps=1, step_seconds=60.0)
    follower, other = line(9, after=warm_up), line(1, step=0, total_steps=3, step_seconds=60.0, attempt=1)
    assert (queued(other).place, queued(other).start) == (1, Span(60, 60, 60))
    assert queued(follower).start == Span(600, 600, 600)


def test_a_dependant_of_a_queued_run_follows_it(line: Make) -> None:
    worker()
    first = line(1, step=1, total_steps=3, step_seconds=60.0, attempt=1)
    follower, third = line(9, after=first), line(0.5)
    assert (queued(first).why, queued(follower).start) == ("starting", Span(120, 120, 120))
    assert queued(third).ahead == 2


@pytest.mark.parametrize(
    ("state", "why", "short"),
    [
        ("cancelled", "after_stopped", "after first, which was stopped"),
        ("paused", "after_paused", "after first, which is paused"),
        ("draft", "after_draft", "after first, which was not launched"),
    ],
)
def test_a_dependant_of_a_run_that_a_person_must_continue(
    line: Make, make_run: Make, state: str, why: str, short: str
) -> None:
    worker()
    follower, other = line(9, after=make_run(name="first", state=state)), line(1)
    found = queued(follower)
    assert (found.why, found.place, found.start, queue_short(found)) == (why, None, None, short)
    assert queue_title(found, []).startswith("Waiting for first, which ")
    assert (queued(other).place, queued(other).why) == (1, "starting"), "it delays no other"


def test_a_dependant_whose_run_has_succeeded_is_in_line(line: Make, make_run: Make) -> None:
    worker()
    assert queued(line(after=make_run(state="succeeded"))).why == "starting"


@pytest.mark.parametrize("state", ["draft", "running", "paused", "succeeded", "failed", "cancelled"])
def test_only_a_queued_run_has_a_place(make_run: Make, state: str) -> None:
    assert read_queue().queued(make_run(state=state).pk) is None
    assert queue_answer(None, []) is None


@pytest.mark.parametrize(("people", "queries"), [(1, 2), (2, 3)])
def test_the_queue_takes_few_queries_whatever_the_number_of_runs(
    people: int, queries: int, line: Make, busy: Make, alice: User, bob: User
) -> None:
    """Between runs of one person in one project no share decides, so none is read."""
    worker()
    holder = busy(step=0, total_steps=10, step_seconds=60.0)
    steps_of(holder, *[60.0] * 30)
    at = timezone.now()
    fields = {"project": holder.project, "state": "queued", "config": {}, "step": 1, "total_steps": 2, "attempt": 1}
    by = [alice, bob][:people]
    runs = [
        Run(name=f"q-{n}", queued_at=at + timedelta(seconds=n), created_by=by[n % people], **fields) for n in range(500)
    ]
    Run.objects.bulk_create(runs)
    with CaptureQueriesContext(connection) as caught:
        queue = read_queue()
        found = [queue.queued(run.pk) for run in runs]
    assert len(caught) == queries
    assert sorted(each.place for each in found if each is not None) == list(range(1, 501))


# --- Words ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("place", "expected"),
    [(1, "next in line"), (2, "2nd in line"), (3, "3rd in line"), (4, "4th in line"), (11, "11th in line"),
     (12, "12th in line"), (13, "13th in line"), (21, "21st in line"), (22, "22nd in line"), (111, "111th in line")],
)  # fmt: skip
def test_places_are_ordinals(line: Make, busy: Make, place: int, expected: str) -> None:
    for number in range(place):
        run = line(200 - number)
    worker(), busy()
    assert queue_short(queued(run)) == expected


@pytest.mark.parametrize(("seconds", "words"), [(59.9, "less than a minute"), (60.0, "about 1 min")])
def test_from_a_minute_on_minutes_are_named(line: Make, busy: Make, seconds: float, words: str) -> None:
    worker()
    busy(step=0, total_steps=1, step_seconds=seconds)
    run = line()
    assert queue_short(queued(run)) == f"next in line · {words}"
    assert titled(run) == f"Next in line: starts in {words}."


@pytest.mark.parametrize(("seconds", "words"), [(59.9, "less than a minute"), (60.0, "at most about 1 min")])
def test_a_bound_below_a_minute_is_none(line: Make, busy: Make, seconds: float, words: str) -> None:
    worker(), worker("train@b")
    busy("train@a"), busy("train@b", step=0, total_steps=1, step_seconds=seconds)
    assert queue_short(queued(line())) == f"next in line · {words}"


@pytest.mark.parametrize(
    ("count", "names", "rest"),
    [(1, "a", ""), (3, "a, b, c", ""), (4, "a, b, c", " And 1 more run."), (5, "a, b, c", " And 2 more runs.")],
)
def test_three_runs_ahead_are_named_and_the_others_counted(
    line: Make, project: Project, count: int, names: str, rest: str
) -> None:
    for number, name in enumerate("abcde"[:count]):
        line(90 - number, name=name)
    known = ", ".join(f"{name} (length not known)" for name in names.split(", "))
    assert lines_of(line(1), project)[-1] == f"Ahead: {known}.{rest}"


@pytest.mark.parametrize(("count", "rest"), [(3, []), (4, ["1 more worker has a run."])])
def test_three_holders_are_named_and_the_others_counted(
    line: Make, busy: Make, project: Project, count: int, rest: list[str]
) -> None:
    for letter in "abcd"[:count]:
        worker(f"train@{letter}")
        busy(f"train@{letter}", name=letter * 80)
    run = line()
    shown = lines_of(run, project)
    assert [text[:9] for text in shown[:3]] == ["train@a h", "train@b h", "train@c h"] and shown[3:] == rest


def test_of_several_workers_that_fell_silent_the_one_that_was_queued_first_is_named(
    line: Make, busy: Make, project: Project
) -> None:
    worker()
    heard = timezone.now() - timedelta(minutes=5)
    for name, hours in (("third", 1), ("oldest", 3), ("second", 2)):
        busy(name=name, lease_beat_at=heard, queued_at=heard - timedelta(hours=hours))
    run = line()
    assert queued(run).lost is not None and lines_of(run, project)[0].endswith("worker answers again: oldest.")
    assert "oldest" not in lines_of(run)[0] and lines_of(run)[0].endswith("a run of another project.")


def test_names_of_any_script_and_length_are_shown_as_they_are(line: Make, busy: Make, project: Project) -> None:
    worker()
    names = ["预热" * 40, "تدريب %(place)s"]
    busy(name=names[0]), line(2, name=names[1])
    run = line(1)
    text = sentences(queue_answer(queued(run), [project.pk]) or {})
    assert names[0] in text and names[1] in text


def test_in_chinese(line: Make, busy: Make, project: Project) -> None:
    worker()
    busy(name="warm-up", step=0, total_steps=10, step_seconds=60.0)
    line(2, step=0, total_steps=2, step_seconds=60.0, attempt=1)
    run = line(1)
    with translation.override("zh-hans"):
        shown = queue_answer(queued(run), [project.pk])
    assert shown is not None
    assert shown["short"] == "排在第 2 位 · 约 12 分钟"
