"""Messages and progress of background work, by value: what is sent, to whom, and how often progress is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError
from django.db.models.functions import Now
from django.utils import timezone

from tests.working import claimed
from training.errors import TiltyardError
from webapp.celery import app
from webapp.common import work
from webapp.datasets.models import Dataset
from webapp.foreign.models import RunImport
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db(transaction=True)
LABEL = "runs.runimport"
Sent = list[tuple[tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What the broker was asked."""
    sent: Sent = []
    monkeypatch.setattr(work.current_app, "send_task", lambda *args, **options: sent.append((args, options)))
    return sent


@pytest.fixture
def item(project: Project) -> RunImport:
    return RunImport.objects.create(project=project, name="one")


def test_a_message_names_the_work_and_its_limits(item: RunImport, project: Project, broker: Sent) -> None:
    other = RunImport.objects.create(project=project, name="two")
    work.enqueue(item)
    expires = broker[0][1].pop("expires")
    assert abs((expires - timezone.now()).total_seconds() - 120) < 10, "by the database's clock"
    assert broker == [
        (
            ("work.do",),
            {
                "args": [LABEL, str(item.pk)],
                "retry": False,
                "queue": "long",
                "priority": 6,
                "soft_time_limit": 1740,
                "time_limit": 1770,
            },
        )
    ]
    item.refresh_from_db()
    other.refresh_from_db()
    assert item.heard_at is not None and other.heard_at is None


def test_a_message_does_not_renew_anothers_claim(item: RunImport, broker: Sent) -> None:
    """Who holds the work is heard by what it says, not by messages about it."""
    claimed(item)
    RunImport.objects.update(heard_at=None)
    work.enqueue(item)
    item.refresh_from_db()
    assert item.heard_at is None and len(broker) == 1


def test_an_outage_right_after_the_commit_is_nobodys_error(item: RunImport, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_item: Any) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(work, "_send", away)
    work.enqueue(item)  # the page that asked has committed: ``look`` asks again


def test_a_look_sends_at_most_a_hundred_messages_of_a_kind(project: Project, broker: Sent) -> None:
    RunImport.objects.bulk_create([RunImport(project=project, name=f"n{number}") for number in range(103)])
    work.look()
    assert len(broker) == 100
    work.look()
    assert len(broker) == 103


def test_a_broker_that_is_away_is_asked_once_a_look(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message would wait for it again: a hundred of a kind kept a look for minutes."""
    RunImport.objects.bulk_create([RunImport(project=project, name=f"n{number}") for number in range(3)])
    asked: list[int] = []

    def away(*_args: Any, **_options: Any) -> None:
        asked.append(1)
        raise ConnectionError

    monkeypatch.setattr(work.current_app, "send_task", away)
    work.look()
    assert asked == [1]


POOLS = {
    "datasets.dataset": "long",
    "datasets.datasetexport": "long",
    "environments.datasetorder": "long",
    "foreign.runexport": "long",
    "registry.modelpush": "long",
    "removal.removal": "long",
    "rescoring.rescoring": "long",
    "rewards.rolloutset": "long",
    "runs.runimport": "long",
    "notifications.delivery": "short",
    "notifications.event": "short",
    "notifications.reader": "short",
    "runs.launchcheck": "short",
    "runs.memoryestimate": "short",
    "runs.preparation": "short",
}


def test_what_takes_hours_has_places_of_its_own() -> None:
    assert {label: kind.model().pool for label, kind in work.KINDS.items()} == POOLS
    first = {label for label, kind in work.KINDS.items() if kind.model.PRIORITY == 0}
    assert first == {"runs.launchcheck", "runs.preparation"}
    assert all(kind.model.LIMIT_S <= 420 for label, kind in work.KINDS.items() if POOLS[label] == "short")


@pytest.mark.parametrize(("size", "pool"), [(0, "long"), (1, "short"), (8 << 20, "short"), ((8 << 20) + 1, "long")])
def test_a_small_file_waits_for_no_large_one(size: int, pool: str) -> None:
    assert Dataset(bytes=size).pool == pool


@pytest.mark.parametrize(("places", "at_work"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_one_persons_work_takes_all_places_but_one(
    project: Project, alice: User, bob: User, broker: Sent, settings: Any, places: int, at_work: int
) -> None:
    """Where there is one place alone, it is for all."""
    settings.POOLS = {"short": 9, "long": places}
    kind = work.KINDS[LABEL]
    rows = [RunImport.objects.create(project=project, name=f"n{number}", created_by=alice) for number in range(5)]
    RunImport.objects.filter(pk=rows[4].pk).update(heard_at=timezone.now())  # its message has just been sent
    taken = [work.claim_fairly(kind, row.pk) for row in rows[:at_work]]
    assert all(taken)
    assert (work.claim_fairly(kind, rows[4].pk) is None) == (places > 1)
    if places > 1:
        later = RunImport.objects.get(pk=rows[4].pk)
        assert (later.token, later.tries, later.heard_at) == ("", 0, None), "the next look asks again"
    theirs = RunImport.objects.create(project=project, name="theirs", created_by=bob)
    assert work.claim_fairly(kind, theirs.pk) is not None
    first = taken[0]
    assert first is not None
    first.finish(state="rejected")
    assert work.claim_fairly(kind, rows[3].pk) is not None


def test_work_of_the_other_pool_and_other_kinds(project: Project, alice: User, settings: Any) -> None:
    """What a person has at work counts over all kinds of a pool, and in that pool alone."""
    settings.POOLS = {"short": 2, "long": 2}
    row = RunImport.objects.create(project=project, name="one", created_by=alice)
    small = Dataset.objects.create(project=project, name="small", bytes=5, created_by=alice)
    claimed(small)
    assert not work.crowded(row) and work.crowded(Dataset(bytes=7, created_by=alice))
    large = Dataset.objects.create(project=project, name="large", bytes=9 << 20, created_by=alice)
    claimed(large)
    assert work.crowded(row)
    row.created_by = None
    assert not work.crowded(row), "what the installation asked for itself"


def test_a_registered_kind_is_found_by_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "KINDS", {})
    kind: work.Kind[RunImport] = work.Kind(RunImport, lambda claim: None, lambda row, error: {})
    work.register(kind)
    assert {LABEL: kind} == work.KINDS


def test_progress_is_written_twice_a_second_at_most(item: RunImport, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(work.time, "monotonic", lambda: now[0])
    taken = claimed(item)

    def stored() -> Any:
        return RunImport.objects.get(pk=item.pk).progress

    taken.report({"rows": 1})
    assert stored() == {"rows": 1}
    now[0] += 0.4
    taken.report({"rows": 2})
    assert stored() == {"rows": 1}
    taken.report({"rows": 3}, at_once=True)
    assert stored() == {"rows": 3}
    now[0] += 0.4
    taken.report({"rows": 4})
    assert stored() == {"rows": 3}
    now[0] += 0.1
    taken.report({"rows": 5})
    assert stored() == {"rows": 5}


def test_a_worker_with_the_wrong_folder_does_nothing(item: RunImport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "folder_problem", lambda: "it is another folder")
    work.do(LABEL, str(item.pk))
    item.refresh_from_db()
    assert (item.token, item.tries, item.state) == ("", 0, "reading")


def test_a_kind_has_its_own_state_while_it_is_worked_on_and_a_last_act(
    item: RunImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    states: list[str] = []

    def run(taken: work.Claim[RunImport]) -> None:
        states.append(RunImport.objects.get(pk=item.pk).state)
        taken.finish(state="done")

    kind = work.Kind(RunImport, run, lambda row, error: {}, at_work="reading", ended=lambda row: ended.append(row.name))
    monkeypatch.setitem(work.KINDS, LABEL, kind)
    work.do(LABEL, str(item.pk))
    assert (states, ended) == (["reading"], ["one"])
    item.refresh_from_db()
    assert (item.state, item.token, item.tries, item.progress) == ("done", "", 0, {})


def _old(**columns: Any) -> None:
    RunImport.objects.update(heard_at=Now() - timedelta(seconds=61), **columns)


def test_silence_is_that_of_a_worker_that_has_open_work(item: RunImport) -> None:
    """Neither waiting nor finished work is silent, however long ago it was heard of."""
    _old()
    assert not work.silent(RunImport).exists() and work.waiting(RunImport).exists()
    _old(token="a-worker")
    assert work.silent(RunImport).get() == item and not work.waiting(RunImport).exists()
    _old(state="done")
    assert not work.silent(RunImport).exists()


def test_what_was_never_asked_for_is_sent_first_and_then_the_oldest(project: Project) -> None:
    for name, seconds in (("newer", 40), ("never", None), ("older", 50)):
        row = RunImport.objects.create(project=project, name=name)
        if seconds:
            RunImport.objects.filter(pk=row.pk).update(heard_at=Now() - timedelta(seconds=seconds))
    assert [row.name for row in work.waiting(RunImport)] == ["never", "older", "newer"]


def test_a_claim_moves_to_the_state_of_work(item: RunImport) -> None:
    taken = work.claim(RunImport, item.pk, at_work="done")
    assert taken is not None and taken.item.state == "done" == RunImport.objects.get().state
    assert (taken.item.tries, taken.item.progress) == (1, {}) and taken.item.heard_at is not None


def test_a_claim_takes_one_row_that_is_open_and_forgets_what_was_reported(project: Project, item: RunImport) -> None:
    other = RunImport.objects.create(project=project, name="two")
    RunImport.objects.update(progress={"rows": 5})
    taken = claimed(item)
    other.refresh_from_db()
    assert taken.item.progress == {} and (other.token, other.tries, other.progress) == ("", 0, {"rows": 5})
    RunImport.objects.filter(pk=other.pk).update(state="done")
    assert work.claim(RunImport, other.pk) is None


def test_work_that_was_ended_elsewhere_is_lost(item: RunImport) -> None:
    """A person may end it: the token alone keeps nothing."""
    taken = claimed(item)
    RunImport.objects.update(state="done")
    with pytest.raises(work.Lost):
        taken.report({"rows": 1})
    assert RunImport.objects.get().progress == {}


class Beats:
    """An event that is never set, and says how long it was waited for; after two waits it is."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return len(self.waits) > 2


def test_a_worker_is_heard_four_times_in_the_silence_that_is_allowed(item: RunImport) -> None:
    beats, taken = Beats(), claimed(item)
    _old()
    work._renew_claim(taken, cast(Any, beats))
    assert beats.waits == [15.0] * 3 and not work.silent(RunImport).exists()
    RunImport.objects.update(token="another")
    work._renew_claim(taken, cast(Any, Beats()))  # it has nothing more to say, and says so to no one


def test_a_failure_without_words_has_some_and_its_log_line_names_the_work(
    item: RunImport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_taken: Any) -> None:
        raise OSError

    kind = work.Kind(RunImport, fail, lambda row, error: {"state": "rejected", "report": [row.name, error.message]})
    monkeypatch.setitem(work.KINDS, LABEL, kind)
    with caplog.at_level("ERROR", logger="webapp.common.work"):
        work.do(LABEL, str(item.pk))
    assert RunImport.objects.get().report == ["one", "The result could not be stored: reading or writing failed."]
    (line,) = [record for record in caplog.records if record.name == "webapp.common.work"]
    assert (line.__dict__["work"], line.__dict__["object_id"]) == (LABEL, str(item.pk))


def test_work_that_takes_too_long_gets_its_kinds_hint(item: RunImport, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str]] = []

    def late(_taken: Any) -> None:
        raise SoftTimeLimitExceeded

    def failed(_row: RunImport, error: TiltyardError) -> dict[str, Any]:
        found.append((error.message, error.hint))
        return {"state": "rejected"}

    kind = work.Kind(RunImport, late, failed, too_long="Too long.", hint="Ask for less.")
    monkeypatch.setitem(work.KINDS, LABEL, kind)
    work.do(LABEL, str(item.pk))
    assert found == [("Too long.", "Ask for less.")]


def test_a_worker_that_is_cut_off_from_the_broker_tries_without_end() -> None:
    """Celery gives up after 100 tries, less than an hour: such a worker would have to be started by a person."""
    assert app.conf.broker_connection_max_retries is None
