"""A run that waits for the Ray cluster: its journal says so while it lasts, and the wait has an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from training.errors import TiltyardError
from training.journal import Event, Held

SAID_EVERY_S, PATIENCE_S = 30.0, 600.0
T = TypeVar("T")


def in_thread(question: Callable[[], T], name: str) -> Future[T]:
    """Ask in a thread, for what may never answer: then the thread ends with the process."""
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as exc:  # it is raised where the answer is wanted
            answer.set_exception(exc)

    threading.Thread(target=ask, name=name, daemon=True).start()
    return answer


class Hold:
    """The wait of one job. ``write`` journals; ``clock`` is replaced by tests."""

    def __init__(self, write: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._since: float | None = None
        self._said_at = -SAID_EVERY_S

    def wait(self, error: TiltyardError, next_try_s: float) -> None:
        """It waits for the reason that ``error`` names. Raises the error once ``PATIENCE_S`` are over."""
        now = self._clock()
        if self._since is None:
            self._since, self._said_at = now, now - SAID_EVERY_S
        if (left := PATIENCE_S - (now - self._since)) <= 0:
            raise error
        if now - self._said_at >= SAID_EVERY_S:
            self._said_at = now
            self._write(Held(step=0, error=error.info, next_try_s=next_try_s, patience_left_s=left))

    def end(self) -> None:
        """It waits no more, if it did."""
        if self._since is not None:
            self._since = None
            self._write(Held(step=0))
