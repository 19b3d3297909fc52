"""The devices of a job: the process of each rank names its own and measures it, and the trainer asks all of them."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from training.devices import Measured, Meter, own_device
from training.journal import DeviceStep
from training.lanes import Span
from training.verl_backend.beats import begin_beating

Ask = Callable[..., list[Any]]
"""Calls a function in the process of each rank, with the rank's worker and what else is given; all results, in order
of ranks."""

_meters: list[Meter] = []


def begin_measuring(_worker: Any, kind: str) -> tuple[str, str]:
    """In a rank's process: its host and its device, which is measured until the process ends. ``kind`` is PyTorch's."""
    meter = Meter(own_device(kind))
    _meters.append(meter.__enter__())
    return socket.gethostname(), meter.device


def beat_in(_worker: Any, folder: str) -> None:
    """In a rank's process: give signs of life in a job folder."""
    begin_beating(Path(folder))


def take_measured(_worker: Any) -> Measured:
    """In a rank's process: what was measured since this was asked last."""
    return _meters[-1].take()


class Ranks:
    """The devices of all ranks. All do the same at the same time: each waits for the slowest."""

    def __init__(self, ask: Ask, kind: str) -> None:
        self._ask, self._measures = ask, kind == "cuda"
        self._places = _apart(ask(begin_measuring, kind))

    def steps(self, step: int, spans: Sequence[Span]) -> list[DeviceStep]:
        """The step of each device."""
        measured = self._ask(take_measured) if self._measures else [Measured()] * len(self._places)
        return [
            DeviceStep.of(step, spans, host, device, each)
            for (host, device), each in zip(self._places, measured, strict=True)
        ]


def _apart(places: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Hosts and devices, with a number where several ranks of a host have the same: processors are no devices."""
    several, seen = Counter(places), Counter[tuple[str, str]]()
    found = []
    for host, device in places:
        number = seen[host, device]
        seen[host, device] += 1
        found.append((host, f"{device}:{number}" if several[host, device] > 1 else device))
    return found
