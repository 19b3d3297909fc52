"""Training hosts behind a network that is cut: hosts are network namespaces, with a link of their own to the site's.

A cut drops packets and closes nothing, as a switch that fails does: neither side hears that the other has gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.chaos.hosts import SITE, Host, made_hosts
from tests.chaos.house import House
from tests.chaos.services import wait_until
from tests.chaos.truth import assert_exact, database_says, journal_says
from webapp.common.storage import attempt_dir
from webapp.engine.services import run_stop
from webapp.engine.supervisor import PARTITION_LIMIT_S
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
TTL_S = 20


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    """Two of them."""
    with made_hosts(2) as made:
        yield made


@pytest.fixture(scope="module")
def site(
    hosts: list[Host], tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[House]:
    """The site's host: database, Redis, clock and people's work, and no trainer."""
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        house = House(tmp_path_factory.mktemp("site"), host=SITE)
        try:
            house.open(workers=False)
            house.start("clock", "django", "run_clockwork")
            house.worker("short")
            yield house
        finally:
            house.close()


@pytest.fixture(autouse=True)
def no_workers(site: House, hosts: list[Host]) -> Iterator[None]:
    """Each test has hosts of its own, and whole links."""
    yield
    for host in hosts:
        host.join()
    for name in {"first", "one", "two", "alone"} & site.processes.keys():
        site.kill9(name)


def trainers_of(run: Run, attempt: int) -> list[int]:
    """The processes of an attempt's trainer, on whichever host."""
    config = str(attempt_dir(run.pk, attempt) / "config.yaml")
    found = psutil.process_iter(["pid", "cmdline"])
    return [each.info["pid"] for each in found if config in (each.info["cmdline"] or [])]


def test_a_cut_that_is_shorter_than_the_lease_costs_nothing(site: House, hosts: list[Host]) -> None:
    first = hosts[0]
    site.worker("train", name="first", within=first.within)
    run = site.launch("sleep-100", 400)
    site.reaches(run, 20, 60)
    first.cut()
    time.sleep(TTL_S / 2)
    run.refresh_from_db()
    there = run.step
    first.join()
    assert trainers_of(run, 1), "training waits for no database"
    wait_until(lambda: site.reaches(run, there + 60, 30), 60, what="the steps of the cut")
    site.ends(run, 120)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 1, 400), site.tail()
    assert_exact(run)


def test_a_host_that_is_cut_off_is_replaced_and_ends_its_trainer(site: House, hosts: list[Host]) -> None:
    first, second = hosts
    site.worker("train", name="one", within=first.within)
    run = site.launch("sleep-100", 900, save_every=20)
    site.reaches(run, 50, 60)
    first.cut()
    site.worker("train", name="two", within=second.within)

    def taken_over() -> bool:
        run.refresh_from_db()
        return run.attempt == 2 and bool(trainers_of(run, 2))

    wait_until(taken_over, TTL_S * 3, what=f"another host: {site.tail()}")
    assert run.lease_worker == "two@chaos"
    sealed = Attempt.objects.get(run=run, number=1).journal_offset
    assert trainers_of(run, 1), "the first knows of nothing, for it hears nothing"
    first.join()
    wait_until(lambda: not trainers_of(run, 1), 30, what="the end of the trainer that was replaced")
    site.ends(run, 180)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 900), site.tail()
    first_attempt, second_attempt = Attempt.objects.filter(run=run).order_by("number")
    assert second_attempt.first_step >= 40 and second_attempt.first_step % 20 == 0, "from its newest checkpoint"
    assert first_attempt.error["code"] == "worker_lost"
    assert first_attempt.journal_offset == sealed, "what it wrote after that counts for nothing"


@pytest.mark.timeout(1500)
def test_a_host_that_was_cut_off_for_ten_minutes_trains_again_by_itself(site: House, hosts: list[Host]) -> None:
    """Its trainer ends by itself, for no lease can hold that long; the run waits meanwhile, as no other host has it."""
    first = hosts[0]
    site.worker("train", name="alone", within=first.within)
    run = site.launch("sleep-1000", 700, save_every=20)
    site.reaches(run, 45, 120)
    first.cut()
    cut = time.monotonic()

    def in_line() -> bool:
        run.refresh_from_db()
        return run.state == RunState.QUEUED

    wait_until(in_line, TTL_S + 30, what=f"the run in line: {site.tail()}")
    noticed = time.monotonic() - cut
    wait_until(lambda: not trainers_of(run, 1), PARTITION_LIMIT_S + 60, what="the end of the trainer that was cut off")
    ended = time.monotonic() - cut
    assert ended >= PARTITION_LIMIT_S - TTL_S, "training waits as long as its lease may come back"
    assert (run.state, run.attempt) == (RunState.QUEUED, 1)
    sealed = Attempt.objects.get(run=run, number=1).journal_offset
    time.sleep(600 - (time.monotonic() - cut))
    first.join()
    joined = time.monotonic()
    wait_until(lambda: bool(trainers_of(run, 2)), 60, what=f"the next attempt: {site.tail()}")
    print(f"in line after {noticed:.0f} s, its trainer ended after {ended:.0f} s, ", end="")
    print(f"trained again {time.monotonic() - joined:.0f} s after the link was back")
    second = Attempt.objects.get(run=run, number=2)

    def has_begun() -> bool:
        second.refresh_from_db()
        return second.last_step > second.first_step

    wait_until(has_begun, 60, what="its steps")
    assert second.first_step >= 40 and second.first_step % 20 == 0, "from its newest checkpoint"
    run_stop(run=run, user=site.user)
    site.ends(run, 60)
    assert run.state == RunState.CANCELLED, site.tail()
    first_attempt = Attempt.objects.get(run=run, number=1)
    assert first_attempt.journal_offset == sealed, "what it wrote after it was replaced counts for nothing"
    journalled, kept = journal_says(run), database_says(run)
    assert of_attempt(kept, "points", 2) and of_attempt(kept, "groups", 2)
    for key in ("points", "groups", "saved"):
        assert of_attempt(kept, key, 2) == of_attempt(journalled, key, 2), key


def of_attempt(found: dict[str, Any], key: str, number: int) -> set[tuple[Any, ...]]:
    """What journal or database say of one attempt; of points their values, too."""
    rows = [(*point, value) for point, value in found[key].items()] if key == "points" else found[key]
    return {row for row in rows if row[0] == number}
