"""What follows from an advisory: a checkpoint is kept, a run is paused, as the rules of its project say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.training.doctor.planted import FAULTS, planted
from tests.webapp.site.run_pages.test_resume_pages import _saved
from training.algorithms.checkpoints import outdated
from webapp.common.storage import attempt_dir
from webapp.common.text import in_words
from webapp.engine import doctor
from webapp.engine.doctor import look
from webapp.people.notifications.models import Event
from webapp.people.notifications.words import words_of
from webapp.people.teams.models import AuditEntry
from webapp.runs.advisories.models import Advisory, DoctorRules
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.registry.services import model_delete
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
FAULT = "shaping_above_outcome"  # which is planted at step 28 and found at step 30


@pytest.fixture
def saved(running: Run, settings: Any, tmp_path: Path) -> list[Checkpoint]:
    """Checkpoints of the run, every ten steps, with the final model next to them."""
    settings.RUNS_DIR = str(tmp_path)
    return [_saved(running, step) for step in (10, 20, 30, 40)]


def begin(run: Run, **rules: Any) -> None:
    DoctorRules.objects.create(project=run.project, **rules)


def kept(run: Run) -> set[int]:
    """Steps of the checkpoints that retention of the newest one would leave besides it."""
    old, _best = outdated(attempt_dir(run.pk, 1), 1)
    return {10, 20, 30, 40} - {int(folder.name.rpartition("-")[2]) for folder in old} - {40}


def test_nothing_follows_unless_a_rule_says_so(running: Run, record: Any, saved: list[Checkpoint]) -> None:
    record(running, planted(FAULTS[FAULT]))
    look()
    row = Advisory.objects.get(code=FAULT)
    running.refresh_from_db()
    assert (row.kept, row.paused, running.state, kept(running)) == (None, False, RunState.RUNNING, set())


def test_the_newest_checkpoint_from_before_it_is_kept(running: Run, record: Any, saved: list[Checkpoint]) -> None:
    begin(running, reactions={FAULT: "keep"})
    record(running, list(planted(FAULTS[FAULT]))[:33])
    look()
    row = Advisory.objects.get(code=FAULT)
    running.refresh_from_db()
    assert (row.first, row.kept, row.paused) == (30, saved[1], False) and running.state == RunState.RUNNING
    assert kept(running) == {20}
    lines = words_of(Event.objects.get(facts__code=FAULT)).lines
    assert "The checkpoint of step 20 is kept." in lines and "A rule of the project pauses the run." not in lines


def test_what_a_rule_does_is_notified_even_of_a_note(running: Run, record: Any, saved: list[Checkpoint]) -> None:
    begin(running, reactions={"gradient_spike": "keep"})
    record(running, list(planted(FAULTS["gradient_spike"]))[:35])
    look()
    event = Event.objects.get(facts__code="gradient_spike")
    assert "The checkpoint of step 30 is kept." in words_of(event).lines


def test_a_model_that_is_forgotten_leaves_what_an_advisory_keeps(
    running: Run, record: Any, saved: list[Checkpoint]
) -> None:
    begin(running, reactions={FAULT: "keep"})
    record(running, list(planted(FAULTS[FAULT]))[:33])
    look()
    model = RegisteredModel.objects.create(project=running.project, name="m", kind="run", checkpoint=saved[1])
    model_delete(model=model)
    assert kept(running) == {20}


def test_a_run_is_paused_once_and_its_course_says_why(running: Run, record: Any, saved: list[Checkpoint]) -> None:
    begin(running, reactions={FAULT: "pause"})
    steps = list(planted(FAULTS[FAULT]))
    record(running, steps[:33])
    look()
    running.refresh_from_db()
    row = Advisory.objects.get(code=FAULT)
    assert (running.state, row.paused, row.kept) == (RunState.PAUSING, True, saved[1])
    reason = RunEvent.objects.filter(run=running, kind="state").order_by("seq").last().payload["reason"]  # type: ignore[union-attr]
    assert in_words(reason) == "paused by a rule of the project: Shaping above the outcome"
    assert "A rule of the project pauses the run." in words_of(Event.objects.get(facts__code=FAULT)).lines
    assert not AuditEntry.objects.filter(action="run_paused").exists(), "no person did it"
    Run.objects.filter(pk=running.pk).update(state=RunState.RUNNING)  # a person resumed it
    record(running, steps[33:])
    look()
    running.refresh_from_db()
    assert running.state == RunState.RUNNING and Advisory.objects.get(code=FAULT).last > 33


@pytest.mark.parametrize("over", [{"imported": True}, {"state": RunState.SUCCEEDED, "finished_at": timezone.now()}])
def test_a_run_that_is_not_at_work_is_not_paused(running: Run, record: Any, saved: Any, over: dict[str, Any]) -> None:
    begin(running, reactions={FAULT: "pause"})
    record(running, list(planted(FAULTS[FAULT]))[:33])
    Run.objects.filter(pk=running.pk).update(**over)
    look()
    running.refresh_from_db()
    assert not Advisory.objects.get(code=FAULT).paused
    assert not RunEvent.objects.filter(run=running, kind="state").exists()


def test_a_pause_that_a_person_asked_for_is_theirs(running: Run, record: Any, saved: Any) -> None:
    begin(running, reactions={FAULT: "pause"})
    record(running, list(planted(FAULTS[FAULT]))[:33])
    Run.objects.filter(pk=running.pk).update(state=RunState.PAUSING)
    look()
    assert not Advisory.objects.get(code=FAULT).paused


def test_what_was_over_before_anybody_looked_has_no_consequences(running: Run, record: Any, saved: Any) -> None:
    begin(running, reactions={"kl_spike": "pause"})
    record(running, planted(FAULTS["kl_spike"]))
    look()
    row = Advisory.objects.get(code="kl_spike")
    running.refresh_from_db()
    assert running.step - row.last > 10 and not row.paused and running.state == RunState.RUNNING


def test_five_checkpoints_of_a_run_at_most(running: Run, saved: list[Checkpoint]) -> None:
    def advised(number: int) -> Advisory:
        fields = {"last": number, "evidence": {}}
        return Advisory.objects.create(run=running, code="kl_spike", first=number, **fields)

    more = [_saved(running, step) for step in (50, 60, 70)]
    rows = [advised(point.step + 1) for point in [*saved, *more]]
    for row in rows:
        doctor.react(running, row, doctor.Reaction.KEEP)
    assert [row.kept.step if row.kept else None for row in rows] == [10, 20, 30, 40, 50, None, None]
    again = advised(12)
    doctor.react(running, again, doctor.Reaction.KEEP)
    assert again.kept == saved[0], "which is kept already"
    none = advised(9)
    doctor.react(running, none, doctor.Reaction.KEEP)
    assert none.kept is None
