"""The doctor looks at runs as they are recorded: every step once, whatever is cut off."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.training.doctor.drifts import DRIFTS, long_healthy
from tests.training.doctor.planted import BEGIN, FAULTS, STEPS, healthy, planted
from training.doctor.digest import StepFacts
from training.doctor.doctor import Doctor
from webapp.engine import doctor as engine_doctor
from webapp.engine.doctor import look
from webapp.people.notifications.models import Event
from webapp.people.notifications.words import words_of
from webapp.runs.advisories.models import Advisory, Examination
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def failed(facts: StepFacts) -> StepFacts:
    return replace(facts, rollouts=tuple(replace(one, success=0.0) for one in facts.rollouts))


def advisories() -> list[tuple[str, int, int, bool]]:
    return list(Advisory.objects.order_by("first", "code").values_list("code", "first", "last", "open"))


def expected(steps: list[StepFacts]) -> list[tuple[str, int, int, bool]]:
    doctor = Doctor()
    for facts in steps:
        doctor.see(replace(facts, rollouts=tuple(replace(one, loops=None, repetition=None) for one in facts.rollouts)))
    found = [(one.code, one.first, one.last, one.open) for one in doctor.advisories]
    return sorted(found, key=lambda one: (one[1], one[0]))


def test_a_run_is_looked_at_as_it_grows_and_a_step_is_whole_once_another_follows(running: Run, record: Any) -> None:
    steps = list(planted(FAULTS["shaping_above_outcome"]))
    for start, end in ((0, 28), (28, 33), (33, 35), (35, STEPS)):
        record(running, steps[start:end])
        look()
        look()
        assert Examination.objects.get(run=running).step == end - 1
        assert advisories() == expected(steps[: end - 1])
    Run.objects.filter(pk=running.pk).update(state=RunState.SUCCEEDED, finished_at=timezone.now())
    look()
    assert advisories() == expected(steps) and advisories()[0][:2] == ("shaping_above_outcome", 30)
    assert list(engine_doctor.waiting()) == []
    shown = Advisory.objects.get(code="shaping_above_outcome").evidence["rollouts"]
    rows = Rollout.objects.filter(run=running, pk__in=[each["id"] for each in shown], step__gte=BEGIN)
    places = {str(row.pk): (row.step, row.group, row.index) for row in rows}
    assert {each["id"]: (each["step"], each["group"], each["index"]) for each in shown} == places and len(places) == 3


@pytest.mark.parametrize(("seconds", "pieces"), [(60.0, [STEPS, 0]), (0.0, [*[10] * (STEPS // 10), 0])])
def test_a_long_run_is_seen_in_pieces_by_time_and_nothing_is_missed(
    running: Run, record: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, pieces: list[int]
) -> None:
    """In pieces of ten steps, a run of 25,000 took the doctor 137 s, most of it for its own memory."""
    steps = list(planted(FAULTS["shaping_above_outcome"]))
    record(running, steps)
    Run.objects.filter(pk=running.pk).update(state=RunState.SUCCEEDED, finished_at=timezone.now())
    monkeypatch.setattr(engine_doctor, "LOOK_S", seconds)
    assert [engine_doctor.run_look(running.pk) for _piece in pieces] == pieces
    assert Examination.objects.get().step == STEPS and advisories() == expected(steps)


def test_what_is_found_is_notified_once_with_its_words(running: Run, record: Any) -> None:
    record(running, planted(FAULTS["collapse"]))
    look()
    events = Event.objects.filter(kind="run_advisory")
    assert {event.facts["code"] for event in events} == {row.code for row in Advisory.objects.all()} == {"collapse"}
    words = words_of(events.get())
    row = Advisory.objects.get()
    assert words.title == "Run “planted” needs attention"
    assert words.lines[0] == "Collapse" and words.lines[-1] == f"Since step {row.first}."
    assert words.lines[1].startswith("From 0.588") and words.lines[1].endswith("at its best to 0.1.")
    Examination.objects.all().delete()
    look()
    assert Event.objects.filter(kind="run_advisory").count() == Advisory.objects.count() == 1


@pytest.mark.parametrize(
    "over",
    [
        {"imported": True},
        {"state": RunState.SUCCEEDED, "finished_at": timezone.now() - timedelta(days=2)},
    ],
)
def test_old_and_imported_runs_notify_no_one(running: Run, record: Any, over: dict[str, Any]) -> None:
    record(running, planted(FAULTS["collapse"]))
    Run.objects.filter(pk=running.pk).update(**over)
    look()
    assert [row[0] for row in advisories()] == ["collapse"] and not Event.objects.exists()


def test_a_note_is_shown_and_notifies_no_one(running: Run, record: Any) -> None:
    record(running, planted(FAULTS["gradient_spike"]))
    look()
    assert [row[:2] for row in advisories()] == [("gradient_spike", 32)] and not Event.objects.exists()


def test_parts_of_the_reward_are_looked_at_too(running: Run, record: Any) -> None:
    ruled = next(drift.fault for drift in DRIFTS if drift.code == "dominant_part")
    record(running, (replace(ruled(facts), rollouts=()) for facts in long_healthy(steps=110)))
    look()
    assert [row[:2] for row in advisories()] == [("dominant_part", 100)]


def test_a_run_that_an_older_version_looked_at_gets_its_diagnosis_once(running: Run, record: Any) -> None:
    record(running, healthy(2))
    look()
    Run.objects.filter(pk=running.pk).update(state=RunState.SUCCEEDED, finished_at=timezone.now())
    look()
    before = Examination.objects.get()
    assert before.diagnosis["kind"] == "learning" and before.step == STEPS
    Examination.objects.update(diagnosis=None)
    assert look() == 0
    after = Examination.objects.get()
    assert (after.diagnosis, after.memory) == (before.diagnosis, before.memory)
    assert not engine_doctor.waiting().exists()


def test_a_later_attempt_trains_its_steps_again(running: Run, record: Any) -> None:
    steps = list(healthy(steps=40))
    record(running, steps[:35])
    look()
    Run.objects.filter(pk=running.pk).update(attempt=2)
    running.refresh_from_db()
    assert list(engine_doctor.waiting()) == []  # it has not made a step
    worse = [FAULTS["clip_share"](facts) for facts in steps]
    record(running, worse[20:31])
    look()
    assert (Examination.objects.get().step, Examination.objects.get().attempt) == (30, 2)
    assert advisories() == [("clip_share", 24, 30, True)]
    assert Advisory.objects.get().evidence["curves"][0]["values"][-10:] == [0.4] * 10


def test_a_silent_run_stalls(running: Run, record: Any) -> None:
    record(running, healthy(steps=20))
    look()
    Run.objects.filter(pk=running.pk).update(last_step_at=timezone.now() - timedelta(minutes=20))
    look()
    assert advisories() == []  # it was looked at a moment ago
    Examination.objects.update(looked_at=timezone.now() - timedelta(minutes=2))
    look()
    assert advisories() == [("stall", 19, 19, True)]
    look()
    assert Event.objects.filter(facts__code="stall").count() == 1


def test_turns_are_read_for_repeated_calls(running: Run, record: Any) -> None:
    failing = [failed(facts) for facts in healthy(steps=8)]
    record(running, failing, loops=True)
    look()
    assert ("looping", 5) in [row[:2] for row in advisories()]


def test_stages_are_kept_apart(running: Run, record: Any) -> None:
    stages = [{"stage": 1, "of": 2, "name": "a", "began": 0}, {"stage": 2, "of": 2, "name": "b", "began": BEGIN - 1}]
    Run.objects.filter(pk=running.pk).update(health={"stages": stages})
    record(running, planted(FAULTS["collapse"]))
    look()
    assert advisories() == []


def test_what_cannot_be_read_is_skipped_and_delays_no_other_run(
    running: Run, record: Any, make_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    record(running, healthy(steps=12))
    other = make_run(name="other", state=RunState.RUNNING, attempt=1)
    record(other, planted(FAULTS["clip_share"]))
    Examination.objects.create(run=running, attempt=1, step=3, memory={"of": "another version"})
    look()
    assert "not examined" in caplog.text
    assert Examination.objects.get(run=running).memory is None and Examination.objects.get(run=other).step == STEPS - 1
    assert [row.run_id for row in Advisory.objects.all()] == [other.pk]
    assert list(engine_doctor.waiting()) == []


def test_a_run_out_of_budget_or_of_another_kind_is_left_out(
    running: Run, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(running, healthy(steps=12))
    monkeypatch.setattr(engine_doctor, "BUDGET_S", 0.0)
    look()
    assert not Examination.objects.exists()
    monkeypatch.undo()
    Run.objects.filter(pk=running.pk).update(kind="sft")
    look()
    assert not Examination.objects.exists()


def test_every_lively_run_gets_its_look_however_many_there_are(
    running: Run, record: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than twenty, only those that were heard last were ever looked at."""
    monkeypatch.setattr(engine_doctor, "RUNS_AT_ONCE", 2)
    runs = [running, *(make_run(name=f"run {n}", state=RunState.RUNNING, attempt=1) for n in range(4))]
    ended = make_run(name="ended", state=RunState.SUCCEEDED, attempt=1, finished_at=timezone.now())
    for each in (*runs, ended):
        record(each, healthy(steps=12))
    seen: list[Any] = []
    looked = engine_doctor.run_look
    monkeypatch.setattr(engine_doctor, "run_look", lambda pk: seen.append(pk) or looked(pk))
    assert look() == 5 * 11 + 12
    assert set(seen[:5]) == {each.pk for each in runs} and seen[5] == ended.pk
    for each in runs[1:]:
        record(each, list(healthy(steps=13))[12:])
    Examination.objects.filter(run=runs[3]).update(looked_at=timezone.now() - timedelta(minutes=5))
    seen.clear()
    assert look() == 4 and seen[0] == runs[3].pk and len(seen) == 4


def test_runs_with_many_steps_take_turns(
    running: Run, record: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_doctor, "LOOK_S", 0.0)  # ten steps a look
    monkeypatch.setattr(engine_doctor, "RUNS_AT_ONCE", 2)
    runs = [running, *(make_run(name=f"run {n}", state=RunState.RUNNING, attempt=1) for n in range(2))]
    for each in runs:
        record(each, healthy(steps=31))
    seen: list[Any] = []
    looked = engine_doctor.run_look
    monkeypatch.setattr(engine_doctor, "run_look", lambda pk: seen.append(pk) or looked(pk))
    assert look() == 3 * 30
    assert seen[:3] == seen[3:6] == seen[6:9] and set(seen[:3]) == {each.pk for each in runs}
