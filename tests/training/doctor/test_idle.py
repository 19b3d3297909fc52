"""A device that waits: what counts as work, which device, which cause, and which steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.training.doctor.planted import healthy
from training.doctor.digest import MOST_DEVICES, StepFacts, digest_of
from training.doctor.doctor import Advisory, Doctor
from training.doctor.history import DEVICE_STEPS
from training.doctor.options import DoctorOptions
from training.doctor.reading import steps_of
from training.errors import ErrorInfo
from training.journal import DeviceStep, Event, Held, Metrics, RunStarted
from training.lanes import DeviceUse


def use(device: str = "0", busy: float | None = None, host: str = "a", **phases: float) -> DeviceUse:
    return DeviceUse(host, device, 10.0, busy, phases or {"generation": 5.0, "training": 5.0})


def seen(devices: Iterable[list[DeviceUse]], unusual: Iterable[int] = (), **options: Any) -> list[Advisory]:
    """The advisories about idle devices of a healthy run whose steps have these devices."""
    doctor, odd = Doctor(DoctorOptions(**options)), set(unusual)
    for facts, uses in zip(healthy(), devices, strict=False):
        doctor.see(replace(facts, devices=uses, unusual=facts.step in odd))
        doctor = Doctor.from_json(json.loads(json.dumps(doctor.as_json())), doctor.options)  # what it remembers
    return [each for each in doctor.advisories if each.code == "device_idle"]


@pytest.mark.parametrize(("work", "found"), [(4.9, True), (5.0, False), (5.1, False)])
def test_by_the_phases_generation_and_training(work: float, found: bool) -> None:
    steps = [[use(generation=work / 2, training=work / 2, environment=10 - work)]] * 10
    assert bool(seen(steps)) is found


@pytest.mark.parametrize(("busy", "found"), [(0.49, True), (0.5, False), (0.0, True)])
def test_by_what_the_driver_measured_whatever_the_phases(busy: float, found: bool) -> None:
    advisories = seen([[use(busy=busy)]] * 10)
    assert bool(advisories) is found
    if found:
        assert "by what its driver measured (NVML)" in advisories[0].sentence


def test_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = seen([[use(generation=2, training=1, environment=4, scoring=3)]] * 10)
    assert found.first == 5 and str(found.sentence) == (
        "Device 0 of a worked for 30% of the time of 10 steps, 0 left out, by the phases generation and training. "
        "It waited longest for environments, 40%: allow more sessions at once (`environment.sessions`, more replicas), "
        "or play ahead of the training (`rollout.max_staleness`)."
    )
    [curve] = found.evidence.curves
    assert (curve.name, curve.steps, curve.values) == ("device_work", list(range(1, 11)), [0.3] * 10)


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ({"scoring": 4, "environment": 3}, "for scores, 40%"),
        ({"waiting": 6}, "for rollouts, 60%"),
        ({"handover": 6}, "for the handover of weights, 60%"),
        ({"saving": 4, "handover": 3}, "for checkpoints, 40%"),
        ({"environment": 3, "scoring": 3}, "for environments, 30%"),
    ],
)
def test_the_largest_of_several_causes_and_of_equal_ones_the_first(phases: dict[str, float], words: str) -> None:
    work = 10 - sum(phases.values())
    [found] = seen([[use(generation=work, **phases)]] * 10)
    assert f"It waited longest {words}:" in found.sentence


def test_where_no_wait_explains_it_there_is_little_to_do_at_a_time() -> None:
    [found] = seen([[use(busy=0.2, generation=7, environment=3)]] * 10)
    assert "Waiting does not explain it" in found.sentence and "`rollout.prompts_per_step`" in found.sentence


def test_of_several_devices_the_one_that_worked_least_and_of_equal_ones_the_first() -> None:
    uses = [use("0", 0.45), use("1", 0.45, "b"), use("1", 0.2, "c"), use("0", 0.2, "c"), use("0", None, "d")]
    [found] = seen([uses] * 10)
    assert found.sentence.startswith("Device 0 of c worked for 20%")
    assert found.evidence.curves[0].values == [0.2] * 10, "of this host alone"


def test_the_first_step_of_an_attempt_and_a_held_one_are_left_out() -> None:
    idle, fine = [use(busy=0.1)], [use(busy=0.9)]
    assert seen([idle if step in (1, 7) else fine for step in range(1, 21)], unusual=(1, 7)) == []
    [found] = seen([fine if step in (12, 17) else idle for step in range(1, 21)], unusual=(12, 17))
    assert "of 8 steps, 2 left out" in found.sentence and "worked for 10%" in found.sentence


@pytest.mark.parametrize(("steps", "found"), [(4, False), (5, True)])
def test_as_many_steps_as_the_window_must_count(steps: int, found: bool) -> None:
    assert bool(seen([[]] * 20 + [[use(busy=0.1)]] * steps)) is found
    assert bool(seen([[use(busy=0.1)]] * (steps + 1), unusual=[2])) is found


def test_steps_that_the_driver_did_not_measure_are_left_out() -> None:
    steps = [[use(busy=0.1 if step % 2 else None)] for step in range(1, 11)]
    [found] = seen(steps)
    assert "of 5 steps, 5 left out, by what its driver measured" in found.sentence
    assert seen([[use(busy=0.1 if step % 3 == 1 else None)] for step in range(1, 11)]) == [], "by its phases it works"


def test_a_device_that_is_gone_is_not_idle() -> None:
    assert seen([[use("0", 0.1)]] * 4 + [[use("1", 0.9)]] * 10) == []
    [found] = seen([[use("0", 0.1)]] * 6 + [[use("1", 0.9)]] * 10)
    assert (found.first, found.last) == (5, 6)


def test_a_run_without_lanes_has_no_idle_device() -> None:
    assert seen([[]] * 20) == []


def test_the_doctor_remembers_few_devices_of_few_steps() -> None:
    uses = [use(str(number), number / 200) for number in range(MOST_DEVICES + 10)]
    digest = digest_of(StepFacts(3, {}, devices=tuple(reversed(uses))), DoctorOptions())
    assert [each.device for each in digest.devices] == [str(number) for number in range(MOST_DEVICES)]
    doctor = Doctor()
    for facts in healthy():
        doctor.see(replace(facts, devices=uses[:1]))
    kept = [each.step for each in doctor.history.digests if each.devices]
    assert len(kept) == DEVICE_STEPS and kept[-1] == doctor.history.step


def test_a_memory_of_before_is_read() -> None:
    doctor = Doctor()
    for facts in healthy():
        doctor.see(facts)
    found = doctor.as_json()
    found["history"]["digests"] = [each[:3] for each in found["history"]["digests"]]
    assert [each.devices for each in Doctor.from_json(found).history.digests] == [[]] * len(doctor.history.digests)


def test_from_a_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step after a start and a step that was held are unusual; each step has its own devices."""
    away = ErrorInfo(code="environment_unreachable", boundary="environment", message="away", hint="")
    events: list[Event] = [RunStarted(kind="grpo", total_steps=9, from_step=3)]
    for step in (4, 5, 6):
        events += [Held(step=step, error=away)] if step == 6 else []
        events.append(Metrics(step=step, values={"reward": 0.5}))
        for device in ("0", "1"):
            spent = {"training": float(step)}
            events.append(DeviceStep(step=step, host="a", device=device, seconds=step, phases=spent))  # type: ignore[arg-type]
    found = [(each.step, [use.device for use in each.devices], each.unusual) for each in steps_of(events)]
    assert found == [(4, ["0", "1"], True), (5, ["0", "1"], False), (6, ["0", "1"], True)]
    assert [each.devices[0].seconds for each in steps_of(events)] == [4.0, 5.0, 6.0]
