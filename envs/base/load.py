"""Counts of what a server does, for ``/health``."""

from __future__ import annotations

import time
from collections import Counter, deque

from envs.wire import Load

WINDOW_S = 60.0
# Enough for a minute at 3,000 steps/s; beyond it the window is shorter, and the rate is taken over what it holds.
MAX_REMEMBERED = 200_000
MAX_ERROR_CODES = 32


class LoadMeter:
    """Remembers the steps of the last minute. Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._steps = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=MAX_REMEMBERED)
        self._errors: Counter[str] = Counter()
        self._started = time.monotonic()

    def step(self, seconds: float) -> None:
        """One step was answered after ``seconds``."""
        self._steps += 1
        self._recent.append((time.monotonic(), seconds))

    def error(self, code: str) -> None:
        """One frame was refused or failed."""
        if code in self._errors or len(self._errors) < MAX_ERROR_CODES:
            self._errors[code[:64]] += 1

    def read(self) -> Load:
        """The figures now."""
        now = time.monotonic()
        while self._recent and self._recent[0][0] < now - WINDOW_S:
            self._recent.popleft()
        full = len(self._recent) == MAX_REMEMBERED
        span = now - self._recent[0][0] if full else min(WINDOW_S, now - self._started)
        waits = sorted(seconds for _at, seconds in self._recent)
        return Load(
            steps=self._steps,
            steps_per_s=round(len(waits) / max(span, 1.0), 3),
            p50_ms=_quantile_ms(waits, 0.50),
            p95_ms=_quantile_ms(waits, 0.95),
            errors=dict(self._errors),
        )


def _quantile_ms(waits: list[float], share: float) -> float | None:
    return round(waits[min(int(len(waits) * share), len(waits) - 1)] * 1000, 3) if waits else None
