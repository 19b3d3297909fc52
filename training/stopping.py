"""How long a run may take that is asked to stop: one rule for its trainer, which ends itself by then, and for whoever
ends a trainer that does not.

1. The *grace*: three times the last save and the update at hand.
2. What a checkpoint does not hold yet is worth more patience: a trainer that still works, by its processor time, gets
   up to ``SAVING_MOST_S`` more. On a busy machine an update takes many times as long as the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STOP_GRACE_S = 6.5
SAVES = 3
SAVING_MOST_S, STOP_MOST_S = 60.0, 298.0
LAST_WORDS_S = 1.5
"""What a trainer whose time is over gets to say so, before it is ended by others."""
LOOK_S = 1.0
WORKS = 0.01
"""Share of a core that a process uses at least while it works; one that waits for an answer uses less."""


def stop_grace(save_s: float | None, update_s: float | None, least_s: float = STOP_GRACE_S) -> float:
    """Seconds for one more save, thrice as long as the last one, and one more update; at most ``STOP_MOST_S``."""
    needed_s = SAVES * max(0.0, save_s or 0.0) + max(0.0, update_s or 0.0)
    return min(max(least_s, needed_s), STOP_MOST_S)


def patience(grace_s: float) -> float:
    """Seconds that one which still works may take in all."""
    return min(grace_s + SAVING_MOST_S, STOP_MOST_S)


class Works:
    """Whether a process works, by its processor time so far in seconds (``spent``). Ask again and again."""

    def __init__(self, spent: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._spent, self._clock = spent, clock
        self._at, self._before, self._works = clock(), spent(), True

    def __call__(self) -> bool:
        """What the last whole ``LOOK_S`` said; ``True`` before the first one is over."""
        now = self._clock()
        if now - self._at >= LOOK_S:
            spent = self._spent()
            self._works = spent - self._before >= WORKS * (now - self._at)
            self._at, self._before = now, spent
        return self._works
