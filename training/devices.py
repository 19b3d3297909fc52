"""The devices of this host, and what they do, as NVIDIA's own library (NVML) reports it.

Without the library or the driver there are no figures; a figure that a device does not have is ``None``.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

try:
    import pynvml
except ImportError:  # no NVML package: as where there is no driver
    pynvml = None

NAME_CHARS, MOST_DEVICES = 80, 64
MEASURE_EVERY_S = 1.0
CPU = "cpu"


def visible_devices() -> list[str]:
    """The GPUs that this process sees, by number or id; those of the driver where nothing says which."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        visible = ",".join(path.removeprefix("/dev/nvidia") for path in sorted(glob.glob("/dev/nvidia[0-9]*")))
    return [item.strip() for item in visible.split(",") if item.strip() not in {"", "-1"}]


def own_device(kind: str) -> str:
    """The device that this process trains on, as ``visible_devices`` has it. ``kind`` is PyTorch's: ``cpu`` is its own
    name."""
    if kind != "cuda":
        return kind
    import torch

    number, visible = torch.cuda.current_device(), visible_devices()
    return visible[number] if number < len(visible) else str(number)


class Reading(NamedTuple):
    """A device at one moment. ``id`` is what the worker knows it by: a number, or the driver's id of a device or
    of a part of one; ``busy`` a share from 0 to 1; memory in bytes."""

    id: str
    name: str
    busy: float | None
    memory_used: int | None
    memory: int | None
    power_w: float | None
    temperature_c: int | None


def read_devices(ids: list[str]) -> list[Reading] | None:
    """Those of the devices that the driver knows; ``None`` without NVML."""
    if pynvml is None:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        found = [_read_device(each) for each in ids[:MOST_DEVICES]]
        return [reading for reading in found if reading is not None]
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_device(device_id: str) -> Reading | None:
    by_number = device_id.isascii() and device_id.isdigit()
    try:
        if by_number:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(device_id))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device_id)
    except pynvml.NVMLError:
        return None
    busy = _asked(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    power_w = _asked(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    temperature = _asked(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    name = str(_asked(lambda: pynvml.nvmlDeviceGetName(handle)) or "")[:NAME_CHARS]
    used, size = (memory.used, memory.total) if memory is not None else (None, None)
    return Reading(device_id, name, busy, used, size, power_w, temperature)


def _asked(question: Callable[[], Any]) -> Any:
    """The answer; ``None`` where this device has none."""
    try:
        return question()
    except pynvml.NVMLError:
        return None


class Measured(NamedTuple):
    """A device over some time: the mean share in which it computed (0 to 1), the most bytes in use, the mean draw in
    watts. ``None``: not measured."""

    busy: float | None = None
    memory: int | None = None
    power_w: float | None = None


class Meter(threading.Thread):
    """Measures a device every second, within its ``with``. It may hang in the driver: nothing waits for it."""

    def __init__(self, device: str) -> None:
        super().__init__(name="device-meter", daemon=True)
        self.device = device
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._readings: list[Reading] = []

    def run(self) -> None:
        """Measure until the end; not at all where the driver does not know the device."""
        while found := read_devices([self.device]):
            with self._lock:
                self._readings += found
            if self._done.wait(MEASURE_EVERY_S):
                return

    def take(self) -> Measured:
        """What was measured since this was asked last."""
        with self._lock:
            taken, self._readings = self._readings, []
        return Measured(
            busy=_mean([each.busy for each in taken if each.busy is not None]),
            memory=max((each.memory_used for each in taken if each.memory_used is not None), default=None),
            power_w=_mean([each.power_w for each in taken if each.power_w is not None]),
        )

    def __enter__(self) -> Meter:
        if self.device != CPU:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None
