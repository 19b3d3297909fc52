"""Claimed work, by what happens to rows. Imports represent every kind: all kinds are this one thing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from billiard.exceptions import SoftTimeLimitExceeded
from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now

from tests.working import at_once
from training.errors import DataError, TiltyardError
from webapp.common import work
from webapp.datasets.models import Dataset
from webapp.foreign.models import RunImport
from webapp.people.teams.models import Project

pytestmark = pytest.mark.django_db(transaction=True)
LABEL = "runs.runimport"
Run = Callable[[work.Claim[RunImport]], None]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return at_once(monkeypatch)


@pytest.fixture
def item(project: Project) -> RunImport:
    return RunImport.objects.create(project=project, name="one")


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], work.Kind[RunImport]]:
    """``kind(run)``: imports are done by ``run``, and a failure is the report's message."""

    def failed(_item: RunImport, error: TiltyardError) -> dict[str, Any]:
        return {"state": "rejected", "report": {"message": error.message, "hint": error.hint}}

    def make(run: Run) -> work.Kind[RunImport]:
        made = work.Kind(RunImport, run, failed, too_long="It took too long.", hint="Ask for less.")
        monkeypatch.setitem(work.KINDS, LABEL, made)
        return made

    return make


def seen(item: RunImport) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    row = RunImport.objects.get(pk=item.pk)
    return row.state, row.token, row.progress, row.report


def age(item: RunImport, seconds: float) -> None:
    """No worker was heard of for so long, by the database's clock."""
    RunImport.objects.filter(pk=item.pk).update(heard_at=Now() - timedelta(seconds=seconds))


def test_of_many_claimers_at_once_one_gets_it(item: RunImport) -> None:
    together = threading.Barrier(8)

    def take(_number: int) -> Any:
        try:
            together.wait()
            return work.claim(RunImport, item.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        winners = [taken for taken in pool.map(take, range(8)) if taken is not None]
    assert len(winners) == 1 and winners[0].item.tries == 1
    assert seen(item)[:2] == ("reading", winners[0].token) and len(winners[0].token) == 16


def test_who_lost_the_work_changes_nothing(item: RunImport, kind: Any) -> None:
    """Progress, outcome, failure and time-out all carry the token; the last two did not, and ended a successor's work
    (``check_time_out``, ``export_time_out``, ``import_time_out``, ``order_fail``)."""
    late = work.claim(RunImport, item.pk)
    assert late is not None
    RunImport.objects.update(token="")  # as ``look`` leaves it
    fresh = work.claim(RunImport, item.pk)
    assert fresh is not None
    fresh.report({"rows": 5}, at_once=True)
    for act in (
        lambda: late.report({"rows": 1}, at_once=True),
        lambda: late.keep(name="late"),
        lambda: late.finish(state="done"),
        late.wait,
    ):
        with pytest.raises(work.Lost):
            act()
    with pytest.raises(work.Lost), late.held():
        raise AssertionError("held what another has")
    for error in (SoftTimeLimitExceeded(), DataError("broken"), ValidationError("wrong"), OSError(28, "full")):

        def run(_claim: Any, error: BaseException = error) -> None:
            raise error

        work.perform(kind(run), late)
    assert seen(item) == ("reading", fresh.token, {"rows": 5}, {})
    fresh.finish(state="done", report={"message": "whole"})
    assert seen(item) == ("done", "", {}, {"message": "whole"})


@pytest.mark.parametrize(("heard_ago_s", "found"), [(59, False), (61, True)])
def test_silent_work_is_found_and_living_work_is_not(
    item: RunImport, sent: list[str], heard_ago_s: int, found: bool
) -> None:
    """A worker that is heard of keeps its work: counting it as silent passed every test."""
    taken = work.claim(RunImport, item.pk)
    assert taken is not None
    age(item, heard_ago_s)
    work.look()
    assert (sent == [str(item.pk)]) is found and (seen(item)[1] == "") is found
    assert (work.claim(RunImport, item.pk) is not None) is found


def test_a_word_of_the_worker_renews_its_claim(item: RunImport, sent: list[str]) -> None:
    taken = work.claim(RunImport, item.pk)
    assert taken is not None
    age(item, 61)
    taken.report({"rows": 1}, at_once=True)
    work.look()
    assert sent == [] and seen(item)[1] == taken.token


def test_a_worker_that_only_waits_is_heard(item: RunImport, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process that runs for minutes is no silence: what was asked to lie ahead in time before."""
    monkeypatch.setattr(RunImport, "SILENT_AFTER_S", 0.4)
    alive = threading.Event()

    def run(taken: work.Claim[RunImport]) -> None:
        for _look in range(3):
            alive.wait(0.3)
            work.look()
        taken.finish(state="done")

    work.perform(kind(run), work.claim(RunImport, item.pk))
    assert seen(item)[0] == "done"


@pytest.mark.parametrize(("asked_ago_s", "again"), [(None, True), (29, False), (31, True)])
def test_work_that_no_worker_took_is_queued_again(
    item: RunImport, sent: list[str], asked_ago_s: int | None, again: bool
) -> None:
    if asked_ago_s is not None:
        age(item, asked_ago_s)
    work.look()
    assert (sent == [str(item.pk)]) is again
    RunImport.objects.update(state="done", heard_at=None)
    sent.clear()
    work.look()
    assert sent == []


@pytest.mark.parametrize("shift", [timedelta(days=400), -timedelta(days=400)])
def test_the_clocks_of_web_and_workers_do_not_matter(item: RunImport, sent: list[str], shift: timedelta) -> None:
    """``at`` and ``created_at`` were of two machines' clocks."""
    taken = work.claim(RunImport, item.pk)
    assert taken is not None
    real = RunImport.objects.get().heard_at
    with time_machine.travel(item.created_at + shift):
        work.look()
        taken.keep()
        assert sent == [] and seen(item)[1] == taken.token
        heard = RunImport.objects.get().heard_at
        assert real is not None and heard is not None and timedelta(0) <= heard - real < timedelta(minutes=1)
        age(item, 61)
        work.look()
        assert sent == [str(item.pk)]


def test_work_that_costs_worker_after_worker_ends_with_a_reason(item: RunImport, kind: Any) -> None:
    runs = []
    kind(runs.append)
    for _worker in range(5):
        work.do(LABEL, str(item.pk))
        RunImport.objects.update(token="")  # each of them is killed in the middle
    assert len(runs) == 3
    assert seen(item)[0] == "rejected"
    assert seen(item)[3]["message"] == "It was started 3 times, and each time its worker was lost."


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("No rows."), "No rows."),
        (ValidationError(["Not this.", "Nor that."]), "Not this. Nor that."),
        (SoftTimeLimitExceeded(), "It took too long."),
        (OSError(28, "No space left on device"), "The result could not be stored: the disk is full."),
        (KeyError("x"), "An unexpected failure inside Tiltyard (KeyError)."),
    ],
)
def test_a_failure_is_an_outcome(item: RunImport, kind: Any, error: Exception, message: str) -> None:
    def run(_claim: Any) -> None:
        raise error

    kind(run)
    work.do(LABEL, str(item.pk))
    state, token, progress, report = seen(item)
    assert (state, token, progress, report["message"]) == ("rejected", "", {}, message)
    work.do(LABEL, str(item.pk))  # it is over


def test_an_outage_of_the_database_is_no_failure(item: RunImport, kind: Any, sent: list[str]) -> None:
    def away(_claim: Any) -> None:
        raise OperationalError("the connection was closed")

    kind(away)
    with pytest.raises(OperationalError):
        work.do(LABEL, str(item.pk))
    assert seen(item)[0] == "reading"
    age(item, 61)
    kind(lambda taken: taken.finish(state="done"))
    work.look()
    work.do(LABEL, sent[0])
    assert seen(item)[0] == "done"


def test_work_that_waits_is_looked_at_again_without_costing_a_try(item: RunImport, kind: Any) -> None:
    kind(lambda taken: taken.wait())
    for _look in range(work.TRIES + 2):
        work.do(LABEL, str(item.pk))
    assert seen(item)[:2] == ("reading", "") and RunImport.objects.get().tries == 0


def test_a_message_is_sent_after_the_commit_and_a_dead_broker_costs_only_time(
    item: RunImport, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction.atomic():
        work.enqueue(item)
        assert sent == []
    assert sent == [str(item.pk)]
    monkeypatch.undo()

    def refuse(*_args: Any, **_options: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(work.current_app, "send_task", refuse)
    work.enqueue(item)
    assert seen(item)[0] == "reading" and RunImport.objects.get().heard_at is not None


def test_rows_of_an_older_database_stay_and_go_on(project: Project, make_dataset: Any, sent: list[str]) -> None:
    """A database of 388a114 had its claims in ``progress`` and ``started_at``; what was under way is taken up again."""
    dataset, whole = make_dataset(), make_dataset()
    old = {"token": "gone", "at": 1e9, "bytes": 7}
    executor = MigrationExecutor(connection)
    try:
        executor.migrate([("datasets", "0005_exports")])
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE datasets_dataset SET state='checking', progress=%s WHERE id=%s", [json.dumps(old), dataset.pk]
            )
    finally:
        MigrationExecutor(connection).migrate(executor.loader.graph.leaf_nodes())
    work.look()
    assert sent == [str(dataset.pk)]
    taken = work.claim(Dataset, dataset.pk)
    assert taken is not None and (taken.item.tries, taken.item.progress) == (1, {})
    whole.refresh_from_db()
    assert (whole.state, whole.rows, whole.tries) == ("ready", 3, 0)


def test_work_that_is_given_back_for_a_time_is_asked_for_when_that_is_over(item: RunImport) -> None:
    taken = work.claim(RunImport, item.pk)
    assert taken is not None
    taken.wait(120, name="later")
    assert list(work.waiting(RunImport)) == []
    row = RunImport.objects.get()
    assert (row.name, row.token, row.tries) == ("later", "", 0)
    RunImport.objects.update(heard_at=row.heard_at - timedelta(seconds=121))
    assert list(work.waiting(RunImport)) == [row]


def test_every_kind_has_its_columns_and_one_beat_entry_looks_after_all(settings: Any) -> None:
    assert set(work.KINDS) == {
        "datasets.dataset",
        "datasets.datasetexport",
        "environments.datasetorder",
        "rewards.rolloutset",
        "runs.runimport",
        "runs.preparation",
        "runs.launchcheck",
        "runs.memoryestimate",
        "removal.removal",
        "notifications.event",
        "notifications.delivery",
        "notifications.reader",
        "foreign.runexport",
        "registry.modelpush",
        "rescoring.rescoring",
    }
    for kind in work.KINDS.values():
        states = {value for value, _label in kind.model._meta.get_field("state").choices}
        assert set(kind.model.OPEN) < states and (not kind.at_work or kind.at_work in kind.model.OPEN)
        error = DataError("Broken.", hint="Fix it.")
        assert kind.failed(kind.model(), error)["state"] in states - set(kind.model.OPEN)
