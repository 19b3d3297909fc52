"""A place is a device. What only asks an endpoint has places of its own, and neither kind waits for the other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from tests.webapp.endpoints.conftest import make_endpoint, stub
from training.config import JobConfig
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Drain, Needs, Worker
from webapp.engine import attempts as leases
from webapp.engine import recovery, supervisor
from webapp.engine.attempts import WORKER_CLOSING, attempt_end
from webapp.engine.history import Lease
from webapp.engine.models import Outbox
from webapp.engine.services import run_change, run_create, run_launch, run_resume
from webapp.engine.supervisor import nudge_next, supervise
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.states import RunState

__all__ = ["make_endpoint", "stub"]
pytestmark = pytest.mark.django_db(transaction=True)
Job = Callable[..., JobConfig]


@pytest.fixture
def evaluation(job: Job, make_endpoint: Any) -> JobConfig:
    """An evaluation that the project's endpoint plays."""
    make_endpoint()
    return job(kind="evaluate", model={"source": "endpoint:gpt"})


@pytest.fixture
def waiting(queued: Callable[..., Run]) -> Callable[[str, float], Run]:
    """``waiting(pool, minutes)``: a run queued so long ago."""

    def make(pool: str, minutes: float) -> Run:
        at = timezone.now() - timedelta(minutes=minutes)
        run = queued(fields={"pool": pool})
        Run.objects.filter(pk=run.pk).update(queued_at=at)
        return run

    return make


def test_a_launch_says_whose_place_it_takes(project: Project, alice: User, job: Job, evaluation: JobConfig) -> None:
    def made(name: str, config: JobConfig, **more: Any) -> Run:
        return run_create(project=project, user=alice, name=name, config=config, **more)

    assert made("asks", evaluation).pool == ENDPOINT
    assert made("trains", job()).pool == TRAIN
    local = job(kind="evaluate", model={"source": "starter"})
    assert made("plays", local).pool == TRAIN, "its model needs the device"
    large = made("large", job(hardware={"devices": 2, "gpu_memory": 80}))
    assert (Needs.parse(large.needs), large.devices) == (Needs(gpus=2, memory=80, on_cluster=True), 2)
    draft = made("asked", job(run={"device": "cuda", "max_steps": 4}), launch=False)
    assert (draft.needs, run_launch(run=draft, user=alice).needs, draft.devices) == ("", Needs(gpus=1).text, 1)
    draft = made("draft", local, launch=False)
    assert run_change(run=draft, name="draft", config=evaluation)
    assert run_launch(run=Run.objects.get(pk=draft.pk)).pool == ENDPOINT


def test_it_keeps_its_pool_through_whatever_happens(project: Project, alice: User, evaluation: JobConfig) -> None:
    run = run_create(project=project, user=alice, name="asks", config=evaluation)
    lease = leases.claim(run.pk)
    assert lease is not None
    assert attempt_end(lease, WORKER_CLOSING).pool == ENDPOINT
    Run.objects.filter(pk=run.pk).update(state=RunState.PAUSED)
    run.refresh_from_db()
    assert run_resume(run=run, user=alice).pool == ENDPOINT
    Run.objects.filter(pk=run.pk).update(state=RunState.CANCELLED, attempt=0)
    run.refresh_from_db()
    again = run_resume(run=run, user=alice)
    assert (again.state, again.pool) == (RunState.QUEUED, ENDPOINT)


def test_a_place_takes_runs_of_its_own_pool_alone(waiting: Any) -> None:
    asks, trains = waiting(ENDPOINT, 30), waiting(TRAIN, 10)
    assert leases.first_in_line(asks.pk, TRAIN) == trains.pk, "whichever run the message was about"
    assert leases.first_in_line(trains.pk, ENDPOINT) == asks.pk
    Run.objects.filter(pk=trains.pk).update(state=RunState.PAUSED)
    assert leases.first_in_line(asks.pk, TRAIN) is None
    supervise(asks.pk, TRAIN)
    asks.refresh_from_db()
    assert (asks.state, asks.attempt) == (RunState.QUEUED, 0)


@pytest.mark.parametrize("lost", [TRAIN, ENDPOINT])
def test_a_lost_run_of_the_other_pool_delays_no_run(waiting: Any, lost: str) -> None:
    silent, later = waiting(lost, 60), waiting(TRAIN, 30)
    assert leases.claim(silent.pk) is not None
    Run.objects.filter(pk=silent.pk).update(lease_beat_at=Now() - timedelta(minutes=5))
    assert leases.first_in_line(later.pk, TRAIN) == (None if lost == TRAIN else later.pk)


def test_forgotten_runs_of_one_pool_do_not_fill_the_other(waiting: Any) -> None:
    """The five oldest are announced: of each pool."""
    asks = [waiting(ENDPOINT, 60 + minutes) for minutes in range(7)]
    trains = waiting(TRAIN, 1)
    assert recovery.nudge_forgotten() == recovery.NUDGED_AT_ONCE + 1
    assert set(Outbox.objects.values_list("run", flat=True)) == {trains.pk, *(run.pk for run in asks[2:])}


def test_a_place_that_is_free_again_wakes_its_own_pool(waiting: Any) -> None:
    asks, trains = waiting(ENDPOINT, 2), waiting(TRAIN, 1)
    nudge_next(TRAIN)
    assert list(Outbox.objects.values_list("run", flat=True)) == [trains.pk]
    nudge_next(ENDPOINT)
    assert set(Outbox.objects.values_list("run", flat=True)) == {trains.pk, asks.pk}


@pytest.mark.parametrize("pool", [TRAIN, ENDPOINT])
def test_messages_go_to_the_queue_of_the_pool(waiting: Any, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = waiting(pool, 1)
    monkeypatch.undo()  # the message is sent
    sent: list[tuple[Any, Any]] = []
    monkeypatch.setattr("celery.current_app.send_task", lambda _name, args, queue, **_more: sent.append((args, queue)))
    from webapp.engine import history

    Outbox.objects.create(run=run)
    assert history.send_unsent() == 1
    assert sent == [([str(run.pk), pool], pool)]


def test_a_run_that_asks_for_something_is_announced_to_each_worker_that_has_it(
    waiting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message in the queue of the pool could be taken by a worker that has it not, and reach no other."""
    run = waiting(TRAIN, 1)
    Run.objects.filter(pk=run.pk).update(needs=Needs(gpus=2).text)
    at = timezone.now()
    for name, fields in {"a@a": {"gpus": 1}, "b@b": {"gpus": 2}, "c@c": {"gpus": 8}, "d@d": {}}.items():
        Worker.objects.create(name=name, queues=[TRAIN], started_at=at, beat_at=at, **fields)
    Worker.objects.create(name="e@e", queues=[ENDPOINT], started_at=at, beat_at=at, gpus=8)
    # It may not claim now: this message has it ask again whether it may.
    Worker.objects.create(name="f@f", queues=[TRAIN], started_at=at, beat_at=at, gpus=4, problem="files_away")
    Drain.objects.create(host="c")
    monkeypatch.undo()  # the message is sent
    sent: list[str] = []
    monkeypatch.setattr(
        "celery.current_app.send_task", lambda _name, args, queue, **_more: sent.append(getattr(queue, "name", queue))
    )
    from webapp.engine import history

    Outbox.objects.create(run=run)
    assert history.send_unsent() == 1
    assert sorted(sent) == ["b@b.dq2", "f@f.dq2"]


def test_forgotten_runs_that_no_worker_can_train_do_not_fill_the_queue(waiting: Any) -> None:
    for minutes in range(7):
        Run.objects.filter(pk=waiting(TRAIN, 60 + minutes).pk).update(needs=Needs(gpus=64).text)
    small = waiting(TRAIN, 1)
    recovery.nudge_forgotten()
    assert Outbox.objects.filter(run=small).count() == 1
    nudge_next(TRAIN)
    assert Outbox.objects.filter(run=small).count() == 2 and Outbox.objects.count() == recovery.NUDGED_AT_ONCE + 2


def test_where_another_place_was_faster_the_next_in_line_is_taken(
    waiting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two places hear of two runs at one moment: both looked, and one of them left with nothing for ten seconds."""
    first, second = waiting(ENDPOINT, 2), waiting(ENDPOINT, 1)
    claim, taken = supervisor.claim, []

    def slower(run_id: UUID) -> Lease | None:
        if not taken:
            taken.append(claim(first.pk))
        return claim(run_id)

    monkeypatch.setattr(supervisor, "claim", slower)
    lease = supervisor._claim_next(second.pk, ENDPOINT)
    assert lease is not None and lease.run_id == second.pk
    assert supervisor._claim_next(second.pk, ENDPOINT) is None, "nothing is left"
