"""A fake in the place of NVIDIA's own library, at the boundary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from training.devices import Reading

GIB = 1 << 30


class NVMLError(Exception):
    """As pynvml's."""


class FakeNvml:
    """The part of ``pynvml`` that is used, for two devices; a question in ``refused`` has no answer."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *refused: str) -> None:
        self.refused, self.open, self.inits = set(refused), 0, 0

    def _answer(self, question: str, value: Any) -> Any:
        if question in self.refused or not self.open:
            raise NVMLError(question)
        return value

    def nvmlInit(self) -> None:
        self.open += 1
        try:
            self._answer("init", None)
        except NVMLError:
            self.open -= 1
            raise
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise NVMLError("no such device")
        return int(self._answer("handle", index))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != "GPU-1b":
            raise NVMLError("no such device")
        return int(self._answer("handle", 1))

    def nvmlDeviceGetName(self, handle: int) -> str:
        return str(self._answer("name", "NVIDIA H200"))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return self._answer("busy", SimpleNamespace(gpu=(93, 0)[handle], memory=5))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._answer("memory", SimpleNamespace(used=(40 * GIB, 0)[handle], total=140 * GIB))

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return int(self._answer("power", (312_400, 70_000)[handle]))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return int(self._answer("temperature", (61, 30)[handle]))


BUSY = Reading("0", "NVIDIA H200", 0.93, 40 * GIB, 140 * GIB, 312.4, 61)
IDLE = Reading("GPU-1b", "NVIDIA H200", 0.0, 0, 140 * GIB, 70.0, 30)
