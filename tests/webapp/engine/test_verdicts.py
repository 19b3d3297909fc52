"""How an attempt's end decides its run, as a table: what the trainer said, what was asked, and what died."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from training.errors import ErrorInfo
from webapp.common.storage import attempt_dir
from webapp.engine import attempts as leases
from webapp.engine.attempts import WORKER_CLOSING, attempt_end, crash_loop, finished_before, worker_lost
from webapp.engine.history import LeaseLost
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint, RegisteredModel

pytestmark = pytest.mark.django_db
FULL = {"code": "storage_full", "boundary": "storage", "message": "Full.", "hint": "Free space."}
SUCCEEDED, STOPPED = {"status": "succeeded", "step": 1}, {"status": "stopped", "step": 1}
FAILED, PAUSED = {"status": "failed", "step": 1, "error": FULL}, {"status": "paused", "step": 1, "error": FULL}


def _ended(queued: Any, state: str, outcome: Any, error: ErrorInfo | None = None, **fields: Any) -> Run:
    lease = leases.claim(queued().pk)
    assert lease is not None
    Run.objects.update(state=state, **fields)
    Attempt.objects.update(outcome=outcome)
    return attempt_end(lease, error)


@pytest.mark.parametrize(
    ("state", "outcome", "expected", "code"),
    [
        ("running", SUCCEEDED, "succeeded", None),
        ("stopping", SUCCEEDED, "succeeded", None),
        ("pausing", SUCCEEDED, "succeeded", None),
        ("stopping", FAILED, "cancelled", None),
        ("stopping", STOPPED, "cancelled", None),
        ("stopping", None, "cancelled", None),
        ("running", FAILED, "failed", "storage_full"),
        ("pausing", FAILED, "failed", "storage_full"),
        ("running", FAILED | {"error": None}, "failed", "trainer_died"),
        ("running", PAUSED, "paused", "storage_full"),
        ("preparing", PAUSED, "paused", "storage_full"),
        ("running", PAUSED | {"error": None}, "paused", "trainer_died"),
        ("pausing", STOPPED, "paused", None),
        ("pausing", None, "paused", None),
        ("running", STOPPED, "queued", "trainer_died"),
        ("running", None, "queued", "trainer_died"),
    ],
)
def test_the_verdict_on_a_run(queued: Any, state: str, outcome: Any, expected: str, code: str | None) -> None:
    run = _ended(queued, state, outcome)
    assert (run.state, run.lease_owner) == (expected, "")
    stored = Attempt.objects.get()
    assert (stored.error or {}).get("code") == code and stored.ended_at is not None
    assert (run.error or {}).get("code") == (code if expected in {"failed", "paused"} else None)
    event = RunEvent.objects.filter(kind="state").order_by("seq").last()
    assert event is not None and event.payload["to"] == expected
    messages = {"storage_full": "Full.", "trainer_died": "The trainer ended without reporting a result."}
    error = event.payload["error"] or {}
    assert (error.get("code"), error.get("message")) == (code, messages.get(code)) and event.payload["reason"] is None
    health = {"ended": {"attempt": 1, "code": code, "message": messages[code]}} if code else {}
    assert run.health == health


def test_a_trainer_that_died_points_to_its_log(queued: Any) -> None:
    _ended(queued, "running", None)
    error = Attempt.objects.get().error
    assert error["hint"] == "The last lines of its output are in the log." and error["boundary"] == "trainer"


def test_a_worker_that_closes_costs_nothing(queued: Any) -> None:
    run = _ended(queued, "running", None, WORKER_CLOSING)
    assert (run.state, run.error) == ("queued", None)
    error = Attempt.objects.get().error
    assert error == {
        "code": "worker_closing",
        "boundary": "lease",
        "message": "The worker was shut down; the run continues with the next free one.",
        "hint": "",
    } | {key: error[key] for key in set(error) - {"code", "boundary", "message", "hint"}}


@pytest.mark.parametrize(
    "change",
    [{"attempt": 2}, {"lease_owner": "another"}, {"state": "queued"}, {"state": "paused"}, {"state": "cancelled"}],
)
def test_a_lease_that_was_lost_ends_nothing(queued: Any, change: dict[str, Any]) -> None:
    lease = leases.claim(queued().pk)
    assert lease is not None
    Attempt.objects.update(outcome=FAILED)
    Run.objects.update(**change)
    before = Run.objects.values().get()
    with pytest.raises(LeaseLost, match=r"^Another worker has the run\.$"):
        attempt_end(lease)
    assert Run.objects.values().get() == before
    assert Attempt.objects.values_list("ended_at", "error").get() == (None, None)


def test_a_run_whose_attempt_has_gone_cannot_be_ended(queued: Any) -> None:
    lease = leases.claim(queued().pk)
    assert lease is not None
    Attempt.objects.all().delete()
    with pytest.raises(LeaseLost):
        attempt_end(lease)


def test_an_end_that_is_refused_is_taken_back_as_a_whole(queued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leases.claim(queued().pk)
    assert lease is not None
    Attempt.objects.update(outcome=FAILED)
    monkeypatch.setattr(leases, "run_transition", lambda *_args, **_more: None)
    with pytest.raises(LeaseLost, match=r"^Another worker has the run\.$"):
        attempt_end(lease)
    assert Attempt.objects.values_list("ended_at", "error").get() == (None, None)


def test_the_runs_of_one_worker_are_ended_each_by_itself(queued: Any) -> None:
    """Both have the same owner and the same attempt, and their checkpoints and deaths are their own."""
    run, other = queued(fields={"name": "mine"}), queued()
    assert [_die(other).state for _ in range(2)] == ["queued"] * 2
    assert leases.claim(other.pk) is not None
    lease = leases.claim(run.pk)
    assert lease is not None
    Attempt.objects.filter(run=run).update(outcome=SUCCEEDED)
    Run.objects.update(attempt=1, lease_owner=lease.owner)
    _final(run, path="1/model")
    _final(other, path="9/model", attempt=9)
    assert attempt_end(lease).pk == run.pk
    assert RegisteredModel.objects.get().checkpoint.run == run
    assert list(Run.objects.order_by("name").values_list("state", flat=True)) == ["succeeded", "preparing"]
    assert Attempt.objects.filter(run=other, ended_at=None).count() == 1


def test_what_another_run_says_and_how_often_it_died_does_not_count(queued: Any) -> None:
    run, other = queued(), queued()
    assert [_die(other).state for _ in range(2)] == ["queued"] * 2
    assert leases.claim(other.pk) is not None
    Attempt.objects.filter(run=other).update(outcome=FAILED, ended_at=None, error={"code": "supervisor_fault"})
    assert _die(run).state == "queued"
    second = leases.claim(run.pk)
    assert second is not None and not finished_before(second)
    assert attempt_end(second).state == "queued"
    assert not Attempt.objects.filter(run=other).exclude(ended_at=None).exists()
    assert set(Attempt.objects.filter(run=other).values_list("error__code", flat=True)) == {"supervisor_fault"}


def test_an_attempt_is_sealed_once(queued: Any) -> None:
    run = queued()
    _die(run)
    first = Attempt.objects.get().ended_at
    _die(run)
    assert first is not None and Attempt.objects.get(number=1).ended_at == first


def test_an_attempt_that_said_nothing_has_not_finished_the_run(queued: Any) -> None:
    run = queued()
    _die(run)
    Attempt.objects.update(ended_at=None)
    second = leases.claim(run.pk)
    assert second is not None and not finished_before(second)


def test_a_lost_worker_is_named(queued: Any) -> None:
    run = _ended(queued, "running", None, worker_lost("gpu-7"))
    assert run.state == "queued"
    error = Attempt.objects.get().error
    assert (error["code"], error["boundary"]) == ("worker_lost", "lease")
    assert error["message"] == "Worker gpu-7 stopped answering."
    assert error["hint"] == "Check whether its machine is up and can reach the database."


@pytest.mark.parametrize(
    ("state", "outcome", "expected"),
    [
        ("running", STOPPED, "cancelled"),
        ("running", None, "failed"),
        ("running", PAUSED, "failed"),
        ("running", SUCCEEDED, "succeeded"),
    ],
)
def test_an_imported_run_is_never_queued(queued: Any, state: str, outcome: Any, expected: str) -> None:
    run = _ended(queued, state, outcome, imported=True)
    assert run.state == expected
    if outcome == PAUSED:
        assert run.error["code"] == "storage_full"


def _die(run: Run, step: int = 0, first: int = 0, error: ErrorInfo | None = None) -> Run:
    lease = leases.claim(run.pk)
    assert lease is not None
    Attempt.objects.filter(number=lease.attempt).update(last_step=step, first_step=first)
    return attempt_end(lease, error)


def test_trainers_that_die_without_a_new_step_end_the_run(queued: Any) -> None:
    run = queued()
    assert [_die(run).state for _ in range(3)] == ["queued", "queued", "failed"]
    run.refresh_from_db()
    assert run.error["code"] == "crash_loop" and run.error["boundary"] == "trainer"
    died = "The trainer ended without reporting a result."
    assert run.error["message"] == f"3 attempts in a row ended without a new step. The last one: {died}"
    assert run.error["hint"] == "The last lines of its output are in the log."


def test_only_a_new_step_is_progress(queued: Any) -> None:
    """Steps that were trained again count for nothing; neither does the step that an attempt begins with."""
    run = queued()
    assert _die(run, 5).state == "queued"
    assert [_die(run, step).state for step in (5, 4, 5)] == ["queued"] * 3  # 4: on its way back, which says nothing
    assert _die(run, 7, first=7).state == "failed"


def test_progress_in_between_starts_the_count_again(queued: Any) -> None:
    run = queued()
    assert [_die(run, step).state for step in (0, 0, 1, 1, 2, 2, 2)] == ["queued"] * 7
    assert _die(run, 2).state == "failed"


def test_lost_workers_and_closing_ones_are_counted_apart(queued: Any) -> None:
    run = queued()
    assert [_die(run, error=worker_lost("x")).state for _ in range(4)] == ["queued"] * 4
    assert [_die(run).state for _ in range(2)] == ["queued"] * 2
    assert _die(run, error=WORKER_CLOSING).state == "queued"
    assert _die(run, error=worker_lost("x")).state == "queued"
    assert _die(run).state == "failed"
    run.refresh_from_db()
    assert run.error["message"].startswith("8 attempts in a row")


def test_twenty_lost_workers_end_a_run(queued: Any) -> None:
    run = queued()
    states = [_die(run, error=worker_lost("x")).state for _ in range(20)]
    assert states == ["queued"] * 19 + ["failed"]


def test_lost_workers_are_counted_from_zero_after_progress(queued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_OTHER_DEATHS", 3)
    run = queued()
    steps = (0, 0, 1, 1, 1, 1)
    states = [_die(run, step, error=worker_lost("x")).state for step in steps]
    assert states == ["queued"] * 5 + ["failed"]


def test_a_trainer_that_dies_at_its_start_says_something_of_the_run(queued: Any) -> None:
    """Wherever it starts: what it began with counts as no step on its way back."""
    run = queued()
    assert _die(run, 5).state == "queued"
    assert [_die(run, 4, first=4).state for _ in range(3)] == ["queued", "queued", "failed"]


def test_attempts_before_a_person_resumed_are_forgiven(queued: Any) -> None:
    run = queued()
    _die(run)
    _die(run)
    Run.objects.update(attempts_forgiven=2)
    assert [_die(run).state for _ in range(3)] == ["queued", "queued", "failed"]


def test_a_crash_loop_takes_over_the_last_hint() -> None:
    error = crash_loop(4, ErrorInfo(code="x", boundary="trainer", message="Bad.", hint=""))
    assert error.message == "4 attempts in a row ended without a new step. The last one: Bad."
    assert error.hint == "The last lines of its output are in the log."
    assert crash_loop(4, worker_lost("y")).hint == "Check whether its machine is up and can reach the database."


def test_the_last_word_of_an_unsealed_attempt_before_counts(queued: Any) -> None:
    """Its worker died after the trainer had ended and before the attempt was sealed."""
    run = queued()
    first = leases.claim(run.pk)
    assert first is not None
    Attempt.objects.update(outcome=SUCCEEDED)
    Run.objects.update(state="queued", lease_owner="")
    second = leases.claim(run.pk)
    assert second is not None and finished_before(second) and not finished_before(first)
    Attempt.objects.filter(number=1).update(outcome=STOPPED)
    assert not finished_before(second)
    Attempt.objects.filter(number=1).update(outcome=FAILED)
    assert finished_before(second)
    assert attempt_end(second).state == "failed"
    assert set(Attempt.objects.exclude(ended_at=None).values_list("number", flat=True)) == {1, 2}


def test_a_sealed_attempt_says_nothing_more(queued: Any) -> None:
    run = queued()
    leases.claim(run.pk)
    Attempt.objects.update(outcome=SUCCEEDED, ended_at=timezone.now())
    Run.objects.update(state="queued", lease_owner="")
    second = leases.claim(run.pk)
    assert second is not None and not finished_before(second)
    assert attempt_end(second).state == "queued"


def _final(run: Run, **over: Any) -> Checkpoint:
    fields: dict[str, Any] = {"attempt": 1, "step": 1, "path": "1/model", "bytes": 1, "final": True, "seq": 1}
    return Checkpoint.objects.create(project=run.project, run=run, created_at=timezone.now(), **fields | over)


def test_a_run_that_succeeded_leaves_its_newest_final_model(queued: Any, bob: Any) -> None:
    run = queued(fields={"name": "red", "created_by": bob})
    lease = leases.claim(run.pk)
    assert lease is not None
    _final(run, path="1/checkpoint-9", step=9, final=False)
    _final(run, path="1/old", step=1)
    newest = _final(run, path="1/model", step=4)
    RegisteredModel.objects.create(
        project=run.project, checkpoint=_final(run, path="x", step=0), name="red", kind="run"
    )
    Attempt.objects.update(outcome=SUCCEEDED)
    attempt_end(lease)
    model = RegisteredModel.objects.exclude(name="red").get()
    assert (model.name, model.checkpoint, model.kind, model.created_by) == ("red (2)", newest, "run", bob)


def test_a_later_attempts_model_is_newer_than_a_later_step(queued: Any) -> None:
    run = queued(fields={"name": "x" * 80})
    lease = leases.claim(run.pk)
    assert lease is not None
    older = _final(run, path="1/model", step=9)
    newest = _final(run, path="2/model", attempt=2, step=4)
    for name in ("x" * 80, "x" * 70 + " (2)"):
        RegisteredModel.objects.create(project=run.project, checkpoint=older, name=name, kind="run")
        older = _final(run, path=f"0/{name[-3:]}", attempt=0)
    Attempt.objects.update(outcome=SUCCEEDED)
    attempt_end(lease)
    assert RegisteredModel.objects.get(checkpoint=newest).name == "x" * 70 + " (3)"


@pytest.mark.parametrize(("kind", "warned"), [("grpo", True), ("sft", True), ("sample", False)])
def test_a_run_without_a_final_model_says_so_where_it_trained(queued: Any, kind: str, warned: bool) -> None:
    _ended(queued, "running", SUCCEEDED, kind=kind)
    warnings = list(RunEvent.objects.filter(kind="warning").values_list("payload", "attempt"))
    expected = {"code": "no_final_model", "message": "The run succeeded but left no final model."}
    assert warnings == ([(expected, 1)] if warned else []) and not RegisteredModel.objects.exists()


def test_a_foreign_run_leaves_no_model(queued: Any) -> None:
    _ended(queued, "running", SUCCEEDED, imported=True, imported_from="verl")
    assert not RunEvent.objects.filter(kind="warning").exists()


REPORT = {
    "figures": {"success": {"value": 0.75, "low": 0.4, "high": 0.9, "tasks": 8}},
    "tasks": 9,
    "missing_tasks": 1,
    "tries": 16,
    "excluded": 2,
    "most": 2,
}


def _evaluated(queued: Any, text: str | None) -> Run:
    run = queued()
    Run.objects.update(kind="evaluate")
    lease = leases.claim(run.pk)
    assert lease is not None
    Run.objects.update(state="running")
    Attempt.objects.update(outcome=SUCCEEDED)
    folder = attempt_dir(run.pk, 1)
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "evaluation.json").write_text(text)
    return attempt_end(lease)


def test_what_an_evaluation_came_out_with_is_kept(queued: Any) -> None:
    run = _evaluated(queued, json.dumps(REPORT))
    assert (run.state, run.evaluation) == ("succeeded", REPORT)
    assert not RunEvent.objects.filter(kind="warning").exists()


@pytest.mark.parametrize("text", [None, "", "{", "[]", json.dumps(REPORT | {"tasks": -1}), json.dumps(REPORT)[:40]])
def test_figures_that_cannot_be_read_are_a_warning_and_no_failure(queued: Any, text: str | None) -> None:
    run = _evaluated(queued, text)
    assert (run.state, run.evaluation) == ("succeeded", None)
    (event,) = RunEvent.objects.filter(kind="warning")
    assert event.payload["code"] == "no_figures" and event.attempt == 1
