"""Only legal transitions, for any requests in any order; ends are final; the history is complete."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from training.config import JobConfig
from training.errors import ConfigError
from webapp.engine import attempts as leases
from webapp.engine.attempts import WORKER_CLOSING, attempt_end, worker_lost
from webapp.engine.history import LeaseLost, run_transition, seq_take
from webapp.engine.services import run_launch, run_pause, run_resume, run_stop
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.states import LEASED, TERMINAL, TRANSITIONS, RunState

pytestmark = pytest.mark.django_db
# Written out, so that a move that becomes legal by mistake is found: nothing here is read from the table.
LEGAL = {
    "draft": {"queued", "cancelled"},
    "queued": {"preparing", "cancelled", "failed"},
    "preparing": {"running", "queued", "pausing", "paused", "stopping", "succeeded", "failed", "cancelled"},
    "running": {"queued", "pausing", "paused", "stopping", "succeeded", "failed", "cancelled"},
    "pausing": {"paused", "queued", "stopping", "succeeded", "failed", "cancelled"},
    "paused": {"queued", "cancelled"},
    "stopping": {"cancelled", "succeeded", "failed"},
    "succeeded": set(),
    "failed": {"queued"},
    "cancelled": {"queued"},
}
ENDED = {"succeeded", "failed", "cancelled"}
WITH_A_WORKER = {"preparing", "running", "pausing", "stopping"}
ACTIONS = ["claim", "stop", "pause", "resume", "launch", "begin", "succeed", "fail", "die", "lose", "close", "zombie"]


def _act(action: str, run: Run, held: list[leases.Lease]) -> None:
    newest = held[-1] if held else None
    if action == "claim" and (lease := leases.claim(run.pk)):
        held.append(lease)
    elif action == "stop":
        run_stop(run=run)
    elif action == "pause":
        run_pause(run=run)
    elif action == "resume":
        run_resume(run=run)
    elif action == "launch":
        run_transition(run.pk, RunState.QUEUED, sources=frozenset({RunState.DRAFT}))
    elif newest is not None and action == "begin":
        run_transition(run.pk, RunState.RUNNING, sources=frozenset({RunState.PREPARING}), lease=newest)
    elif newest is not None and action in {"succeed", "fail"}:
        status = "succeeded" if action == "succeed" else "failed"
        if leases.beat(newest):
            Attempt.objects.filter(run=run, number=newest.attempt).update(outcome={"status": status, "step": 1})
            attempt_end(newest)
    elif newest is not None and action in {"die", "close", "lose"}:
        attempt_end(newest, WORKER_CLOSING if action == "close" else worker_lost("x") if action == "lose" else None)
    elif action == "zombie" and len(held) > 1:
        attempt_end(held[0])


def test_the_table_is_what_is_written_here() -> None:
    assert {str(source): {str(target) for target in targets} for source, targets in TRANSITIONS.items()} == LEGAL
    assert {str(state) for state in TERMINAL} == ENDED and {str(state) for state in LEASED} == WITH_A_WORKER


QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.timeout(120)
@settings(max_examples=40, **QUICK)
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=20))
def test_any_order_of_actions_stays_legal(project: Project, actions: list[str]) -> None:
    _any_order(project, actions)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, **QUICK)
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=30))
def test_ten_thousand_orders_stay_legal(project: Project, actions: list[str]) -> None:
    _any_order(project, actions)


def _any_order(project: Project, actions: list[str]) -> None:
    Run.objects.all().delete()
    config = JobConfig().model_dump(mode="json")
    fields = {
        "kind": "sample",
        "step": 1,
    }  # a sample continues after its steps, so it is resumed without checkpoints
    run = Run.objects.create(
        project=project, name="r", config=config, state=RunState.QUEUED, queued_at=timezone.now(), **fields
    )
    held: list[leases.Lease] = []
    ended = None
    for action in actions:
        with contextlib.suppress(LeaseLost, ConfigError):
            _act(action, run, held)
        run.refresh_from_db()
        assert ended is None or run.state == ended or (action, ended) in {("resume", "failed"), ("resume", "cancelled")}
        ended = run.state if run.state in ENDED else None
        assert bool(run.lease_owner) == (run.state in WITH_A_WORKER)
        assert bool(run.finished_at) == (run.state in ENDED)
    _history_is_complete(run)


def _history_is_complete(run: Run) -> None:
    events = list(RunEvent.objects.filter(run=run).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, run.seq + 1))
    state = "queued"
    for event in events:
        if event.kind == "state":
            assert event.payload["from"] == state and event.payload["to"] in LEGAL[state]
            state = event.payload["to"]
    assert state == run.state
    assert Attempt.objects.filter(run=run).count() == run.attempt


@pytest.mark.parametrize("source", sorted(LEGAL))
@pytest.mark.parametrize("target", sorted(LEGAL))
def test_only_legal_transitions_happen(make_run: Any, source: str, target: str) -> None:
    """No ended run is left unless the caller names its state: workers, reaper and trainer never do."""
    run = make_run(state=source)
    moved = run_transition(run.pk, RunState(target))
    run.refresh_from_db()
    assert (moved is not None) == (target in LEGAL[source] and source not in ENDED)
    assert run.state == (target if moved else source)
    if source in ENDED:
        named = run_transition(run.pk, RunState(target), sources=frozenset({RunState(source)}))
        assert (named is not None) == (target in LEGAL[source])


def test_a_write_needs_the_whole_lease(queued: Any) -> None:
    """The attempt alone, or the owner alone, is that of a worker that was replaced."""
    run = queued()
    lease = leases.claim(run.pk)
    assert lease is not None
    for stale in (replace(lease, owner="other"), replace(lease, attempt=lease.attempt + 1)):
        assert run_transition(run.pk, RunState.RUNNING, lease=stale) is None
        with pytest.raises(LeaseLost):
            seq_take(run.pk, 3, lease=stale)
        assert leases.state_of(stale) is None and not leases.beat(stale)
    run.refresh_from_db()
    first = seq_take(run.pk, 3, lease=lease)
    assert first == run.seq + 1 and seq_take(run.pk, 1) == first + 3
    assert run_transition(run.pk, RunState.RUNNING, lease=lease) is not None
    assert leases.state_of(lease) == RunState.RUNNING and leases.beat(lease)


def test_launch_leaves_a_running_run_alone(queued: Any) -> None:
    run = queued()
    leases.claim(run.pk)
    assert run_launch(run=run).state == RunState.PREPARING
