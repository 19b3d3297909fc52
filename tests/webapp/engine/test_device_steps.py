"""What devices did, from the journal to the database: the newest steps, each once, of the attempt that counts."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from training import journal as j
from training.errors import ErrorInfo
from training.journal import Journal
from webapp.common.storage import attempt_dir
from webapp.engine.doctor import steps_between
from webapp.engine.projection import Projector
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.models import Attempt, RunEvent

pytestmark = pytest.mark.django_db
KEPT = DeviceStep.KEPT


def step(number: int, device: str = "0", host: str = "a", **over: Any) -> j.DeviceStep:
    fields: dict[str, Any] = {"seconds": 2.0, "phases": {"training": 2.0}} | over
    return j.DeviceStep(step=number, host=host, device=device, **fields)


def kept(run: Any) -> list[tuple[int, str, str, int]]:
    rows = DeviceStep.objects.filter(run=run).order_by("step", "host", "device")
    return list(rows.values_list("step", "host", "device", "attempt"))


def test_a_step_of_each_device_is_a_row_and_twice_is_once(written: Any) -> None:
    w = written()
    spans = [{"phase": "generation", "begin": 0.0, "end": 0.5}, {"phase": "training", "begin": 0.5, "end": 2.0}]
    phases = {"generation": 0.5, "training": 1.5}
    w.write(step(1), step(1, "1", busy=0.25, memory=7, power_w=300.0, phases=phases, spans=spans, left_out=3))
    w.project()
    assert kept(w.run) == [(1, "a", "0", 1), (1, "a", "1", 1)]
    found = DeviceStep.objects.get(run=w.run, device="1").found
    assert (found.step, found.seconds, found.phases, found.left_out) == (1, 2.0, phases, 3)
    assert (found.busy, found.memory, found.power_w, len(found.spans)) == (0.25, 7, 300.0, 2)
    assert DeviceStep.objects.get(run=w.run, device="0").found.busy is None
    w.write(step(1, "2"))
    w.project()
    of_step = [(1, "a", "0", 1), (1, "a", "1", 1), (1, "a", "2", 1)]
    assert kept(w.run) == of_step, "another batch leaves the other devices of the step"
    Attempt.objects.filter(run=w.run).update(journal_offset=0, journal_line=0)
    Projector(w.lease).drain()
    assert kept(w.run) == of_step


def test_only_the_newest_steps_are_kept_within_a_batch_and_over_batches(written: Any) -> None:
    w = written()
    w.write(*(step(number) for number in range(1, KEPT + 3)))
    w.project()
    assert [row[0] for row in kept(w.run)] == list(range(3, KEPT + 3))
    w.write(step(KEPT + 3), step(KEPT + 3, "1"))
    w.project()
    assert [row[0] for row in kept(w.run)] == [*range(4, KEPT + 4), KEPT + 3]


def test_an_attempt_that_trains_a_step_again_replaces_it_and_what_followed(written: Any) -> None:
    """Also where it runs on another host, whose devices have other names."""
    w = written()
    w.write(*(step(number) for number in range(1, 6)))
    w.project()
    Attempt.objects.create(run=w.run, number=2, owner="b", started_at=timezone.now(), first_step=2)
    journal = Journal(attempt_dir(w.run.pk, 2))
    journal.write(step(3, host="b"))
    journal.close()
    Projector(w.lease, attempt=2).drain()
    assert kept(w.run) == [(1, "a", "0", 1), (2, "a", "0", 1), (3, "b", "0", 2)]


def test_a_line_that_cannot_be_true_is_named_and_the_others_count(written: Any) -> None:
    w = written()
    good = step(1).model_dump_json()
    w.raw(good.replace('"seconds":2.0', '"seconds":-2.0').encode() + b"\n" + good.encode() + b"\n")
    w.raw(good.replace('"step":1', f'"step":{2**31}').encode() + b"\n")
    w.project()
    assert kept(w.run) == [(1, "a", "0", 1)]
    assert RunEvent.objects.filter(run=w.run, kind="warning").count() == 2


def test_the_doctor_sees_the_devices_of_a_step_and_which_steps_are_unusual(written: Any, make_run: Any) -> None:
    """The first step of each attempt, and one that was held, though others were held long before."""
    w = written()
    away = ErrorInfo(code="environment_unreachable", boundary="environment", message="away", hint="")
    w.write(j.RunStarted(kind="grpo", total_steps=20))
    for number in range(1, 7):
        w.write(*([j.Held(step=number, error=away), j.Held(step=number)] if number in (2, 4) else []))
        w.write(j.Metrics(step=number, values={"reward": 0.5}), step(number, "1", busy=0.5), step(number))
    w.project()
    Attempt.objects.create(run=w.run, number=2, owner="b", started_at=timezone.now(), first_step=5)
    theirs = DeviceStep.objects.filter(run=w.run, step=3).first()
    assert theirs is not None
    DeviceStep.objects.create(run=make_run(), attempt=1, step=3, host="b", device="9", at=theirs.at, lane=theirs.lane)
    facts = {each.step: each for each in steps_between(w.run, 0, 6)}
    assert [each.step for each in facts.values() if each.unusual] == [1, 2, 4, 6]
    assert [(use.device, use.busy, use.phases) for use in facts[3].devices] == [
        ("0", None, {"training": 2.0}), ("1", 0.5, {"training": 2.0}),
    ]  # fmt: skip
    assert [each.unusual for each in steps_between(w.run, 2, 4)] == [False, True], "from where it looked last"


def test_a_run_of_before_has_no_devices(written: Any) -> None:
    w = written()
    w.write(j.RunStarted(kind="grpo", total_steps=20), j.Metrics(step=1, values={"reward": 0.5}))
    w.project()
    [facts] = steps_between(w.run, 0, 1)
    assert facts.devices == []
