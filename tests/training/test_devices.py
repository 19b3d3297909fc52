"""What a device reports, read from NVML (a fake in place of NVIDIA's module), and measured over some time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.training.nvml import BUSY, GIB, IDLE, FakeNvml
from training import devices
from training.devices import CPU, Measured, Meter, Reading, own_device


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    def use(*refused: str) -> FakeNvml:
        fake = FakeNvml(*refused)
        monkeypatch.setattr(devices, "pynvml", fake)
        return fake

    return use


def test_devices_are_read_by_number_and_by_id(nvml: Callable[..., FakeNvml]) -> None:
    fake = nvml()
    assert devices.read_devices(["0", "GPU-1b", "2", "GPU-other"]) == [BUSY, IDLE]
    assert devices.read_devices([]) == [] and (fake.open, fake.inits) == (0, 2)


@pytest.mark.parametrize(
    ("refused", "fields"),
    [
        ("busy", {"busy": None}), ("memory", {"memory_used": None, "memory": None}), ("power", {"power_w": None}),
        ("temperature", {"temperature_c": None}), ("name", {"name": ""}),
    ],
)  # fmt: skip
def test_what_a_device_does_not_report_is_missing_and_not_0(
    nvml: Callable[..., FakeNvml], refused: str, fields: dict[str, Any]
) -> None:
    nvml(refused)
    assert devices.read_devices(["0"]) == [BUSY._replace(**fields)]


def test_without_a_driver_or_the_package_nothing_is_known(
    nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nvml("init").open == 0 and devices.read_devices(["0"]) is None
    monkeypatch.setattr(devices, "pynvml", None)
    assert devices.read_devices(["0"]) is None


def reading(busy: float | None, memory: int | None, power_w: float | None) -> Reading:
    return Reading("0", "NVIDIA H200", busy, memory, 140 * GIB, power_w, 61)


def measured(monkeypatch: pytest.MonkeyPatch, *found: list[Reading] | None) -> Meter:
    """A meter of a device that reported these, one after the other, and then no more."""
    answers = iter(found)
    monkeypatch.setattr(devices, "MEASURE_EVERY_S", 0.0)
    monkeypatch.setattr(devices, "read_devices", lambda _ids: next(answers, None))
    with Meter("0") as meter:
        meter.join(10)
    assert not meter.is_alive()
    return meter


def test_a_meter_gives_means_and_the_peak_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = measured(monkeypatch, *([reading(*each)] for each in ((0.5, 7, 300.0), (1.0, 9, 200.0), (0.0, 8, 100.0))))
    assert meter.take() == Measured(0.5, 9, 200.0)
    assert meter.take() == Measured(None, None, None), "nothing was measured since: that is not 0"


def test_what_a_device_reports_at_times_counts_at_these(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = measured(monkeypatch, [reading(None, None, 100.0)], [reading(0.4, None, None)])
    assert meter.take() == Measured(0.4, None, 100.0)


@pytest.mark.parametrize("answer", [None, []])
def test_a_meter_without_driver_or_device_ends_at_once(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    assert measured(monkeypatch, answer, [reading(1.0, 1, 1.0)]).take() == Measured()


def test_processors_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(devices, "read_devices", asked.append)
    with Meter(CPU) as meter:
        assert meter.ident is None, "no thread was started"
    assert asked == [] and meter.take() == Measured()


def test_a_meter_ends_with_its_block(nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch) -> None:
    nvml()
    monkeypatch.setattr(devices, "MEASURE_EVERY_S", 60.0)
    with Meter("0") as meter:
        assert meter.is_alive()
    meter.join(10)
    assert not meter.is_alive() and meter.take() == Measured(0.93, 40 * GIB, 312.4)


@pytest.mark.parametrize(
    ("visible", "number", "name"),
    [("2,GPU-1b", 0, "2"), ("2,GPU-1b", 1, "GPU-1b"), ("2", 1, "1"), ("", 0, "0")],
)
def test_the_device_of_this_process(monkeypatch: pytest.MonkeyPatch, visible: str, number: int, name: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.current_device", lambda: number)
    assert own_device("cuda") == name and own_device("cpu") == "cpu"
