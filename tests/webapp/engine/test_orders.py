"""Orders about rollouts in flight: who may give them, who is first, and that a real trainer obeys them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.chaos.services import wait_until
from tests.processes import running, wait_for_http
from tests.webapp.engine.conftest import in_thread
from training.config import JobConfig
from training.journal import ORDERS_NAME
from webapp.common.host import free_port
from webapp.common.storage import attempt_dir
from webapp.engine.history import Lease
from webapp.engine.services import orders_pass, rollout_order, run_stop
from webapp.people.teams.models import AuditEntry, User
from webapp.runs.models import Run, RunEvent
from webapp.runs.rollouts.models import Rollout, Turn, rollout_id

pytestmark = pytest.mark.django_db(transaction=True)
V1 = "/api/v1"


@pytest.fixture
def flying(make_run: Callable[..., Run]) -> Rollout:
    """A rollout that a run's first attempt plays."""
    run = make_run(state="running", attempt=1, lease_owner="w", step=2)
    pk = rollout_id(run.pk, 1, "a1-s3-g0-i4")
    return Rollout.objects.create(
        id=pk, run=run, attempt=1, step=3, group=0, index=4, started_at=timezone.now(), seq=run.seq
    )


def test_an_order_is_an_event_and_a_row_of_the_audit(flying: Rollout, bob: User) -> None:
    order = rollout_order(rollout=flying, act="end", user=bob)
    assert order == {
        "rollout": str(flying.pk), "act": "end", "by": "bob", "step": 3, "group": 0, "index": 4,
    }  # fmt: skip
    event = RunEvent.objects.get(run=flying.run)
    flying.run.refresh_from_db()
    assert (event.kind, event.payload, event.attempt, event.seq) == ("rollout_order", order, 1, flying.run.seq)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.username, entry.object_id) == ("rollout_ended", "bob", str(flying.run_id))
    assert entry.subject == f"{flying.run.name} · step 3 · group 0 · 4"


def test_of_two_people_at_once_one_is_first_and_the_other_hears_of_it(flying: Rollout, bob: User, alice: User) -> None:
    answers: list[str] = []
    begin = threading.Barrier(2)

    def order(user: User, act: Any) -> None:
        begin.wait()
        try:
            rollout_order(rollout=Rollout.objects.get(pk=flying.pk), act=act, user=user)
            answers.append("done")
        except ValidationError as exc:
            assert exc.code == "conflict"
            answers.append(exc.messages[0])
        finally:
            connection.close()

    threads = [threading.Thread(target=order, args=args) for args in ((bob, "end"), (alice, "fail"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    event = RunEvent.objects.get(run=flying.run)
    assert sorted(answers) == sorted(
        ["done", f"Nothing was changed: {event.payload['by']} ordered its end just before."]
    )
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("run", "rollout", "why"),
    [
        ({}, {"status": "completed"}, "this rollout has ended by itself"),
        ({"state": "paused"}, {}, "the run is paused"),
        ({"attempt": 2}, {}, "this rollout is over"),
        ({}, {"held_out": True}, "held-out tasks are played to their end"),
    ],
)
def test_what_is_not_in_flight_is_left_as_it_is(
    flying: Rollout, bob: User, run: dict[str, Any], rollout: dict[str, Any], why: str
) -> None:
    Run.objects.filter(pk=flying.run_id).update(**{"attempt": 1, **run})
    Rollout.objects.filter(pk=flying.pk).update(**{"attempt": 1, **rollout})
    flying.refresh_from_db()
    with pytest.raises(ValidationError, match=why):
        rollout_order(rollout=flying, act="fail", user=bob)
    assert not RunEvent.objects.exists() and not AuditEntry.objects.exists()


def test_pages_and_the_api_order_and_strangers_do_not(flying: Rollout, client_for: Any, cast_of: Any) -> None:
    page = f"/p/{flying.run.project.slug}/rollouts/{flying.pk}/fail/"
    for person, wanted in (("charlie", 404), ("rita", 403)):
        assert cast_of[person].post(page).status_code == wanted
        assert cast_of[person].post(f"{V1}/rollouts/{flying.pk}/end").status_code == wanted
    assert Client().post(page)["Location"].startswith("/login/")
    assert cast_of["bob"].get(page).status_code == 405
    answer = cast_of["bob"].post(page, follow=True)
    assert "it counts as failed" in answer.content.decode()
    again = cast_of["alice"].post(f"{V1}/rollouts/{flying.pk}/end")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert again.json()["message"] == "Nothing was changed: bob ordered its end just before."
    events = cast_of["alice"].get(f"/p/{flying.run.project.slug}/runs/{flying.run_id}/?tab=events").content.decode()
    assert "bob marked rollout 0.4 of step 3 as failed" in events
    assert cast_of["alice"].post(f"{V1}/rollouts/{flying.run_id}/end").status_code == 404


@pytest.fixture
def cast_of(client_for: Callable[..., Client], alice: User, bob: User, rita: User, charlie: User) -> dict[str, Client]:
    """A client of each person of the cast."""
    return {user.username: client_for(user) for user in (alice, bob, rita, charlie)}


def test_orders_are_handed_on_once_and_only_to_their_attempt(flying: Rollout, bob: User, tmp_path: Path) -> None:
    rollout_order(rollout=flying, act="end", user=bob)
    lease = Lease(flying.run_id, 1, "w")
    seq = orders_pass(lease, tmp_path, 0)
    assert orders_pass(lease, tmp_path, seq) == seq
    lines = (tmp_path / ORDERS_NAME).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"rollout": "a1-s3-g0-i4", "act": "end", "by": "bob"}]
    assert orders_pass(Lease(flying.run_id, 2, "w"), tmp_path / "2", 0) == seq, "a later attempt hears nothing of it"
    assert orders_pass(lease, tmp_path / "away", 0) == 0, "what could not be written is tried again"


@pytest.fixture
def slow_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tools server whose every answer to a call takes half a minute."""
    port = free_port()
    monkeypatch.setenv("TILTYARD_OUTBOUND_ALLOW", f"127.0.0.1:{port}")
    argv = [sys.executable, "-m", "envs.tools", "--port", str(port), "--delay-ms", "30000"]
    with running(argv, tmp_path / "tools.log") as child:
        wait_for_http(f"http://127.0.0.1:{port}/health", child, tmp_path / "tools.log")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def stuck(
    slow_tools: str, settings: Any, make_run: Any, make_dataset: Any, make_environment: Any
) -> Iterator[tuple[Run, list[Rollout]]]:
    """A run of the real trainer of which three rollouts wait for the answer to their first call."""
    settings.TRAINER_COMMAND = [sys.executable, "-m", "training"]
    settings.OUTBOUND_ALLOW = [slow_tools.removeprefix("http://")]
    rows = [
        {"messages": [{"role": "user", "content": f"What is {n} * 5?"}], "answer": {"contains": [str(5 * n)]}}
        for n in (7, 8, 9)
    ]
    config = JobConfig.model_validate(
        {
            "kind": "sample",
            "model": {"source": "scripted"},
            "data": {"train": make_dataset(rows).reference},
            "environment": {"name": make_environment(url=slow_tools).reference, "step_timeout_s": 60},
            "sample": {"policies": ["one_tool"]},
            "rollout": {"prompts_per_step": 3},
            "run": {"max_steps": 1},
        }
    )
    run = make_run(config=config, state="queued", queued_at=timezone.now())
    thread = in_thread(run)

    def waiting() -> list[Rollout]:
        asked = Turn.objects.filter(run=run, number=1).values("rollout")
        return list(Rollout.objects.filter(pk__in=asked, status="running").order_by("group"))

    wait_until(lambda: len(waiting()) == 3, 60, what="three rollouts that wait for a tool")
    yield run, waiting()
    run_stop(run=run)
    thread.join(30)


def _ended(rollout: Rollout) -> bool:
    rollout.refresh_from_db()
    return rollout.status != "running"


def test_a_real_trainer_obeys_within_two_seconds(stuck: tuple[Run, list[Rollout]], bob: User, alice: User) -> None:
    _run, (first, second, third) = stuck
    began = time.monotonic()
    rollout_order(rollout=first, act="end", user=bob)
    rollout_order(rollout=second, act="fail", user=alice)
    wait_until(lambda: _ended(first) and _ended(second), 10, what="the end of both")
    took = time.monotonic() - began
    assert took < 2.0 + 0.5, f"{took:.1f} s"  # half a second for a machine that is busy
    assert (first.status, first.outcome, first.reward) == ("excluded", "excluded", None)
    assert first.error["code"] == "rollout_ended" and first.error["message"] == "It was ended by bob."
    assert (second.status, second.outcome, second.env_parts["task_success"]) == ("truncated", "failed", 0.0)
    assert second.error is None and second.reward is not None
    assert not _ended(third), "nothing of it was ordered"
    with pytest.raises(ValidationError, match="has ended by itself"):
        rollout_order(rollout=second, act="end", user=bob)


def test_an_order_dies_with_the_attempt_that_was_to_obey(stuck: tuple[Run, list[Rollout]], bob: User) -> None:
    run, (first, *_others) = stuck
    trainer = json.loads((attempt_dir(run.pk, 1) / "trainer.json").read_text())["pid"]
    os.kill(trainer, signal.SIGSTOP)  # it cannot hear the order any more
    rollout_order(rollout=first, act="fail", user=bob)
    wait_until(lambda: (attempt_dir(run.pk, 1) / ORDERS_NAME).exists(), 5, what="the order in the attempt's folder")
    os.kill(trainer, signal.SIGKILL)
    wait_until(lambda: _ended(first), 15, what="the end of the attempt's rollouts")
    assert (first.status, first.error["code"], first.reward) == ("excluded", "attempt_ended", None)
    assert RunEvent.objects.filter(run=run, kind="rollout_order").count() == 1
