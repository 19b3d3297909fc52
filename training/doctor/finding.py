"""What a detector found at a step, and how its figures are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from training.doctor.history import History
from training.doctor.options import DoctorOptions

Points = list[tuple[int, float]]


class Finding(NamedTuple):
    """``figures`` fill in the rule's sentence; ``curves`` are by name; up to three ``rollouts`` show it."""

    figures: dict[str, str | int]
    curves: dict[str, Points]
    rollouts: list[str]


Detector = Callable[[History, DoctorOptions], Finding | None]


def percent(share: float) -> str:
    """A share as it is read."""
    return f"{100 * share:.0f}%"


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:.3g}"
