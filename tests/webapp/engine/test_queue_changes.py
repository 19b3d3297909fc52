"""Owners hold, release and reorder waiting runs: by page, by API, with a row in the audit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone, translation

from tests.markup import dense
from webapp.common.pools import TRAIN
from webapp.engine.attempts import claim, first_in_line
from webapp.engine.models import Outbox
from webapp.engine.recovery import nudge_forgotten
from webapp.engine.services import Ahead, run_queue_change, run_resume, run_stop
from webapp.people.teams.models import AuditEntry, User
from webapp.runs.models import Run
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.states import Priority, RunState

pytestmark = pytest.mark.django_db
HOLD, RELEASE, FIRST = Ahead(on_hold=True), Ahead(on_hold=False), Ahead(first=True)


@pytest.fixture
def line(queued: Any) -> Any:
    """``line(minutes)``: a run that was queued so many minutes ago."""

    def make(minutes: float) -> Run:
        return _ago(queued(), minutes)

    return make


def _ago(run: Run, minutes: float) -> Run:
    Run.objects.filter(pk=run.pk).update(queued_at=timezone.now() - timedelta(minutes=minutes))
    run.refresh_from_db()
    return run


def acts() -> list[str]:
    return list(AuditEntry.objects.order_by("id").values_list("action", flat=True))


def test_a_held_run_is_never_claimed_and_a_released_one_is_again(line: Any, alice: User) -> None:
    held, other = line(9), line(1)
    run_queue_change(run=held, user=alice, change=HOLD)
    assert held.on_hold_at is not None and first_in_line(held.pk, TRAIN) == other.pk and claim(held.pk) is None
    Run.objects.filter(pk=other.pk).update(state=RunState.DRAFT)
    assert first_in_line(held.pk, TRAIN) == held.pk and claim(held.pk) is None, "the message is about it"
    Outbox.objects.all().delete()
    assert nudge_forgotten() == 0
    run_queue_change(run=held, user=alice, change=RELEASE)
    assert Outbox.objects.filter(run=held).count() == 1, "a worker is asked at once"
    assert first_in_line(held.pk, TRAIN) == held.pk and claim(held.pk) is not None
    assert acts() == ["run_held", "run_released"]


def test_holding_twice_and_the_same_class_change_nothing(line: Any, alice: User) -> None:
    run = line(1)
    run_queue_change(run=run, user=alice, change=HOLD)
    since = run.on_hold_at
    run_queue_change(run=run, user=alice, change=HOLD)
    run_queue_change(run=run, user=alice, change=Ahead(priority=Priority.NORMAL))
    assert run.on_hold_at == since and acts() == ["run_held"]


def test_a_held_run_keeps_its_time_and_says_so(line: Any, alice: User) -> None:
    held, other = line(9), line(1)
    run_queue_change(run=held, user=alice, change=HOLD)
    found = queue_answer(read_queue().queued(held.pk), [held.project_id])
    assert found is not None
    assert (found["why"], found["place"], found["short"], found["lines"]) == ("on_hold", None, "on hold", [])
    assert found["title"] == "On hold: no worker takes this run until an owner of the team releases it."
    place = read_queue().queued(other.pk)
    assert place is not None and place.place == 1
    run_queue_change(run=held, user=alice, change=RELEASE)
    assert first_in_line(other.pk, TRAIN) == held.pk
    with translation.override("zh-hans"):
        Run.objects.filter(pk=held.pk).update(on_hold_at=timezone.now())
        shown = queue_answer(read_queue().queued(held.pk), [])
        assert shown is not None and shown["short"] == "已暂缓"


def test_a_held_run_fails_with_the_run_that_it_waits_for(line: Any, alice: User) -> None:
    held, before = line(9), line(20)
    Run.objects.filter(pk=before.pk).update(state=RunState.FAILED)
    Run.objects.filter(pk=held.pk).update(after=before, on_hold_at=timezone.now())
    assert claim(held.pk) is None
    held.refresh_from_db()
    assert held.state == RunState.FAILED


def test_first_goes_before_its_class_until_its_class_changes_or_it_ends(line: Any, alice: User) -> None:
    oldest, middle, newest = line(9), line(5), line(1)
    run_queue_change(run=middle, user=alice, change=FIRST)
    run_queue_change(run=newest, user=alice, change=FIRST)
    assert first_in_line(oldest.pk, TRAIN) == newest.pk
    run_queue_change(run=newest, user=alice, change=Ahead(priority=Priority.LOW))
    assert newest.first_at is None and first_in_line(oldest.pk, TRAIN) == middle.pk
    run_queue_change(run=oldest, user=alice, change=Ahead(priority=Priority.HIGH))
    assert first_in_line(newest.pk, TRAIN) == oldest.pk
    assert acts() == ["run_first", "run_first", "run_priority", "run_priority"]
    run_queue_change(run=middle, user=alice, change=HOLD)
    stopped = run_stop(run=middle, user=alice)
    assert (stopped.state, stopped.first_at, stopped.on_hold_at) == (RunState.CANCELLED, None, None)
    assert run_resume(run=stopped, user=alice).state == RunState.QUEUED


@pytest.mark.parametrize("state", ["draft", "running", "paused", "succeeded"])
def test_only_a_waiting_run_is_changed(line: Any, alice: User, state: str) -> None:
    run = line(1)
    Run.objects.filter(pk=run.pk).update(state=state)
    with pytest.raises(ValidationError) as caught:
        run_queue_change(run=run, user=alice, change=HOLD)
    run.refresh_from_db()
    assert caught.value.code == "conflict" and run.on_hold_at is None and acts() == []


def test_over_the_api_owners_change_it(line: Any, client_for: Any, alice: User, bob: User) -> None:
    run = line(1)
    address = f"/api/v1/runs/{run.pk}/queue"

    def send(user: User, **body: Any) -> Any:
        return client_for(user).patch(address, body, content_type="application/json")

    assert send(bob, priority="low").status_code == 403
    answer = send(alice, priority="high", on_hold=True, first=True)
    assert answer.status_code == 200 and answer.json()["priority"] == "high" and answer.json()["on_hold_at"]
    run.refresh_from_db()
    assert run.first_at is not None and acts() == ["run_priority", "run_held", "run_first"]
    assert send(alice, priority="urgent").status_code == 422
    Run.objects.filter(pk=run.pk).update(state="running")
    assert send(alice, on_hold=False).status_code == 409


def test_the_page_has_the_acts_for_owners_alone(line: Any, client_for: Any, alice: User, bob: User) -> None:
    run = line(1)
    address = f"{run.url}queue/"
    assert address not in client_for(bob).get(run.url).content.decode()
    assert client_for(bob).post(address, {"act": "hold"}).status_code == 403
    page = client_for(alice).get(run.url).content.decode()
    assert address in page and 'value="hold"' in page and 'value="high"' in page and 'value="normal"' not in page
    assert client_for(alice).post(address, {"act": "hold"}).status_code == 302
    assert 'value="release"' in client_for(alice).get(run.url).content.decode()
    assert client_for(alice).post(address, {"act": "jump"}).status_code == 400
    Run.objects.filter(pk=run.pk).update(state="running")
    assert "Nothing was changed" in client_for(alice).post(address, {"act": "first"}, follow=True).content.decode()
    assert address not in client_for(alice).get(run.url).content.decode()


def test_several_runs_are_held_released_and_reclassified_over_the_api(
    line: Any, client_for: Any, alice: User, bob: User
) -> None:
    one, two, busy = line(3), line(2), line(1)
    Run.objects.filter(pk=busy.pk).update(state="running")
    address = f"/api/v1/projects/{one.project.slug}/runs/batch"

    def send(user: User, act: str, **more: Any) -> Any:
        body = {"act": act, "runs": [str(run.pk) for run in (two, busy, one)], **more}
        return client_for(user).post(address, body, content_type="application/json")

    answer = send(alice, "hold").json()
    refused = {"ok": False, "code": "conflict", "message": "Nothing was changed: the run does not wait in the queue."}
    assert [item["ok"] for item in answer["items"]] == [True, False, True] and answer["done"] == 2
    assert answer["items"][1] == {"id": str(busy.pk), **refused}
    assert set(Run.objects.exclude(on_hold_at=None)) == {one, two}
    assert send(alice, "hold").json()["done"] == 2 and acts() == ["run_held", "run_held"], "twice is once"
    assert send(alice, "release").json()["done"] == 2 and not Run.objects.exclude(on_hold_at=None).exists()
    assert send(alice, "priority", priority="low").json()["done"] == 2
    assert set(Run.objects.filter(priority="low")) == {one, two}
    assert acts() == ["run_held"] * 2 + ["run_released"] * 2 + ["run_priority"] * 2
    for act, more in (("priority", {}), ("hold", {"priority": "low"}), ("archive", {"priority": "high"})):
        wrong = send(alice, act, **more)
        assert wrong.status_code == 422 and [item["path"] for item in wrong.json()["detail"]] == ["priority"]
    for act, more in (("hold", {}), ("release", {}), ("priority", {"priority": "high"})):
        assert send(bob, act, **more).status_code == 403
    assert set(Run.objects.filter(priority="low")) == {one, two} and len(acts()) == 6


def test_several_runs_are_changed_from_the_list_by_owners_alone(
    line: Any, client_for: Any, alice: User, bob: User
) -> None:
    one, two, busy = line(3), line(2), line(1)
    Run.objects.filter(pk=busy.pk).update(state="running")
    home = one.url.removesuffix(f"{one.pk}/")
    address, chosen = f"{home}queue/", {"c": [str(run.pk) for run in (one, two, busy)]}
    assert address not in client_for(bob).get(home).content.decode()
    assert client_for(bob).get(address, chosen).status_code == 403
    assert client_for(bob).post(address, chosen | {"act": "hold"}).status_code == 403
    client = client_for(alice)
    assert address in client.get(home).content.decode()
    page = client.get(address, chosen).content.decode()
    assert "Place of 3 runs in the queue" in dense(
        page
    ) and "1 run does not wait in the queue and stays as it is." in dense(page)
    assert all(f'value="{act}"' in page for act in ("hold", "release", "high", "normal", "low"))
    assert 'value="first"' not in page
    answer = client.post(address, chosen | {"act": "hold", "next": f"{home}?state=active"}, follow=True)
    assert answer.request["QUERY_STRING"] == "state=active"
    assert [str(message) for message in answer.context["messages"]] == [
        "2 runs are in the queue as you chose.",
        f"{busy.name}: Nothing was changed: the run does not wait in the queue.",
    ]
    assert set(Run.objects.exclude(on_hold_at=None)) == {one, two} and acts() == ["run_held"] * 2
    assert client.post(address, {"c": [str(busy.pk)], "act": "high"}, follow=True).context["messages"]
    assert not Run.objects.filter(priority="high").exists()
    client.post(address, chosen | {"act": "low"})
    assert set(Run.objects.filter(priority="low")) == {one, two}
    for act in ("first", "jump", ""):
        assert client.post(address, chosen | {"act": act}).status_code == 400
    assert not Run.objects.exclude(first_at=None).exists()
    nothing = client_for(alice).post(address, {"act": "hold"}, follow=True)
    assert [str(message) for message in nothing.context["messages"]] == ["Tick the boxes of the runs first."]
