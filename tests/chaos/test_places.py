"""A training run and evaluations of an endpoint, with real workers: a place for a device, two for endpoints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.house import House
from tests.chaos.services import wait_until
from training.config import JobConfig
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Needs
from webapp.endpoints.models import Endpoint
from webapp.engine.services import run_create, run_stop
from webapp.runs.models import Run
from webapp.runs.records.queue import read_queue
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(240)]
LONG, SHORT = "sleep-200", "sleep-10"
AT_ONCE_S = 15.0


@pytest.fixture(scope="module")
def asking(house: House) -> Iterator[House]:
    """The house with an endpoint, and a worker with two places for those that ask it."""
    Endpoint.objects.create(project=house.project, name="gpt", url="http://127.0.0.1:1/v1", model="m")
    house.worker("endpoint", "-c", "2")
    yield house
    for run in Run.objects.exclude(state=RunState.SUCCEEDED):
        run_stop(run=run)


def evaluate(house: House, script: str) -> Run:
    """An evaluation by the endpoint, which the stub plays as the test sets."""
    config = JobConfig.model_validate(
        {
            "kind": "evaluate",
            "model": {"source": "endpoint:gpt", "revision": script},
            "data": {"train": "dataset:d@1"},
            "environment": {"name": "environment:e"},
            "run": {"max_steps": 400},
        }
    )
    name = f"evaluation {next(house.numbers)}"
    return run_create(project=house.project, user=house.user, name=name, config=config)


def worker_of(run: Run) -> str:
    run.refresh_from_db()
    return run.lease_worker.partition("@")[0]


def test_neither_kind_waits_for_the_other(asking: House) -> None:
    trains, first, second = asking.launch(LONG, 400), evaluate(asking, LONG), evaluate(asking, LONG)
    assert (trains.pool, first.pool, second.pool) == (TRAIN, ENDPOINT, ENDPOINT)
    for run in (trains, first, second):
        asking.reaches(run, 2, AT_ONCE_S * 2)
    assert [worker_of(run) for run in (trains, first, second)] == ["train", "endpoint", "endpoint"], "all at work"
    third, later = evaluate(asking, SHORT), asking.launch(SHORT, 5)
    run_stop(run=trains)
    asking.ends(later, AT_ONCE_S * 2)
    third.refresh_from_db()
    assert (later.state, third.state) == (RunState.SUCCEEDED, RunState.QUEUED), "the free device is not for it"
    run_stop(run=first)
    asking.reaches(third, 2, AT_ONCE_S * 2)
    assert worker_of(third) == "endpoint"
    run_stop(run=third)
    run_stop(run=second)


def test_a_lost_worker_of_one_kind_costs_the_other_nothing(asking: House) -> None:
    asks = evaluate(asking, LONG)
    asking.reaches(asks, 2)
    asking.kill9("endpoint")
    trains = asking.launch(SHORT, 5)
    asking.ends(trains, AT_ONCE_S)
    assert trains.state == RunState.SUCCEEDED, "it was not held back until the lost one was given back"

    def given_back() -> bool:
        asks.refresh_from_db()
        return asks.state == RunState.QUEUED

    wait_until(given_back, 60, what=f"the lost run is queued again: {asking.tail()}")
    asking.ends(asking.launch(SHORT, 5))
    asks.refresh_from_db()
    assert (asks.state, asks.attempt, asks.lease_worker) == (RunState.QUEUED, 1, ""), "no training place takes it"
    asking.worker("endpoint", "-c", "2")
    wait_until(lambda: worker_of(asks) == "endpoint", 30, what=f"it continues: {asking.tail()}")
    assert asks.attempt == 2
    run_stop(run=asks)
    asking.ends(asks)  # or it would keep a place of the next test's


def test_a_run_waits_for_a_worker_with_its_gpus_and_holds_none_back(asking: House) -> None:
    """Its messages go to the queues of workers that have them: one that the other worker took would reach no one."""
    two = asking.launch(LONG, 400, run={"device": "cuda"}, vllm={"tensor_parallel": 2}, rollout={"engine": "vllm"})
    assert Needs.parse(two.needs) == Needs(gpus=2)
    trains = asking.launch(SHORT, 5)
    asking.ends(trains, AT_ONCE_S * 2)
    two.refresh_from_db()
    assert (trains.state, two.state) == (RunState.SUCCEEDED, RunState.QUEUED)
    found = read_queue().queued(two.pk)
    assert found is not None and found.why == "no_fit"
    asking.worker("train", name="one", CUDA_VISIBLE_DEVICES="0")
    asking.worker("train", name="large", CUDA_VISIBLE_DEVICES="0,1")
    asking.reaches(two, 2, AT_ONCE_S * 3)
    assert worker_of(two) == "large"
    run_stop(run=two)
    asking.ends(two)
    for name in ("one", "large"):
        asking.kill9(name)
