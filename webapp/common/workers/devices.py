"""What the devices of a worker do now, as NVIDIA's own library (NVML) reports it: a thread reads it every few seconds.

A driver that hangs must not silence the worker, so the beat only takes what was read last, and nothing once that is
old. Without the library or the driver there are no figures; a figure that a device does not have is ``None``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

try:
    import pynvml
except ImportError:  # no NVML package: as where there is no driver
    pynvml = None

logger = logging.getLogger(__name__)
READ_EVERY_S, OLD_AFTER_S = 10.0, 30.0
NAME_CHARS, MOST_DEVICES = 80, 64


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


class Reader(threading.Thread):
    """Reads the devices until it is asked to end. It may hang in the driver: nothing waits for it."""

    def __init__(self, ids: list[str]) -> None:
        super().__init__(name="worker-devices", daemon=True)
        self._ids = ids
        self._done = threading.Event()
        self._latest: tuple[float, list[Reading] | None] = (0.0, None)

    def run(self) -> None:
        """Read at once, then every ``READ_EVERY_S``."""
        while True:
            try:
                self._latest = (time.monotonic(), read_devices(self._ids))
            except Exception:  # the boundary to the driver: its figures are no reason to end the worker
                logger.exception("devices not read", extra={"action": "devices"})
            if self._done.wait(READ_EVERY_S):
                return

    def latest(self) -> list[dict[str, Any]] | None:
        """What was read last, as plain data; ``None`` without NVML, and where it is older than ``OLD_AFTER_S``."""
        at, found = self._latest
        if found is None or time.monotonic() - at > OLD_AFTER_S:
            return None
        return [reading._asdict() for reading in found]

    def end(self) -> None:
        """Read no more."""
        self._done.set()
