"""Which planted fault is on. Modules with planted faults import this, in children of a test too."""

from __future__ import annotations

import os

VARIABLE = "TILTYARD_PLANTED_FAULT"
NONE = -1
_on = int(os.environ.get(VARIABLE, NONE))
reached: set[int] | None = None  # where it is a set, the faults whose places are passed


def fault(number: int) -> bool:
    """Whether this fault is on; planted modules ask at each of their faults' places."""
    if reached is not None:
        reached.add(number)
    return number == _on


def turn_on(number: int) -> None:
    """From now on, here and in children."""
    global _on
    _on = number
    os.environ[VARIABLE] = str(number)
